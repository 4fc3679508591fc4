// Ends a step under way when the user asks for it.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "rondo/schedule/executor.h"
#include "rondo/train/run.h"

namespace rondo::train {

/// While it lives, `stop` abandons the executor's step. Both outlive it.
class Watcher {
 public:
  Watcher(const StopFlag& stop, schedule::StepExecutor& executor) {
    thread_ = std::thread([this, &stop, &executor] {
      while (!done_.load(std::memory_order_acquire)) {
        if (stop.load(std::memory_order_relaxed)) return executor.abandon();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    });
  }
  ~Watcher() {
    done_.store(true, std::memory_order_release);
    thread_.join();
  }

 private:
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace rondo::train
