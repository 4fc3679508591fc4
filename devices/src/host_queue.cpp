// The queue thread: takes work in order, waits for its points, executes it, signals or poisons.
//
// The ring is filled under the mutex; the entry at the head belongs to the queue's thread until it advances the head.
// Lock order: a timeline's mutex is taken last and alone.
#include "rondo/devices/host_queue.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "rondo/base/status.h"
#include "rondo/base/thread.h"

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
        ring_(kRing) {
    absl::StatusOr<std::thread> thread = start_thread("a queue of a device", [this] { serve(); });
    started_ = thread.status();
    if (thread.ok()) thread_ = *std::move(thread);
  }

  ~Impl() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      filled_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const absl::Status& started() const { return started_; }
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
  /// The entry behind it, if there is one.
  const Entry* second() {
    const MutexLock lock(mutex_);
    return count_ < 2 ? nullptr : &ring_[(head_ + 1) % kRing];
  }

  /// Of work that the backend has begun.
  struct Begun {
    absl::StatusOr<std::uint64_t> ticket = 0;
    Moment moment;
    absl::Status before;  // of the work that it was begun behind and waits for
  };

  absl::Status process(const Entry& entry) {
    if (begun_) return finish(entry, *std::exchange(begun_, std::nullopt));
    RONDO_ASSIGN_OR_RETURN(const Moment ready, make_ready(entry));
    Begun begun{backend_.begin(entry.work), std::chrono::steady_clock::now(), {}};
    if (!begun.ticket.ok() || *begun.ticket > 0) return finish(entry, begun);
    absl::StatusOr<HostSpan> span = backend_.execute(entry.work, ready);
    if (!span.ok()) return span.status();
    conclude(entry, *span);
    return absl::OkStatus();
  }

  /// Begins the next piece where nothing keeps it, then waits for this one's end.
  absl::Status finish(const Entry& entry, const Begun& begun) {
    RONDO_RETURN_IF_ERROR(begun.ticket.status());
    bool waits = false;
    if (const Entry* next = second(); next != nullptr && can_follow(*next, entry, waits)) {
      begun_ = Begun{backend_.begin(next->work), std::chrono::steady_clock::now(), {}};
      if (begun_->ticket.ok() && *begun_->ticket == 0) begun_.reset();
    }
    absl::Status status = backend_.finish(entry.work, *begun.ticket);
    status.Update(begun.before);
    if (begun_ && waits) begun_->before = status;
    if (status.ok()) conclude(entry, {std::max(begun.moment, last_end_), std::chrono::steady_clock::now()});
    return status;
  }

  /// Whether `next` can be begun while `entry` is under way: what it waits for is reached, or is this entry's end.
  static bool can_follow(const Entry& next, const Entry& entry, bool& waits) {
    if (next.work.kind != HostWork::Kind::kRun || is_poisoned(next.signal)) return false;
    for (std::size_t i = 0; i < next.wait_count; ++i) {
      const Point& point = next.waits[i];
      if (point.timeline == nullptr || point.timeline->completed() >= point.value) continue;
      if (point.timeline != entry.signal.timeline || point.value > entry.signal.value) return false;
      waits = true;
    }
    return true;
  }

  static bool is_poisoned(const Point& point) {
    const auto* own = dynamic_cast<HostTimeline*>(point.timeline);
    return own != nullptr && own->poisoned();
  }

  void conclude(const Entry& entry, const HostSpan& span) {
    last_end_ = span.end;
    if (entry.observer != nullptr) entry.observer->on_work(entry.work.role, entry.work.tag, span.begin, span.end);
    signal(entry.signal, span.end);
  }

  /// Waits for what the entry waits for; gives the moment from which on it could have begun.
  absl::StatusOr<Moment> make_ready(const Entry& entry) {
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
    if (is_poisoned(entry.signal)) return absl::CancelledError("the attempt had failed before");
    return ready;
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
  Moment last_end_{};           // this and the next: the queue's thread's
  std::optional<Begun> begun_;  // the entry at the head
  absl::Status started_;        // the constructor alone sets it
  std::thread thread_;          // last: it uses everything above
};

HostQueue::HostQueue(HostBackend& backend) : impl_(std::make_unique<Impl>(backend)) {}
HostQueue::~HostQueue() = default;
const absl::Status& HostQueue::started() const { return impl_->started(); }
Queue& HostQueue::role(QueueRole role) { return impl_->role(role); }
void HostQueue::observe(WorkObserver* observer) { impl_->observe(observer); }

}  // namespace rondo::devices
