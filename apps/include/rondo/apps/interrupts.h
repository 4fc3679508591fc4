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

 private:
  struct sigaction before_ = {};
};

}  // namespace rondo::apps
