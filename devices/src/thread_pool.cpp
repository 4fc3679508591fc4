// The host's compute threads: a caller and its helpers draw task numbers from one counter.
//
// One atomic word holds the number of the job, whether it is open, and how many helpers are inside. A helper enters
// only an open job and the caller returns only when the job is closed and empty, so that a helper that wakes late can
// never touch the next job's counter or a context that is gone.
#include "rondo/devices/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "rondo/base/mutex.h"
#include "rondo/base/thread.h"

namespace rondo::devices {
namespace {

constexpr std::uint64_t kOpen = 1ULL << 15U;
constexpr std::uint64_t kInsideMask = kOpen - 1;
constexpr std::uint32_t kJobShift = 16;
constexpr std::uint32_t kMaxThreads = 1024;
// Kernels of one program follow each other within microseconds: a short spin saves two context switches a kernel.
constexpr std::chrono::microseconds kSpin{30};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// True as soon as `condition` holds, false after kSpin.
template <typename Condition>
bool spin_until(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return condition();
}

}  // namespace

std::uint32_t usable_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set)));
  return std::max(1U, std::thread::hardware_concurrency());
}

class ThreadPool::Impl {
 public:
  explicit Impl(std::uint32_t threads) {
    const std::uint32_t wanted = std::clamp(threads, 1U, kMaxThreads);
    helpers_.reserve(wanted - 1);
    for (; threads_ < wanted; ++threads_) {
      // No more are to be had: who is there does all of the work, with the same result.
      absl::StatusOr<std::thread> helper =
          start_thread("the host's arithmetic", [this, member = threads_] { help(member); });
      if (!helper.ok()) break;
      helpers_.push_back(*std::move(helper));
    }
  }

  ~Impl() {
    stopping_.store(true, std::memory_order_seq_cst);
    {
      const MutexLock lock(mutex_);
      job_published_.notify_all();
    }
    for (std::thread& helper : helpers_) helper.join();
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::uint32_t threads() const { return threads_; }

  void run(std::int64_t tasks, Task task, void* context) {
    const MutexLock turn(turn_);
    if (threads_ == 1 || tasks <= 1) {
      for (std::int64_t i = 0; i < tasks; ++i) task(context, i, 0);
      return;
    }
    publish(tasks, task, context);
    draw_tasks(0);
    close_and_wait();
  }

 private:
  // The job's fields are plain: they are written while no helper is inside, before the word that opens the job is
  // stored, and read only by helpers that have entered by reading that word.
  void publish(std::int64_t tasks, Task task, void* context) {
    tasks_ = tasks;
    task_ = task;
    context_ = context;
    next_.store(0, std::memory_order_relaxed);
    const std::uint64_t job = (word_.load(std::memory_order_relaxed) >> kJobShift) + 1;
    // Sequentially consistent with sleepers_: either a helper that goes to sleep sees the new job, or we see the
    // sleeper.
    word_.store((job << kJobShift) | kOpen, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      const MutexLock lock(mutex_);
      job_published_.notify_all();
    }
  }

  void draw_tasks(std::uint32_t member) {
    // Relaxed: the counter only deals out numbers; what tasks write is published when a helper leaves.
    for (std::int64_t i = next_.fetch_add(1, std::memory_order_relaxed); i < tasks_;
         i = next_.fetch_add(1, std::memory_order_relaxed)) {
      task_(context_, i, member);
    }
  }

  void close_and_wait() {
    word_.fetch_and(~kOpen, std::memory_order_acq_rel);
    // Acquire: pairs with the release of every leaving helper, so that its writes are visible here.
    const auto empty = [this] { return (word_.load(std::memory_order_acquire) & kInsideMask) == 0; };
    if (spin_until(empty)) return;
    const MutexLock lock(mutex_);
    while (!empty()) job_left_.wait(mutex_);
  }

  void help(std::uint32_t member) {
    std::uint64_t seen = 0;  // the last job that this helper has been through
    while (await_job(seen)) {
      std::uint64_t word = word_.load(std::memory_order_acquire);
      seen = word >> kJobShift;
      if (!enter(word)) continue;
      draw_tasks(member);
      const std::uint64_t left = word_.fetch_sub(1, std::memory_order_acq_rel) - 1;
      if ((left & (kOpen | kInsideMask)) == 0) {
        // The caller checks under the mutex before it sleeps, so it cannot miss this.
        const MutexLock lock(mutex_);
        job_left_.notify_one();
      }
    }
  }

  /// Enters the job of `word` while it is open; false when it closed first.
  bool enter(std::uint64_t word) {
    const std::uint64_t job = word >> kJobShift;
    while ((word & kOpen) != 0 && word >> kJobShift == job) {
      if (word_.compare_exchange_weak(word, word + 1, std::memory_order_acquire, std::memory_order_acquire))
        return true;
    }
    return false;
  }

  /// Spins, then sleeps, until there is a job other than `seen`. False: the pool ends.
  bool await_job(std::uint64_t seen) {
    const auto news = [this, seen] {
      return word_.load(std::memory_order_seq_cst) >> kJobShift != seen || stopping_.load(std::memory_order_seq_cst);
    };
    if (!spin_until(news)) {
      const MutexLock lock(mutex_);
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      while (!news()) job_published_.wait(mutex_);
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    }
    return !stopping_.load(std::memory_order_seq_cst);
  }

  std::uint32_t threads_ = 1;  // the caller of run() and the helpers; the constructor alone sets it
  Mutex turn_;                 // held by the caller for the whole job; taken before mutex_
  Mutex mutex_;                // for the two conditions only
  CondVar job_published_;
  CondVar job_left_;
  alignas(64) std::atomic<std::uint64_t> word_{0};  // job << 16 | kOpen | helpers inside
  alignas(64) std::atomic<std::int64_t> next_{0};   // the next task; see draw_tasks for the ordering
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::int64_t tasks_ = 0;
  Task task_ = nullptr;
  void* context_ = nullptr;
  std::vector<std::thread> helpers_;  // last: they use everything above
};

ThreadPool::ThreadPool(std::uint32_t threads)
    : impl_(std::make_unique<Impl>(threads == 0 ? usable_threads() : threads)) {}
ThreadPool::~ThreadPool() = default;
std::uint32_t ThreadPool::threads() const { return impl_->threads(); }
void ThreadPool::run(std::int64_t tasks, Task task, void* context) { impl_->run(tasks, task, context); }

}  // namespace rondo::devices
