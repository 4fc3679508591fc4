// Ctrl-C as a question that is asked now and then, for verbs that go on after it.
#pragma once

#include <signal.h>

#include <atomic>

namespace rondo::apps {

/// While it lives SIGINT sets flag() and interrupts system calls. A second one before clear() ends the process:
/// whatever should have looked at the flag does not. One at a time; made and destroyed on the main thread.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Set by the handler. Relaxed order suffices: nothing else is handed over.
  static const std::atomic<bool>& flag();
  static void clear();

  enum class Wait { kReadable, kInterrupted };
  /// Until `descriptor` can be read, its end included, or the flag is set, were it long before: a flag that is asked
  /// for and a read() after it would leave a gap in which the signal wakes nobody.
  static Wait wait_to_read(int descriptor);

 private:
  struct sigaction before_ = {};
};

}  // namespace rondo::apps
