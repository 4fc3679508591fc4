// The working buffers of boundaries on disk: who gets which, and the threads that write behind and read ahead.
#include "rondo/offload/boundary_tier.h"

#include <algorithm>

#include "rondo/base/status.h"
#include "rondo/base/thread.h"

namespace rondo::offload {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostSpare = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<BoundaryTier>> BoundaryTier::make(const BoundaryTierOptions& options) {
  auto tier = std::unique_ptr<BoundaryTier>(new BoundaryTier(options));
  const Bytes memory = disk_buffers_bytes(options.buffers, options.page_bytes);
  if (options.phantom) {
    tier->memory_ = devices::phantom_host(memory);
  } else {
    RONDO_ASSIGN_OR_RETURN(tier->file_,
                           ScratchFile::make(options.folder, options.pages * whole_disk_blocks(options.page_bytes)));
    RONDO_ASSIGN_OR_RETURN(tier->memory_, devices::allocate_host(memory, "boundaries"));
    const auto address = reinterpret_cast<std::uintptr_t>(tier->memory_.view().host());
    tier->first_ = round_up(address, kDiskBlock) - address;
  }
  tier->kept_spare_ = std::min<std::size_t>(kMostSpare, options.buffers / 4);
  {
    const MutexLock lock(tier->mutex_);
    tier->pages_.resize(options.pages);
    tier->frames_.resize(options.buffers);
  }
  for (std::uint32_t i = 0; i < options.requests; ++i) {
    RONDO_ASSIGN_OR_RETURN(std::thread thread,
                           start_thread("boundaries on disk", [&tier = *tier] { tier.work_loop(); }));
    tier->threads_.push_back(std::move(thread));
  }
  return tier;
}

BoundaryTier::~BoundaryTier() { close(); }

void BoundaryTier::close() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    work_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  file_.reset();
}

devices::BufferView BoundaryTier::memory_of(std::size_t frame) const {
  return memory_.view().part(first_ + frame * whole_disk_blocks(options_.page_bytes),
                             whole_disk_blocks(options_.page_bytes));
}

std::uint64_t BoundaryTier::next_read(const Page& page) const {
  if (page.wanted > 0) return 0;
  return page.reads < page.order.reads.size() ? page.order.reads[page.reads] : ReadOrder::kNever;
}

bool BoundaryTier::is_free(const Frame& frame) const {
  return frame.page == kNone && frame.pins == 0 && !frame.loading && !frame.writing;
}

/// Of a page whose bytes are there and that nobody uses now.
bool BoundaryTier::is_idle(const Frame& frame) const {
  return frame.page != kNone && frame.pins == 0 && frame.filled && !frame.loading && !frame.writing &&
         pages_[static_cast<std::size_t>(frame.page)].wanted == 0;
}

bool BoundaryTier::is_clean(const Frame& frame) const {
  return is_idle(frame) && pages_[static_cast<std::size_t>(frame.page)].on_disk;
}

std::int32_t BoundaryTier::find_frame(std::uint64_t later_than) {
  std::int32_t best = kNone;
  std::uint64_t last = later_than;
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    if (is_free(frames_[i])) return static_cast<std::int32_t>(i);
    if (!is_clean(frames_[i])) continue;
    const std::uint64_t key = next_read(pages_[static_cast<std::size_t>(frames_[i].page)]);
    if (key <= last) continue;
    best = static_cast<std::int32_t>(i);
    last = key;
  }
  return best;
}

std::size_t BoundaryTier::spare(std::uint64_t key) const {
  std::size_t count = 0;
  for (const Frame& frame : frames_) {
    const bool later = is_clean(frame) && next_read(pages_[static_cast<std::size_t>(frame.page)]) > key;
    if (is_free(frame) || later) ++count;
  }
  return count;
}

void BoundaryTier::give(std::int32_t frame, std::size_t page) {
  Frame& given = frames_[static_cast<std::size_t>(frame)];
  if (given.page != kNone) pages_[static_cast<std::size_t>(given.page)].buffer = kNone;
  given = {};
  given.page = static_cast<std::int32_t>(page);
  pages_[page].buffer = frame;
}

absl::Status BoundaryTier::take(std::size_t page, Bytes size, const ReadOrder& order, Deadline deadline) {
  const MutexLock lock(mutex_);
  if (!error_.ok()) return error_;
  Page& taken = pages_[page];
  taken.order = order;
  taken.reads = 0;
  taken.size = whole_disk_blocks(std::min(size, options_.page_bytes));
  taken.on_disk = false;
  if (taken.buffer != kNone && !frames_[static_cast<std::size_t>(taken.buffer)].filled) return absl::OkStatus();
  detach(taken);
  for (;;) {
    if (!error_.ok()) return error_;
    const std::int32_t frame = find_frame(0);
    if (frame != kNone) {
      give(frame, page);
      frames_[static_cast<std::size_t>(frame)].pins = 1;
      work_.notify_one();
      return absl::OkStatus();
    }
    ++takers_;
    work_.notify_all();
    const bool in_time = changed_.wait_until(mutex_, deadline);
    --takers_;
    if (!in_time) return absl::DeadlineExceededError("boundaries: no working buffer became free in time");
  }
}

void BoundaryTier::filled(std::size_t page) {
  const MutexLock lock(mutex_);
  Frame& frame = frames_[static_cast<std::size_t>(pages_[page].buffer)];
  frame.filled = true;
  frame.pins = 0;
  work_.notify_one();
  changed_.notify_all();
}

absl::Status BoundaryTier::hold(std::size_t page, Deadline deadline) {
  const MutexLock lock(mutex_);
  Page& wanted = pages_[page];
  if (wanted.buffer == kNone && !wanted.moving) ++stats_.read_late;
  bool in_time = true;
  for (;;) {
    if (!error_.ok()) return error_;
    if (wanted.buffer != kNone && !frames_[static_cast<std::size_t>(wanted.buffer)].loading) break;
    if (!in_time) return absl::DeadlineExceededError("boundaries: the disk has not brought one in time");
    ++wanted.wanted;
    work_.notify_all();
    in_time = changed_.wait_until(mutex_, deadline);
    --wanted.wanted;
  }
  ++frames_[static_cast<std::size_t>(wanted.buffer)].pins;
  return absl::OkStatus();
}

void BoundaryTier::let_go(std::size_t page) {
  const MutexLock lock(mutex_);
  Page& held = pages_[page];
  if (held.buffer == kNone || frames_[static_cast<std::size_t>(held.buffer)].pins == 0) return;
  --frames_[static_cast<std::size_t>(held.buffer)].pins;
  if (held.reads < held.order.reads.size()) ++held.reads;
  work_.notify_one();
  changed_.notify_all();
}

/// A buffer that is being moved is let go of by its request, one that is pinned by nobody.
void BoundaryTier::detach(Page& page) {
  if (page.buffer == kNone) return;
  Frame& frame = frames_[static_cast<std::size_t>(page.buffer)];
  frame.page = kNone;
  frame.filled = false;
  page.buffer = kNone;
}

void BoundaryTier::drop(std::size_t page) {
  const MutexLock lock(mutex_);
  detach(pages_[page]);
  pages_[page].on_disk = false;
  work_.notify_one();
  changed_.notify_all();
}

devices::BufferView BoundaryTier::view(std::size_t page) const {
  const MutexLock lock(mutex_);
  return memory_of(static_cast<std::size_t>(pages_[page].buffer));
}

void BoundaryTier::fail(const absl::Status& error) {
  const MutexLock lock(mutex_);
  if (error_.ok()) error_ = error;
  changed_.notify_all();
}

void BoundaryTier::reset() {
  const MutexLock lock(mutex_);
  const auto moving = [](const Page& page) { return page.moving; };
  while (std::ranges::any_of(pages_, moving)) changed_.wait(mutex_);
  std::ranges::fill(pages_, Page{});
  std::ranges::fill(frames_, Frame{});
  error_ = absl::OkStatus();
}

BoundaryTier::Stats BoundaryTier::stats() const {
  const MutexLock lock(mutex_);
  return stats_;
}

// The threads.

bool BoundaryTier::load(std::uint64_t later_than, std::size_t page, Work& work) {
  const std::int32_t frame = find_frame(later_than);
  if (frame == kNone) return false;
  give(frame, page);
  frames_[static_cast<std::size_t>(frame)].loading = true;
  pages_[page].moving = true;
  work = {page, static_cast<std::size_t>(frame), pages_[page].size, false};
  return true;
}

bool BoundaryTier::load_wanted(Work& work) {
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    const Page& page = pages_[i];
    if (page.wanted == 0 || page.buffer != kNone || !page.on_disk || page.moving) continue;
    if (load(0, i, work)) return true;
  }
  return false;
}

/// What is read last goes first. Before anybody waits for it, but not before there is need.
bool BoundaryTier::write_behind(Work& work) {
  if (spare(0) > kept_spare_) return false;
  std::int32_t best = kNone;
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    if (!is_idle(frames_[i])) continue;
    const Page& page = pages_[static_cast<std::size_t>(frames_[i].page)];
    if (page.on_disk || page.moving) continue;
    const std::uint64_t key = next_read(page);
    if (best != kNone && key <= last) continue;
    best = static_cast<std::int32_t>(i);
    last = key;
  }
  if (best == kNone) return false;
  Frame& frame = frames_[static_cast<std::size_t>(best)];
  frame.writing = true;
  Page& page = pages_[static_cast<std::size_t>(frame.page)];
  page.moving = true;
  work = {static_cast<std::size_t>(frame.page), static_cast<std::size_t>(best), page.size, true};
  return true;
}

/// Only into buffers that writers would not have to wait for: what was read ahead would be the next to go.
bool BoundaryTier::read_ahead(Work& work) {
  std::size_t best = pages_.size();
  std::uint64_t first = ReadOrder::kNever;
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    const Page& page = pages_[i];
    if (!page.on_disk || page.buffer != kNone || page.moving || next_read(page) >= first) continue;
    best = i;
    first = next_read(page);
  }
  if (best == pages_.size() || spare(first) <= kept_spare_ + 1) return false;
  return load(first, best, work);
}

bool BoundaryTier::take_work(Work& work) {
  if (!error_.ok()) return false;
  if (load_wanted(work) || write_behind(work)) return true;
  return takers_ == 0 && read_ahead(work);
}

absl::Status BoundaryTier::carry_out(const Work& work) {
  if (!options_.phantom) {
    const Bytes offset = work.page * whole_disk_blocks(options_.page_bytes);
    const std::span<std::byte> memory(memory_of(work.frame).host(), work.size);
    return work.writes ? file_->write(offset, memory) : file_->read(offset, memory);
  }
  if (options_.bandwidth <= 0) return absl::OkStatus();
  Deadline end;
  {
    const MutexLock lock(mutex_);
    const std::chrono::duration<double> seconds(static_cast<double>(work.size) / options_.bandwidth);
    lane_free_ = std::max(lane_free_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(seconds);
    end = lane_free_;
  }
  std::this_thread::sleep_until(end);
  return absl::OkStatus();
}

void BoundaryTier::finish(const Work& work, const absl::Status& status) {
  if (!status.ok() && error_.ok()) error_ = status;
  (work.writes ? stats_.written : stats_.read) += work.size;
  Page& page = pages_[work.page];
  Frame& frame = frames_[work.frame];
  page.moving = false;
  frame.writing = false;
  frame.loading = false;
  // Another page's, or none's, when it was dropped meanwhile.
  if (frame.page == static_cast<std::int32_t>(work.page) && page.buffer == static_cast<std::int32_t>(work.frame)) {
    if (work.writes) page.on_disk = true;
    if (!work.writes) frame.filled = true;
  }
  changed_.notify_all();
}

void BoundaryTier::work_loop() {
  for (;;) {
    Work work;
    {
      const MutexLock lock(mutex_);
      for (;;) {
        if (stopping_) return;
        if (take_work(work)) break;
        work_.wait(mutex_);
      }
      work_.notify_one();  // there may be more
    }
    const absl::Status status = carry_out(work);
    const MutexLock lock(mutex_);
    finish(work, status);
    work_.notify_one();
  }
}

}  // namespace rondo::offload
