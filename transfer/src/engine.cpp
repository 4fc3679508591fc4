// One thread a direction takes the most urgent transfer's next chunk, again and again; two chunks are under way at a
// time, so that the link does not idle between them.
#include "rondo/transfer/engine.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "checksum.h"
#include "rondo/base/mutex.h"
#include "rondo/base/status.h"
#include "rondo/base/thread.h"
#include "rondo/devices/chunk.h"
#include "rondo/devices/thread_pool.h"

namespace rondo::transfer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kChunksUnderWay = 2;
constexpr Clock::time_point kNever = Clock::time_point::max();
constexpr std::uint64_t kRefused = ~std::uint64_t{0};  // ticket of a transfer that was not taken

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

const char* name_of(Urgency urgency) {
  constexpr const char* kNames[] = {"activation", "weight", "gradient", "background"};
  return kNames[static_cast<std::size_t>(urgency)];
}

double LinkStats::bandwidth() const {
  double bytes = 0;
  double seconds = 0;
  for (const Class& entry : classes) {
    bytes += static_cast<double>(entry.bytes);
    seconds += entry.busy_seconds;
  }
  return seconds > 0 ? bytes / seconds : 0;
}

class TransferEngine::Link {
 public:
  Link(devices::Device& device, Direction direction, const EngineOptions& options)
      : device_(device),
        direction_(direction),
        options_(options),
        chunk_bytes_(devices::staging_piece(options.chunk_bytes, options.longest[static_cast<std::size_t>(direction)])),
        jobs_(options.capacity) {
    free_.reserve(options.capacity);
    for (std::uint32_t i = 0; i < options.capacity; ++i) free_.push_back(options.capacity - 1 - i);
    for (auto& queue : waiting_) queue.reserve(options.capacity);
  }

  static bool stages(Direction direction, const EngineOptions& options) {
    return options.staging || (options.staging_down && direction == Direction::kDown);
  }

  static std::uint32_t staging_pieces(Direction direction, const EngineOptions& options) {
    return (options.verify ? 1U : 0U) + (stages(direction, options) ? static_cast<std::uint32_t>(kChunksUnderWay) : 0U);
  }

  absl::Status start() {
    RONDO_ASSIGN_OR_RETURN(timeline_, device_.timeline());
    if (options_.verify && device_.caps().does_arithmetic) {
      RONDO_ASSIGN_OR_RETURN(reading_, device_.allocate(chunk_bytes_, devices::MemoryKind::kPinned));
    }
    if (stages(direction_, options_)) {
      for (Chunk& chunk : chunks_) {
        RONDO_ASSIGN_OR_RETURN(chunk.staging, device_.allocate(chunk_bytes_, devices::MemoryKind::kPinned));
      }
      if (options_.copiers > 1) copiers_.emplace(options_.copiers);
    }
    RONDO_ASSIGN_OR_RETURN(thread_, start_thread("a link's transfers", [this] { work(); }));
    return absl::OkStatus();
  }

  ~Link() { join(); }

  void join() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      work_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

  Ticket submit(const Transfer& transfer) {
    const MutexLock lock(mutex_);
    while (free_.empty() && failure_.ok()) changed_.wait(mutex_);
    if (!failure_.ok()) return {kRefused};
    const std::uint32_t index = free_.back();
    free_.pop_back();
    Job& job = jobs_[index];
    job.transfer = transfer;
    job.issued = 0;
    job.landed = 0;
    job.enqueued = 0;
    job.status = absl::OkStatus();
    job.number = ++last_number_ * options_.capacity + index;
    job.submitted = Clock::now();
    job.begun = false;
    const std::uint64_t number = job.number;
    const bool is_idle = std::ranges::all_of(waiting_, [](const auto& queue) { return queue.empty(); });
    waiting_[static_cast<std::size_t>(transfer.urgency)].push_back(index);
    // Of an idle link the caller can begin at once, unless the host has to copy first, or the thread enqueues copies of
    // its own in between, to verify.
    const bool by_thread = options_.verify || (options_.staging && direction_ == Direction::kUp);
    if (is_idle && !by_thread && may_issue()) issue_next();
    work_.notify_one();
    return {number};
  }

  absl::Status wait(Ticket ticket, Clock::time_point deadline) {
    if (ticket.number == 0) return absl::OkStatus();
    const MutexLock lock(mutex_);
    if (ticket.number == kRefused) return failure_;
    const Job& job = jobs_[ticket.number % options_.capacity];
    const bool in_time =
        wait_while([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return job.number == ticket.number; }, deadline);
    if (!failure_.ok()) return failure_;
    // Not the job's own status: its place may serve another transfer by now.
    return in_time ? broken_ : not_in_time();
  }

  absl::StatusOr<devices::Point> wait_until_enqueued(Ticket ticket, Clock::time_point deadline) {
    if (ticket.number == 0) return devices::Point{};
    const MutexLock lock(mutex_);
    if (ticket.number == kRefused) return failure_;
    const Job& job = jobs_[ticket.number % options_.capacity];
    const bool in_time = wait_while(
        [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return job.number == ticket.number && job.enqueued == 0; },
        deadline);
    if (!failure_.ok()) return failure_;
    if (!in_time) return not_in_time();
    if (job.number == ticket.number) return devices::Point{timeline_.get(), job.enqueued};
    if (!broken_.ok()) return broken_;
    return devices::Point{};
  }

  void fail(const absl::Status& why) {
    const MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = why;
    cancelling_ = true;
    work_.notify_one();
    changed_.notify_all();
    timeline_->poison(why);
    while (unloading_) changed_.wait(mutex_);
  }

  LinkProgress progress() const {
    const MutexLock lock(mutex_);
    return {landed_chunks_, under_way_ > 0};
  }

  LinkStats stats() const {
    const MutexLock lock(mutex_);
    return stats_;
  }

  Bytes staging_bytes() const {
    Bytes bytes = reading_.size();
    for (const Chunk& chunk : chunks_) bytes += chunk.staging.size();
    return bytes;
  }

 private:
  struct Job {
    Transfer transfer;
    std::uint64_t number = 0;  // 0: not in use
    Bytes issued = 0;
    Bytes landed = 0;
    std::uint64_t enqueued = 0;  // value of the timeline once the device has been given all of it
    bool begun = false;
    absl::Status status;
    Clock::time_point submitted;
  };
  struct Chunk {
    std::uint32_t job = 0;
    Bytes offset = 0;
    Bytes size = 0;
    std::uint64_t value = 0;  // of the timeline when it has landed
    Clock::time_point begun;
    devices::Buffer staging;
  };

  /// False when the deadline passed first. Ends early when the device is lost.
  template <typename Condition>
  bool wait_while(Condition condition, Clock::time_point deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (condition() && failure_.ok()) {
      if (deadline == kNever) {
        changed_.wait(mutex_);
      } else if (!changed_.wait_until(mutex_, deadline) && condition() && failure_.ok()) {
        return false;
      }
    }
    return true;
  }
  static absl::Status not_in_time() { return absl::DeadlineExceededError("a transfer did not end in time"); }

  void work() {
    const MutexLock lock(mutex_);
    for (;;) {
      if (stopping_ || cancelling_) cancel_waiting();
      if (may_issue() && issue_next()) continue;
      if (under_way_ > (issuing_ ? 1U : 0U)) {  // the device has the oldest
        land(chunks_[oldest_]);
        continue;
      }
      if (stopping_ && under_way_ == 0) return;
      work_.wait(mutex_);
    }
  }

  bool may_issue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !issuing_ && under_way_ < kChunksUnderWay && !stopping_ && !cancelling_;
  }

  /// Gives the device the next chunk of the most urgent transfer, if any waits. The lock is open meanwhile, but for one
  /// thread at a time: the timeline's values must come to the queue in their order. REQUIRES: may_issue().
  bool issue_next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto queue = std::ranges::find_if(waiting_, [](const auto& one) { return !one.empty(); });
    if (queue == waiting_.end()) return false;
    Job& job = jobs_[queue->front()];
    Chunk& chunk = chunks_[(oldest_ + under_way_) % kChunksUnderWay];
    chunk.job = queue->front();
    chunk.offset = job.issued;
    chunk.size = std::min(chunk_bytes_, job.transfer.from.size - job.issued);
    chunk.value = ++last_value_;
    chunk.begun = Clock::now();
    job.issued += chunk.size;
    const bool is_last = job.issued == job.transfer.from.size;
    ++under_way_;
    if (!std::exchange(job.begun, true)) {
      auto& entry = stats_.classes[static_cast<std::size_t>(job.transfer.urgency)];
      entry.longest_wait_seconds = std::max(entry.longest_wait_seconds, seconds_between(job.submitted, chunk.begun));
    }
    if (is_last) queue->erase(queue->begin());
    issuing_ = true;
    mutex_.unlock();
    issue(chunk);
    mutex_.lock();
    issuing_ = false;
    if (is_last && !options_.verify) {  // else it may have to be sent again
      job.enqueued = chunk.value;
      changed_.notify_all();
    }
    return true;
  }

  void cancel_waiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (auto& queue : waiting_) {
      for (const std::uint32_t index : queue) {
        Job& job = jobs_[index];
        job.status = absl::CancelledError("the transfer was cancelled");
        if (job.landed == job.issued)
          finish(job, index);
        else
          job.transfer.from.size = job.issued;  // ends with the chunks under way
      }
      queue.clear();
    }
    cancelling_ = false;
  }

  void issue(Chunk& chunk) {
    const Transfer& transfer = jobs_[chunk.job].transfer;
    const devices::BufferView from = transfer.from.part(chunk.offset, chunk.size);
    const devices::BufferView to = transfer.to.part(chunk.offset, chunk.size);
    if (!chunk.staging) return copy(from, to, chunk.value, transfer.tag);
    const devices::BufferView pinned = chunk.staging.view().part(0, chunk.size);
    if (direction_ == Direction::kDown) return copy(from, pinned, chunk.value, transfer.tag);
    copy_on_host(pinned.host(), from.host(), chunk.size);
    copy(pinned, to, chunk.value, transfer.tag);
  }

  /// Either may be null: memory that does not exist.
  void copy_on_host(std::byte* to, const std::byte* from, Bytes size) {
    constexpr Bytes kPiece = 512_KiB;
    if (to == nullptr || from == nullptr) return;
    if (!copiers_ || size <= kPiece) {
      std::memcpy(to, from, size);
      return;
    }
    copiers_->parallel_for(static_cast<std::int64_t>((size + kPiece - 1) / kPiece),
                           [&](std::int64_t piece, std::uint32_t) {
                             const Bytes at = static_cast<Bytes>(piece) * kPiece;
                             std::memcpy(to + at, from + at, std::min(kPiece, size - at));
                           });
  }

  void copy(devices::BufferView from, devices::BufferView to, std::uint64_t value, const devices::WorkTag& tag) {
    const devices::QueueRole role = direction_ == Direction::kUp ? devices::QueueRole::kUp : devices::QueueRole::kDown;
    device_.queue(role).copy(from, to, {}, {timeline_.get(), value}, tag);
  }

  std::uint64_t next_value() {
    const MutexLock lock(mutex_);
    return ++last_value_;
  }

  /// Of what lies there; 0 where there is nothing to read.
  absl::StatusOr<std::uint64_t> checksum_at(devices::BufferView view, const devices::WorkTag& tag) {
    if (view.host() != nullptr) return checksum({view.host(), view.size});
    if (!reading_) return 0;
    const devices::BufferView read = reading_.view().part(0, view.size);
    const std::uint64_t value = next_value();
    copy(view, read, value, tag);
    RONDO_RETURN_IF_ERROR(timeline_->wait(value, kNever));
    return checksum({read.host(), read.size});
  }

  /// Whether both ends of a chunk hold the same. Its source stays as it is until the transfer has ended.
  absl::StatusOr<bool> arrived_whole(const Chunk& chunk) {
    const Transfer& transfer = jobs_[chunk.job].transfer;
    const bool staged = chunk.staging && direction_ == Direction::kDown;
    const devices::BufferView to =
        staged ? chunk.staging.view().part(0, chunk.size) : transfer.to.part(chunk.offset, chunk.size);
    RONDO_ASSIGN_OR_RETURN(const std::uint64_t sent,
                           checksum_at(transfer.from.part(chunk.offset, chunk.size), transfer.tag));
    RONDO_ASSIGN_OR_RETURN(const std::uint64_t come, checksum_at(to, transfer.tag));
    return sent == come;
  }

  /// Waits for a chunk; with `verify` sends it once more when it arrived changed.
  absl::Status await(Chunk& chunk) {
    RONDO_RETURN_IF_ERROR(timeline_->wait(chunk.value, kNever));
    if (!options_.verify) return absl::OkStatus();
    RONDO_ASSIGN_OR_RETURN(bool whole, arrived_whole(chunk));
    if (whole) return absl::OkStatus();
    {
      const MutexLock lock(mutex_);
      ++stats_.repeated_chunks;
    }
    chunk.value = next_value();
    issue(chunk);
    RONDO_RETURN_IF_ERROR(timeline_->wait(chunk.value, kNever));
    RONDO_ASSIGN_OR_RETURN(whole, arrived_whole(chunk));
    if (whole) return absl::OkStatus();
    return absl::DataLossError(
        fmt::format("'{}' of {} bytes arrived changed, twice", jobs_[chunk.job].transfer.tag.name, chunk.size));
  }

  /// Brings a staged download to its place, unless the device was lost meanwhile.
  void unload(const Chunk& chunk) {
    {
      const MutexLock lock(mutex_);
      if (!failure_.ok()) return;
      unloading_ = true;
    }
    const devices::BufferView to = jobs_[chunk.job].transfer.to.part(chunk.offset, chunk.size);
    copy_on_host(to.host(), chunk.staging.view().host(), chunk.size);
    const MutexLock lock(mutex_);
    unloading_ = false;
    if (!failure_.ok()) changed_.notify_all();
  }

  void land(Chunk& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    mutex_.unlock();
    const absl::Status status = await(chunk);
    if (status.ok() && chunk.staging && direction_ == Direction::kDown) unload(chunk);
    const Clock::time_point now = Clock::now();
    mutex_.lock();
    oldest_ = (oldest_ + 1) % kChunksUnderWay;
    --under_way_;
    ++landed_chunks_;
    Job& job = jobs_[chunk.job];
    auto& entry = stats_.classes[static_cast<std::size_t>(job.transfer.urgency)];
    entry.bytes += chunk.size;
    entry.busy_seconds += seconds_between(std::max(chunk.begun, last_landed_), now);
    last_landed_ = now;
    if (!status.ok() && job.status.ok()) job.status = status;
    if (!status.ok() && broken_.ok()) broken_ = status;
    job.landed += chunk.size;
    if (job.landed == job.transfer.from.size) {
      ++entry.transfers;
      finish(job, chunk.job);
    }
  }

  void finish(Job& job, std::uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (job.transfer.listener != nullptr) {
      job.transfer.listener->on_transfer(job.transfer.cookie, failure_.ok() ? job.status : failure_);
    }
    job.number = 0;
    free_.push_back(index);
    changed_.notify_all();
  }

  devices::Device& device_;
  const Direction direction_;
  const EngineOptions options_;
  const Bytes chunk_bytes_;
  std::unique_ptr<devices::Timeline> timeline_;
  std::optional<devices::ThreadPool> copiers_;  // none: the link's own thread
  devices::Buffer reading_;  // only the thread's: for checksums of memory that the host cannot address

  mutable Mutex mutex_;
  CondVar work_;     // for the thread: something waits, or it is to end
  CondVar changed_;  // for callers
  // A job's `transfer` is written under the mutex before its index is queued and read by who gives a chunk of it to the
  // device or lands it; the rest is guarded.
  std::vector<Job> jobs_;
  // A ring. Of those under way: who gives one to the device or lands it reads it without the mutex.
  std::array<Chunk, kChunksUnderWay> chunks_;
  std::vector<std::uint32_t> free_ ABSL_GUARDED_BY(mutex_);
  std::array<std::vector<std::uint32_t>, kUrgencies> waiting_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelling_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);     // what the first transfer that failed met; no later one is trusted
  bool unloading_ ABSL_GUARDED_BY(mutex_) = false;  // a staged download is on its way to its place
  bool issuing_ ABSL_GUARDED_BY(mutex_) = false;    // a thread is giving the device a chunk
  std::uint64_t last_value_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t oldest_ ABSL_GUARDED_BY(mutex_) = 0;  // of the chunks under way
  std::size_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t landed_chunks_ ABSL_GUARDED_BY(mutex_) = 0;
  LinkStats stats_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point last_landed_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<TransferEngine>> TransferEngine::make(devices::Device& device,
                                                                     const EngineOptions& options) {
  auto engine = std::unique_ptr<TransferEngine>(new TransferEngine());
  for (const Direction direction : {Direction::kUp, Direction::kDown}) {
    auto& link = engine->links_[static_cast<std::size_t>(direction)];
    link = std::make_unique<Link>(device, direction, options);
    RONDO_RETURN_IF_ERROR(link->start());
  }
  return engine;
}

std::uint32_t TransferEngine::staging_pieces(Direction direction, const EngineOptions& options) {
  return Link::staging_pieces(direction, options);
}

TransferEngine::~TransferEngine() = default;

Ticket TransferEngine::submit(Direction direction, const Transfer& transfer) {
  return links_[static_cast<std::size_t>(direction)]->submit(transfer);
}

absl::Status TransferEngine::wait(Direction direction, Ticket ticket, std::chrono::steady_clock::time_point deadline) {
  return links_[static_cast<std::size_t>(direction)]->wait(ticket, deadline);
}

absl::StatusOr<devices::Point> TransferEngine::wait_until_enqueued(Direction direction, Ticket ticket,
                                                                   std::chrono::steady_clock::time_point deadline) {
  return links_[static_cast<std::size_t>(direction)]->wait_until_enqueued(ticket, deadline);
}

void TransferEngine::fail(const absl::Status& why) {
  for (const auto& link : links_) link->fail(why);
}

void TransferEngine::join() {
  for (const auto& link : links_) link->join();
}

LinkProgress TransferEngine::progress(Direction direction) const {
  return links_[static_cast<std::size_t>(direction)]->progress();
}

LinkStats TransferEngine::stats(Direction direction) const {
  return links_[static_cast<std::size_t>(direction)]->stats();
}

Bytes TransferEngine::staging_bytes() const { return links_[0]->staging_bytes() + links_[1]->staging_bytes(); }

}  // namespace rondo::transfer
