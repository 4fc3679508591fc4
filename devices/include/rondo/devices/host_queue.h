// Timelines and queues for devices whose work is done by host threads (CPU, emulated, timed, null).
//
// A HostQueue owns one thread and a bounded ring of work; nothing allocates once it is made. Enqueuing blocks while the
// ring is full. Lock order: a timeline's mutex is taken last and alone.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rondo/base/mutex.h"
#include "rondo/devices/device.h"

namespace rondo::devices {

using Moment = std::chrono::steady_clock::time_point;

/// Every signal carries the moment at which it counts as given: now on real devices, the ideal end of the work on those
/// that take a described card's time. Work that waits for it can so start at that moment, however late the host's
/// threads wake up, and delays of the host do not add up.
///
/// A value that was reached before the poison stays reached; signals after it are ignored.
class HostTimeline final : public Timeline {
 public:
  std::uint64_t completed() const override;
  absl::Status wait(std::uint64_t value, Moment deadline) override;
  void signal(std::uint64_t value) override;
  void poison(const absl::Status& error) override;
  void reset() override;

  void signal_at(std::uint64_t value, Moment moment);
  /// Blocks until `value` is reached and returns when that was (of the last signals exactly, of older ones an upper
  /// bound), or the error of the poison.
  absl::StatusOr<Moment> wait_reached(std::uint64_t value);
  bool poisoned() const;

 private:
  static constexpr std::size_t kRemembered = 128;
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};
  struct Reached {
    std::uint64_t value = 0;
    Moment moment;
  };

  /// False when the deadline passed first.
  bool wait_for(std::uint64_t value, Moment deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  /// At most the least value that somebody waits for: signals below it need wake nobody.
  std::uint64_t least_awaited_ ABSL_GUARDED_BY(mutex_) = kNobody;
  std::uint64_t completed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t signals_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<Reached, kRemembered> reached_ ABSL_GUARDED_BY(mutex_);  // ring: signal i at i % kRemembered
  // The poison, taken apart: each waiter gets a Status of its own, since the counter that copies would share lives in a
  // library that the thread sanitizer cannot see into.
  absl::Status error() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusCode error_code_ ABSL_GUARDED_BY(mutex_) = absl::StatusCode::kOk;
  std::string error_message_ ABSL_GUARDED_BY(mutex_);
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

/// When a piece of work ran: what the observer is told; its signal counts from `end`.
struct HostSpan {
  Moment begin;
  Moment end;
};

class HostBackend {
 public:
  virtual ~HostBackend() = default;
  /// Executes work on the queue's thread. `ready`: when the work could have begun: it was enqueued, its waits were
  /// reached and the work before it was done. Returns when it ran (`end` not later than now), or an error. Does not
  /// allocate. With several queues it is called from several threads at once.
  virtual absl::StatusOr<HostSpan> execute(const HostWork& work, Moment ready) = 0;

  /// Begins work whose end finish() waits for, so that the queue can begin what comes next meanwhile; 0: execute() is
  /// for this work. What is begun next sees all that this work writes. Two pieces at most are under way at a time.
  virtual absl::StatusOr<std::uint64_t> begin(const HostWork& /*work*/) { return 0; }
  /// `begun`: what begin() gave. Called in the order of beginning, on the queue's thread.
  virtual absl::Status finish(const HostWork& /*work*/, std::uint64_t /*begun*/) { return absl::OkStatus(); }
};

/// For backends that take their own time: the span from `begin` to now.
inline HostSpan span_since(Moment begin) { return {begin, std::chrono::steady_clock::now()}; }

/// Several logical queues (roles) over one hardware queue, i.e. one thread. A piece of work has at most kMaxWaits
/// waits.
class HostQueue {
 public:
  static constexpr std::size_t kMaxWaits = 32;
  explicit HostQueue(HostBackend& backend);
  /// ResourceExhausted: there was no thread for it, and nothing may be enqueued.
  const absl::Status& started() const;
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
