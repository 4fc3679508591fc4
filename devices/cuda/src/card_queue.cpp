// Enqueuing and retiring; see card_queue.h.
#include "card_queue.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "rondo/base/status.h"
#include "rondo/base/thread.h"

namespace rondo::devices::cuda {
namespace {

/// Memory of the host that is not pinned: the driver copies it in the calling thread, at a moment of its own choice.
bool is_pageable(const BufferView& view) {
  return dynamic_cast<const CardMemory*>(view.memory) == nullptr &&
         dynamic_cast<const PinnedMemory*>(view.memory) == nullptr;
}

absl::Status await(const Point& point, Moment& reached) {
  if (point.timeline == nullptr || point.value == 0) return absl::OkStatus();
  if (auto* timeline = dynamic_cast<HostTimeline*>(point.timeline)) {
    RONDO_ASSIGN_OR_RETURN(const Moment moment, timeline->wait_reached(point.value));
    reached = std::max(reached, moment);
    return absl::OkStatus();
  }
  return point.timeline->wait(point.value, Moment::max());
}

bool is_poisoned(const Point& signal) {
  const auto* timeline = dynamic_cast<HostTimeline*>(signal.timeline);
  return timeline != nullptr && timeline->poisoned();
}

absl::Status status_of(const Fault& fault) {
  switch (fault.code) {
    case Fault::Code::kNone:
      return absl::OkStatus();
    case Fault::Code::kIdPastTable:
      return internal_error("token {} has id {}, but the table has {} rows", fault.token, fault.value, fault.limit);
    case Fault::Code::kTargetPastVocabulary:
      return internal_error("token {} has target {}, but the vocabulary has {} rows", fault.token, fault.value,
                            fault.limit);
  }
  return internal_error("a kernel left a fault of no known kind");
}

}  // namespace

void CardQueue::Role::run(const Program& program, const Bindings& bindings, std::span<const Point> waits, Point signal,
                          const WorkTag& tag) {
  queue_.enqueue({HostWork::Kind::kRun, role_, &program, &bindings, {}, {}, tag}, waits, signal);
}

void CardQueue::Role::copy(BufferView from, BufferView to, std::span<const Point> waits, Point signal,
                           const WorkTag& tag) {
  queue_.enqueue({HostWork::Kind::kCopy, role_, nullptr, nullptr, from, to, tag}, waits, signal);
}

void CardQueue::Role::clear(BufferView view, std::span<const Point> waits, Point signal, const WorkTag& tag) {
  queue_.enqueue({HostWork::Kind::kClear, role_, nullptr, nullptr, {}, view, tag}, waits, signal);
}

CardQueue::CardQueue(StreamWork& work)
    : work_(work),
      roles_{Role(*this, QueueRole::kCompute), Role(*this, QueueRole::kUp), Role(*this, QueueRole::kDown)},
      ring_(kRing) {}

absl::StatusOr<std::unique_ptr<CardQueue>> CardQueue::make(StreamWork& work) {
  std::unique_ptr<CardQueue> queue(new CardQueue(work));
  RONDO_RETURN_IF_ERROR(queue->open());
  return queue;
}

absl::Status CardQueue::open() {
  Context& context = work_.context();
  const Driver& driver = context.driver();
  RONDO_RETURN_IF_ERROR(context.enter());
  RONDO_RETURN_IF_ERROR(context.check(driver.stream_create(&stream_, kStreamNonBlocking), "cuStreamCreate"));
  for (Entry& entry : ring_) {
    RONDO_RETURN_IF_ERROR(
        context.check(driver.event_create(&entry.event, kEventBlockingSync | kEventDisableTiming), "cuEventCreate"));
  }
  RONDO_ASSIGN_OR_RETURN(fault_, CardMemory::make(context.shared_from_this(), nullptr, sizeof(Fault)));
  RONDO_ASSIGN_OR_RETURN(reported_, PinnedMemory::make(context.shared_from_this(), kRing * sizeof(Fault)));
  RONDO_ASSIGN_OR_RETURN(thread_, start_thread("a queue of a CUDA card", [this] { serve(); }));
  return absl::OkStatus();
}

void CardQueue::stop() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    filled_.notify_all();
  }
  thread_.join();
}

CardQueue::~CardQueue() {
  stop();
  Context& context = work_.context();
  if (!context.enter().ok()) return;
  for (Entry& entry : ring_) {
    if (entry.event != nullptr) (void)context.driver().event_destroy(entry.event);
  }
  if (stream_ != nullptr) (void)context.driver().stream_destroy(stream_);
}

void CardQueue::observe(WorkObserver* observer) {
  const MutexLock lock(mutex_);
  observer_ = observer;
}

void CardQueue::find(const Point& point, std::uint64_t& best_value, StreamWork::Standing& best) {
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < count_; ++i) {
    const Entry& entry = ring_[(head_ + i) % kRing];
    if (entry.signal.timeline != point.timeline || entry.signal.value < point.value ||
        entry.signal.value >= best_value) {
      continue;
    }
    best_value = entry.signal.value;
    best.kind = entry.status.ok() ? StreamWork::Standing::Kind::kInFlight : StreamWork::Standing::Kind::kFailed;
    best.event = entry.event;
    best.error = entry.status;
  }
}

/// The place behind the last one, waiting until there is one.
CardQueue::Entry& CardQueue::free_entry() {
  const MutexLock lock(mutex_);
  while (count_ == kRing) freed_.wait(mutex_);
  Entry& entry = ring_[(head_ + count_) % kRing];
  entry.observer = observer_;
  return entry;
}

void CardQueue::enqueue(const HostWork& work, std::span<const Point> waits, Point signal) {
  if (waits.size() > HostQueue::kMaxWaits) {
    std::fprintf(stderr, "a piece of work with %zu waits; a queue takes %zu\n", waits.size(), HostQueue::kMaxWaits);
    std::abort();
  }
  const MutexLock order(order_);
  Entry& entry = free_entry();
  entry.work = work;
  std::copy(waits.begin(), waits.end(), entry.waits.begin());
  entry.wait_count = waits.size();
  entry.signal = signal;
  entry.enqueued = std::chrono::steady_clock::now();
  entry.turn = ++turns_;
  entry.status = absl::OkStatus();
  const auto place = static_cast<std::size_t>(&entry - ring_.data());
  const bool pageable = work.kind == HostWork::Kind::kCopy && (is_pageable(work.from) || is_pageable(work.to));
  entry.status = await_before(entry, pageable);
  const MutexLock submitting(work_.submit_lock());
  if (entry.status.ok()) entry.status = send(entry, place);
  const MutexLock lock(mutex_);
  ++count_;
  filled_.notify_one();
}

/// Waits on the host for what the card cannot wait for: other devices' timelines and the host's, and everything when
/// the driver copies in this thread (`host_order`).
absl::Status CardQueue::await_before(const Entry& entry, bool host_order) {
  for (std::size_t i = 0; i < entry.wait_count; ++i) {
    if (!host_order) {
      const MutexLock submitting(work_.submit_lock());
      if (work_.standing(entry.waits[i]).kind != StreamWork::Standing::Kind::kUnknown) continue;
    }
    Moment reached{};
    RONDO_RETURN_IF_ERROR(await(entry.waits[i], reached));
  }
  return absl::OkStatus();
}

absl::Status CardQueue::send(Entry& entry, std::size_t place) {
  using Kind = StreamWork::Standing::Kind;
  Context& context = work_.context();
  const Driver& driver = context.driver();
  RONDO_RETURN_IF_ERROR(context.lost());
  RONDO_RETURN_IF_ERROR(context.enter());
  for (std::size_t i = 0; i < entry.wait_count; ++i) {
    const StreamWork::Standing standing = work_.standing(entry.waits[i]);
    if (standing.kind == Kind::kFailed) return standing.error;
    if (standing.kind == Kind::kInFlight) {
      RONDO_RETURN_IF_ERROR(context.check(driver.stream_wait(stream_, standing.event, 0), "cuStreamWaitEvent"));
    }
  }
  if (entry.work.kind == HostWork::Kind::kCopy && entry.work.from.size != entry.work.to.size) {
    return internal_error("copy '{}' of {} bytes to {} bytes", entry.work.tag.name, entry.work.from.size,
                          entry.work.to.size);
  }
  // An attempt that has failed is dropped whole: nothing could see what this piece would do.
  if (is_poisoned(entry.signal)) return absl::CancelledError("the attempt had failed before");
  RONDO_RETURN_IF_ERROR(work_.submit(entry.work, {stream_, entry.turn, fault_->address(), &reported(place)}));
  return context.check(driver.event_record(entry.event, stream_), "cuEventRecord");
}

void CardQueue::serve() {
  const absl::Status entered = work_.context().enter();
  for (;;) {
    std::size_t place = 0;
    {
      const MutexLock lock(mutex_);
      while (count_ == 0 && !stopping_) filled_.wait(mutex_);
      if (count_ == 0) return;
      place = head_;
    }
    const Entry& entry = ring_[place];
    const absl::Status status = entered.ok() ? retire(entry, place) : entered;
    if (!status.ok() && entry.signal.timeline != nullptr) entry.signal.timeline->poison(status);
    const MutexLock lock(mutex_);
    head_ = (head_ + 1) % kRing;
    --count_;
    freed_.notify_one();
  }
}

absl::Status CardQueue::retire(const Entry& entry, std::size_t place) {
  RONDO_RETURN_IF_ERROR(entry.status);
  Context& context = work_.context();
  RONDO_RETURN_IF_ERROR(context.check(context.driver().event_synchronize(entry.event), "cuEventSynchronize"));
  work_.finished(stream_, entry.turn);
  // What this work waited for has ended on the card; its own queue may still have to say so, or may have found a fault.
  Moment ready = std::max(entry.enqueued, last_end_);
  for (std::size_t i = 0; i < entry.wait_count; ++i) RONDO_RETURN_IF_ERROR(await(entry.waits[i], ready));
  // Of other work the place holds what a turn before it has left.
  if (work_.reports(entry.work)) RONDO_RETURN_IF_ERROR(status_of(reported(place)));
  const Moment end = std::chrono::steady_clock::now();
  last_end_ = end;
  if (entry.observer != nullptr) entry.observer->on_work(entry.work.role, entry.work.tag, std::min(ready, end), end);
  if (auto* timeline = dynamic_cast<HostTimeline*>(entry.signal.timeline)) {
    timeline->signal_at(entry.signal.value, end);
  } else if (entry.signal.timeline != nullptr) {
    entry.signal.timeline->signal(entry.signal.value);
  }
  return absl::OkStatus();
}

}  // namespace rondo::devices::cuda
