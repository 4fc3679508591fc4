// A stream behind the contract's queues: work is sent to it at once, in the caller's thread, and retired by a thread of
// the queue that waits for the work's event, then signals or poisons.
//
// Between the card's own queues order is kept by the card: a wait for work that is still in flight becomes a wait of
// the stream for that work's event. A queue has a ring of kRing places with an event each; nothing allocates once it is
// made. Work that is known to fail when it is enqueued goes through the ring as well, so that a timeline is poisoned
// only after what was enqueued before it has been signalled.
//
// Lock order: a queue's order_, then StreamWork::submit_lock(), then the ring's mutex, then a timeline's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "context.h"
#include "rondo/base/mutex.h"
#include "rondo/devices/host_queue.h"
#include "turn.h"

namespace rondo::devices::cuda {

/// What a device's queues share.
class StreamWork {
 public:
  virtual ~StreamWork() = default;
  /// Sends work to the stream. Called under submit_lock(); does not allocate unless it fails.
  virtual absl::Status submit(const HostWork& work, const Turn& turn) = 0;
  /// Whether submit() leaves a report of this work in its turn. Called by the queue's thread.
  virtual bool reports(const HostWork& work) const = 0;
  /// The card has done what came to the stream up to this turn. Called by the queue's thread.
  virtual void finished(StreamHandle stream, std::uint64_t turn) = 0;
  virtual Context& context() = 0;
  /// Held while work is sent and while in-flight work is looked up: an event is not used anew in between.
  virtual Mutex& submit_lock() = 0;

  /// How a wait stands.
  struct Standing {
    enum class Kind : std::uint8_t { kReached, kInFlight, kFailed, kUnknown } kind = Kind::kUnknown;
    EventHandle event = nullptr;  // kInFlight
    absl::Status error;           // kFailed
  };
  /// Over all queues of the device. REQUIRES: submit_lock() is held.
  virtual Standing standing(const Point& point) = 0;
};

class CardQueue {
 public:
  static constexpr std::size_t kRing = 256;

  static absl::StatusOr<std::unique_ptr<CardQueue>> make(StreamWork& work);
  ~CardQueue();  // stops first
  CardQueue(const CardQueue&) = delete;
  CardQueue& operator=(const CardQueue&) = delete;

  /// Finishes what is enqueued and ends the thread; the stream stays.
  void stop();
  Queue& role(QueueRole role) { return roles_[static_cast<std::size_t>(role)]; }
  StreamHandle stream() const { return stream_; }
  void observe(WorkObserver* observer);
  /// Improves `best` by the work in flight here that signals `point` with the least value that covers it.
  void find(const Point& point, std::uint64_t& best_value, StreamWork::Standing& best);

 private:
  struct Entry {
    HostWork work;
    std::array<Point, HostQueue::kMaxWaits> waits;
    std::size_t wait_count = 0;
    Point signal;
    Moment enqueued;
    WorkObserver* observer = nullptr;
    EventHandle event = nullptr;  // this place's, recorded behind the work
    std::uint64_t turn = 0;
    absl::Status status;  // of enqueuing
  };

  class Role final : public Queue {
   public:
    Role(CardQueue& queue, QueueRole role) : queue_(queue), role_(role) {}
    void run(const Program& program, const Bindings& bindings, std::span<const Point> waits, Point signal,
             const WorkTag& tag) override;
    void copy(BufferView from, BufferView to, std::span<const Point> waits, Point signal, const WorkTag& tag) override;
    void clear(BufferView view, std::span<const Point> waits, Point signal, const WorkTag& tag) override;

   private:
    CardQueue& queue_;
    const QueueRole role_;
  };

  explicit CardQueue(StreamWork& work);
  absl::Status open();
  void enqueue(const HostWork& work, std::span<const Point> waits, Point signal);
  Entry& free_entry();
  absl::Status send(Entry& entry, std::size_t place);
  absl::Status await_before(const Entry& entry, bool host_order);
  void serve();
  absl::Status retire(const Entry& entry, std::size_t place);
  Fault& reported(std::size_t place) const { return reinterpret_cast<Fault*>(reported_->host())[place]; }

  StreamWork& work_;
  std::array<Role, 3> roles_;
  StreamHandle stream_ = nullptr;
  std::unique_ptr<CardMemory> fault_;       // what kernels write into: one place, whoever runs
  std::unique_ptr<PinnedMemory> reported_;  // a Fault a place of the ring
  Mutex order_;                             // whoever enqueues: the ring's order is the stream's
  std::uint64_t turns_ ABSL_GUARDED_BY(order_) = 0;
  Mutex mutex_;
  CondVar filled_;
  CondVar freed_;
  std::vector<Entry> ring_;  // the entry behind the last is the enqueuer's, the head is the thread's
  std::size_t head_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  WorkObserver* observer_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Moment last_end_{};  // of the thread
  std::thread thread_;
};

}  // namespace rondo::devices::cuda
