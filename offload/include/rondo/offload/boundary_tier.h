// Boundaries that main memory does not hold all at once: a few working buffers, and a place on disk for every boundary.
//
// A page is one boundary, numbered by the activation store. Its bytes are in a buffer, on disk, or in both. Who fills
// or reads a page pins its buffer meanwhile; what is not pinned may be written to disk and its buffer given to another
// page. Every page says when it will be read next (ReadOrder), from the schedule: buffers are taken from the pages
// that will be read last, and pages on disk are read ahead from the one that will be read first. The order decides how
// much is moved, never what is read.
//
// No deadlock: a caller waits for a buffer only while all of them are pinned or being moved. Every worker pins a
// bounded number at a time, and there are at least as many buffers as all workers may pin together
// (partition::least_boundary_buffers), so that one of them is always free or on its way to be. Thread-safe; the threads
// within are its own. Nothing allocates after make().
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/mutex.h"
#include "rondo/devices/device.h"
#include "rondo/offload/scratch_file.h"

namespace rondo::offload {

/// When a page is read: numbers from 1 on that rise with the order of reading, over the whole run.
struct ReadOrder {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  std::array<std::uint64_t, 2> reads = {kNever, kNever};  // rising
};

struct BoundaryTierOptions {
  std::filesystem::path folder;
  std::size_t pages = 0;
  Bytes page_bytes = 0;
  std::uint32_t buffers = 0;
  std::uint32_t requests = 4;  // in flight at most: a thread each
  bool phantom = false;        // no memory and no file, but their time
  double bandwidth = 0;        // of the disk that is stood for, bytes per second; 0: it takes no time
};

class BoundaryTier {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// Errors: those of ScratchFile::make; ResourceExhausted for the buffers.
  static absl::StatusOr<std::unique_ptr<BoundaryTier>> make(const BoundaryTierOptions& options);
  ~BoundaryTier();

  /// A pinned buffer to fill; what the page held before is gone. A page that was taken and not filled keeps its buffer.
  /// Errors of take() and hold(): DeadlineExceeded; the first of any request or of fail(), which stays.
  absl::Status take(std::size_t page, Bytes size, const ReadOrder& order, Deadline deadline);
  /// The page's bytes are to be kept; not pinned any more.
  void filled(std::size_t page);
  /// Brings a filled page to memory and pins it: once for every call.
  absl::Status hold(std::size_t page, Deadline deadline);
  /// What hold() gave is not read any more.
  void let_go(std::size_t page);
  /// The page's bytes are needed no more. A buffer that is still pinned belongs to no page from then on and is lost.
  void drop(std::size_t page);
  /// That of all buffers.
  devices::BufferView memory() const { return memory_.view(); }
  /// REQUIRES: the page is pinned.
  devices::BufferView view(std::size_t page) const;

  /// Ends all waits, now and later, with `error`.
  void fail(const absl::Status& error);
  /// No page holds anything, no buffer is pinned. REQUIRES: no other call under way.
  void reset();
  /// Ends the threads and removes the file; after fail(). The memory stays.
  void close();

  struct Stats {
    Bytes written = 0;
    Bytes read = 0;
    std::uint64_t read_late = 0;  // pages that were waited for before their reading had begun
  };
  Stats stats() const;
  /// Null where there is none: phantom, or closed.
  const ScratchFile* file() const { return file_.get(); }

 private:
  static constexpr std::int32_t kNone = -1;
  struct Page {
    std::int32_t buffer = kNone;
    bool on_disk = false;
    bool moving = false;       // a request for it is in flight
    std::uint32_t wanted = 0;  // callers of hold() that wait for it
    std::uint8_t reads = 0;    // of its order that are over
    Bytes size = 0;            // whole blocks
    ReadOrder order;
  };
  struct Frame {
    std::int32_t page = kNone;
    std::uint32_t pins = 0;
    bool filled = false;
    bool loading = false;
    bool writing = false;
  };
  struct Work {
    std::size_t page = 0;
    std::size_t frame = 0;
    Bytes size = 0;
    bool writes = false;
  };
  explicit BoundaryTier(const BoundaryTierOptions& options) : options_(options) {}
  devices::BufferView memory_of(std::size_t frame) const;
  std::uint64_t next_read(const Page& page) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool is_free(const Frame& frame) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool is_idle(const Frame& frame) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool is_clean(const Frame& frame) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void detach(Page& page) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// A buffer for another page: a free one, else of the pages that are on disk as well the one's that is read last, if
  /// that is after `later_than`. kNone when there is none.
  std::int32_t find_frame(std::uint64_t later_than) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void give(std::int32_t frame, std::size_t page) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Buffers that find_frame() could give to a page that is read at `key`.
  std::size_t spare(std::uint64_t key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool take_work(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool load(std::uint64_t later_than, std::size_t page, Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool load_wanted(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool write_behind(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool read_ahead(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status carry_out(const Work& work);
  void finish(const Work& work, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void work_loop();

  const BoundaryTierOptions options_;
  devices::Buffer memory_;
  Bytes first_ = 0;  // of memory_ where the buffers begin
  std::unique_ptr<ScratchFile> file_;
  std::size_t kept_spare_ = 0;  // buffers that are made free before anybody asks

  mutable Mutex mutex_;
  CondVar changed_;  // for callers
  CondVar work_;     // for the threads
  std::vector<Page> pages_ ABSL_GUARDED_BY(mutex_);
  std::vector<Frame> frames_ ABSL_GUARDED_BY(mutex_);  // their memory belongs to whoever their state says
  std::uint32_t takers_ ABSL_GUARDED_BY(mutex_) = 0;   // that wait for a buffer
  Deadline lane_free_ ABSL_GUARDED_BY(mutex_) = {};    // of the disk that is stood for
  Stats stats_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace rondo::offload
