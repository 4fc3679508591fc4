// The queue thread: takes work in order, waits for its points, executes it, signals or poisons.
//
// The ring is filled under the mutex; the entry at the head belongs to the queue's thread until it advances the head.
// Lock order: a timeline's mutex is taken last and alone.
#include "rondo/devices/host_queue.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "rondo/base/status.h"

namespace rondo::devices {

std::uint64_t HostTimeline::completed() const {
  const MutexLock lock(mutex_);
  return completed_;
}

bool HostTimeline::poisoned() const {
  const MutexLock lock(mutex_);
  return error_code_ != absl::StatusCode::kOk;
}

absl::Status HostTimeline::error() const { return absl::Status(error_code_, error_message_); }

bool HostTimeline::wait_for(std::uint64_t value, Moment deadline) {
  while (completed_ < value && error_code_ == absl::StatusCode::kOk) {
    least_awaited_ = std::min(least_awaited_, value);
    if (deadline == Moment::max()) {
      changed_.wait(mutex_);
    } else if (!changed_.wait_until(mutex_, deadline)) {
      return completed_ >= value || error_code_ != absl::StatusCode::kOk;
    }
  }
  return true;
}

absl::Status HostTimeline::wait(std::uint64_t value, Moment deadline) {
  const MutexLock lock(mutex_);
  if (!wait_for(value, deadline)) {
    return absl::DeadlineExceededError(fmt::format("waited for {} on a timeline that is at {}", value, completed_));
  }
  return completed_ >= value ? absl::OkStatus() : error();
}

absl::StatusOr<Moment> HostTimeline::wait_reached(std::uint64_t value) {
  const MutexLock lock(mutex_);
  wait_for(value, Moment::max());
  if (completed_ < value) return error();
  // The earliest remembered signal that covers the value; without any signal (value 0) it was always reached.
  Moment moment{};
  const std::uint64_t oldest = signals_ > kRemembered ? signals_ - kRemembered : 0;
  for (std::uint64_t i = signals_; i > oldest; --i) {
    const Reached& reached = reached_[(i - 1) % kRemembered];
    if (reached.value < value) break;
    moment = reached.moment;
  }
  return value == 0 ? Moment{} : moment;
}

void HostTimeline::signal(std::uint64_t value) { signal_at(value, std::chrono::steady_clock::now()); }

void HostTimeline::signal_at(std::uint64_t value, Moment moment) {
  const MutexLock lock(mutex_);
  if (error_code_ != absl::StatusCode::kOk || value <= completed_) return;
  completed_ = value;
  reached_[signals_ % kRemembered] = {value, moment};
  ++signals_;
  if (value < least_awaited_) return;
  least_awaited_ = kNobody;  // who waits for more says so again
  // Under the lock: a waiter may destroy the timeline as soon as it has the mutex.
  changed_.notify_all();
}

void HostTimeline::poison(const absl::Status& error) {
  const MutexLock lock(mutex_);
  if (error_code_ != absl::StatusCode::kOk || error.ok()) return;
  error_code_ = error.code();
  error_message_ = message_of(error);
  changed_.notify_all();
}

void HostTimeline::reset() {
  const MutexLock lock(mutex_);
  completed_ = 0;
  signals_ = 0;
  least_awaited_ = kNobody;
  error_code_ = absl::StatusCode::kOk;
  error_message_.clear();
}

class HostQueue::Impl {
 public:
  explicit Impl(HostBackend& backend)
      : backend_(backend),
        roles_{Role(*this, QueueRole::kCompute), Role(*this, QueueRole::kUp), Role(*this, QueueRole::kDown)},
        ring_(kRing),
        thread_([this] { serve(); }) {}

  ~Impl() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      filled_.notify_all();
    }
    thread_.join();
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Queue& role(QueueRole role) { return roles_[static_cast<std::size_t>(role)]; }

  void observe(WorkObserver* observer) {
    const MutexLock lock(mutex_);
    observer_ = observer;
  }

 private:
  static constexpr std::size_t kRing = 256;

  struct Entry {
    HostWork work;
    std::array<Point, kMaxWaits> waits;
    std::size_t wait_count = 0;
    Point signal;
    Moment enqueued;
    WorkObserver* observer = nullptr;
  };

  class Role final : public Queue {
   public:
    Role(Impl& queue, QueueRole role) : queue_(queue), role_(role) {}
    void run(const Program& program, const Bindings& bindings, std::span<const Point> waits, Point signal,
             const WorkTag& tag) override {
      queue_.enqueue({HostWork::Kind::kRun, role_, &program, &bindings, {}, {}, tag}, waits, signal);
    }
    void copy(BufferView from, BufferView to, std::span<const Point> waits, Point signal, const WorkTag& tag) override {
      queue_.enqueue({HostWork::Kind::kCopy, role_, nullptr, nullptr, from, to, tag}, waits, signal);
    }
    void clear(BufferView view, std::span<const Point> waits, Point signal, const WorkTag& tag) override {
      queue_.enqueue({HostWork::Kind::kClear, role_, nullptr, nullptr, {}, view, tag}, waits, signal);
    }

   private:
    Impl& queue_;
    const QueueRole role_;
  };

  void enqueue(const HostWork& work, std::span<const Point> waits, Point signal) {
    if (waits.size() > kMaxWaits) {
      std::fprintf(stderr, "a piece of work with %zu waits; a queue takes %zu\n", waits.size(), kMaxWaits);
      std::abort();
    }
    const MutexLock lock(mutex_);
    while (count_ == kRing) freed_.wait(mutex_);
    Entry& entry = ring_[(head_ + count_) % kRing];
    entry.work = work;
    std::copy(waits.begin(), waits.end(), entry.waits.begin());
    entry.wait_count = waits.size();
    entry.signal = signal;
    entry.observer = observer_;
    entry.enqueued = std::chrono::steady_clock::now();
    ++count_;
    filled_.notify_one();
  }

  void serve() {
    while (Entry* entry = next()) {
      const absl::Status status = process(*entry);
      if (!status.ok() && entry->signal.timeline != nullptr) entry->signal.timeline->poison(status);
      const MutexLock lock(mutex_);
      head_ = (head_ + 1) % kRing;
      --count_;
      freed_.notify_one();
    }
  }

  /// The entry at the head, waiting for one; null when the queue ends and is empty.
  Entry* next() {
    const MutexLock lock(mutex_);
    while (count_ == 0 && !stopping_) filled_.wait(mutex_);
    return count_ == 0 ? nullptr : &ring_[head_];
  }

  absl::Status process(const Entry& entry) {
    Moment ready = std::max(entry.enqueued, last_end_);
    for (std::size_t i = 0; i < entry.wait_count; ++i) {
      RONDO_ASSIGN_OR_RETURN(const Moment reached, await(entry.waits[i]));
      ready = std::max(ready, reached);
    }
    if (entry.work.kind == HostWork::Kind::kCopy && entry.work.from.size != entry.work.to.size) {
      return internal_error("copy '{}' of {} bytes to {} bytes", entry.work.tag.name, entry.work.from.size,
                            entry.work.to.size);
    }
    // An attempt that has failed is dropped whole: nothing could see what this piece would do.
    if (const auto* own = dynamic_cast<HostTimeline*>(entry.signal.timeline); own != nullptr && own->poisoned()) {
      return absl::CancelledError("the attempt had failed before");
    }
    absl::StatusOr<HostSpan> span = backend_.execute(entry.work, ready);
    if (!span.ok()) return span.status();
    last_end_ = span->end;
    if (entry.observer != nullptr) entry.observer->on_work(entry.work.role, entry.work.tag, span->begin, span->end);
    signal(entry.signal, span->end);
    return absl::OkStatus();
  }

  static absl::StatusOr<Moment> await(const Point& point) {
    if (auto* timeline = dynamic_cast<HostTimeline*>(point.timeline)) return timeline->wait_reached(point.value);
    if (point.timeline == nullptr) return Moment{};
    RONDO_RETURN_IF_ERROR(point.timeline->wait(point.value, Moment::max()));
    return Moment{};
  }

  static void signal(const Point& point, Moment moment) {
    if (auto* timeline = dynamic_cast<HostTimeline*>(point.timeline)) {
      timeline->signal_at(point.value, moment);
    } else if (point.timeline != nullptr) {
      point.timeline->signal(point.value);
    }
  }

  HostBackend& backend_;
  std::array<Role, 3> roles_;
  Mutex mutex_;
  CondVar filled_;
  CondVar freed_;
  std::vector<Entry> ring_;  // the entry at head_ is the thread's; others are guarded by mutex_
  std::size_t head_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  WorkObserver* observer_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Moment last_end_{};   // of the queue's thread
  std::thread thread_;  // last: it uses everything above
};

HostQueue::HostQueue(HostBackend& backend) : impl_(std::make_unique<Impl>(backend)) {}
HostQueue::~HostQueue() = default;
Queue& HostQueue::role(QueueRole role) { return impl_->role(role); }
void HostQueue::observe(WorkObserver* observer) { impl_->observe(observer); }

}  // namespace rondo::devices
