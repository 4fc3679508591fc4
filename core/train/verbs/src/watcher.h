// Ends a step under way when the user asks for it.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "rondo/base/status.h"
#include "rondo/base/thread.h"
#include "rondo/schedule/executor.h"
#include "rondo/train/run.h"

namespace rondo::train {

/// Once it is started and while it lives, `stop` abandons the executor's step. Both outlive it.
class Watcher {
 public:
  Watcher() = default;
  /// Errors: ResourceExhausted when there is no thread for it.
  absl::Status start(const StopFlag& stop, schedule::StepExecutor& executor) {
    RONDO_ASSIGN_OR_RETURN(thread_, start_thread("interruptions", [this, &stop, &executor] {
                             while (!done_.load(std::memory_order_acquire)) {
                               if (stop.load(std::memory_order_relaxed)) return executor.abandon();
                               std::this_thread::sleep_for(std::chrono::milliseconds(50));
                             }
                           }));
    return absl::OkStatus();
  }
  ~Watcher() {
    done_.store(true, std::memory_order_release);
    if (thread_.joinable()) thread_.join();
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace rondo::train
