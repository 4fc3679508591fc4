// Timelines and queues for devices whose work is done by host threads (CPU, emulated, timed, null).
//
// A HostQueue owns one thread and a bounded ring of work; nothing allocates once it is made. Enqueuing blocks while the
// ring is full. Lock order: a timeline's mutex is taken last and alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "rondo/base/mutex.h"
#include "rondo/devices/device.h"

namespace rondo::devices {

class HostTimeline final : public Timeline {
 public:
  std::uint64_t completed() const override;
  absl::Status wait(std::uint64_t value, std::chrono::steady_clock::time_point deadline) override;
  void signal(std::uint64_t value) override;
  void poison(const absl::Status& error) override;
  void reset() override;

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::uint64_t completed_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

/// One piece of work as the backend sees it.
struct HostWork {
  enum class Kind : std::uint8_t { kRun, kCopy, kClear } kind = Kind::kRun;
  QueueRole role = QueueRole::kCompute;
  const Program* program = nullptr;
  const Bindings* bindings = nullptr;
  BufferView from;
  BufferView to;
  WorkTag tag;
};

/// Executes work on the queue's thread. `ready`: when the work could have begun (its waits were reached and the work
/// before it was done). Returns the moment at which the work counts as done (now, for real devices), or an error.
class HostBackend {
 public:
  virtual ~HostBackend() = default;
  virtual absl::Status execute(const HostWork& work) = 0;
};

/// Several logical queues (roles) over one hardware queue, i.e. one thread.
class HostQueue {
 public:
  explicit HostQueue(HostBackend& backend);
  ~HostQueue();  // finishes what is enqueued, then joins
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;
  Queue& role(QueueRole role);
  void observe(WorkObserver* observer);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::devices
