// Says what a program is at where nobody sees a line change: on a stream that is no terminal, every so often, from a
// thread of its own, since what takes long (a driver that compiles) does not call back.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "rondo/base/mutex.h"

namespace rondo::apps {

class Reminder {
 public:
  using Duration = std::chrono::steady_clock::duration;

  /// `stream` outlives it. Where there is no thread for it, nothing is said.
  Reminder(std::FILE* stream, Duration between);
  ~Reminder();
  Reminder(const Reminder&) = delete;
  Reminder& operator=(const Reminder&) = delete;

  /// What is under way; "": nothing, so that nothing is said once this returns. The time until it is said goes on from
  /// one to the next.
  void set(std::string line);

 private:
  void run();

  std::FILE* const stream_;
  const Duration between_;
  Mutex mutex_;
  CondVar changed_;
  std::string line_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rondo::apps
