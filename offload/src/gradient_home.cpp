#include "rondo/offload/gradient_home.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rondo/base/status.h"
#include "rondo/devices/update.h"

namespace rondo::offload {
namespace {

constexpr std::size_t kBlock = devices::kUpdateBlock;  // elements: the fixed grid of sums and additions

std::int64_t blocks_of(std::uint64_t elements) { return static_cast<std::int64_t>((elements + kBlock - 1) / kBlock); }

template <typename Function>
void for_blocks(devices::ThreadPool& threads, std::uint64_t elements, Function&& fn) {
  threads.parallel_for(blocks_of(elements), [&](std::int64_t block, std::uint32_t) {
    const std::size_t begin = static_cast<std::size_t>(block) * kBlock;
    fn(begin, std::min(kBlock, static_cast<std::size_t>(elements) - begin), static_cast<std::size_t>(block));
  });
}

float* floats(devices::BufferView view) { return reinterpret_cast<float*>(view.host()); }

absl::Status abandoned_error() { return absl::CancelledError("the step was abandoned"); }

}  // namespace

GradientHome::GradientHome(std::size_t parameters, bool phantom, devices::ThreadPool& threads)
    : threads_(threads), phantom_(phantom), index_(parameters, -1) {}

absl::StatusOr<std::unique_ptr<GradientHome>> GradientHome::make(const std::vector<GradientSpec>& specs,
                                                                 std::size_t parameters, bool phantom,
                                                                 devices::ThreadPool& threads) {
  auto home = std::unique_ptr<GradientHome>(new GradientHome(parameters, phantom, threads));
  for (const GradientSpec& spec : specs) {
    Entry entry;
    entry.spec = spec;
    const Bytes size = spec.elements * sizeof(float);
    home->sums_.add(spec.group, size);
    if (!phantom && spec.sparse && spec.dense) {
      RONDO_ASSIGN_OR_RETURN(entry.rows, devices::allocate_host(size, "gradients"));
    }
    if (!phantom) entry.block_squares.resize(static_cast<std::size_t>(blocks_of(spec.elements)));
    home->index_[spec.parameter] = static_cast<std::int32_t>(home->entries_.size());
    home->entries_.push_back(std::move(entry));
  }
  RONDO_RETURN_IF_ERROR(home->sums_.allocate("gradients", phantom));
  for (std::size_t i = 0; i < specs.size(); ++i) home->entries_[i].sum = home->sums_.view(i);
  return home;
}

void GradientHome::begin_step(std::uint32_t groups, std::uint32_t microbatches) {
  const MutexLock lock(mutex_);
  groups_ = groups;
  microbatches_ = microbatches;
  abandoned_ = false;
  for (Entry& e : entries_) {
    e.next_group.assign(e.spec.pieces, 0);
    e.next_microbatch = 0;
    e.finished = false;
  }
}

devices::BufferView GradientHome::sum(ParameterId id) const { return entry(id).sum; }

template <typename Count>
void GradientHome::count(Entry& e, Count counted) {
  {
    const MutexLock lock(mutex_);
    counted();
    changed_.notify_all();
    if (!has_all(e)) return;
  }
  finish(e);
  const MutexLock lock(mutex_);
  e.finished = true;
  changed_.notify_all();
}

void GradientHome::complete_first(ParameterId id, std::uint32_t piece) {
  Entry& e = entry(id);
  count(e, [&e, piece] { e.next_group[piece] = 1; });
}

absl::Status GradientHome::add(ParameterId id, std::uint32_t group, devices::BufferView contribution, Piece piece) {
  Entry& e = entry(id);
  std::uint32_t& next_group = e.next_group[piece.index];
  {
    const MutexLock lock(mutex_);
    while (next_group < group && !abandoned_) changed_.wait(mutex_);
    if (abandoned_) return abandoned_error();
    if (next_group != group) {
      return internal_error("gradient of parameter {}: group {} came twice", id, group);
    }
  }
  if (!phantom_) {
    float* sum = floats(e.sum) + piece.first_element;
    for_blocks(threads_, contribution.size / sizeof(float), [&](std::size_t begin, std::size_t n, std::size_t) {
      devices::add_to(sum + begin, floats(contribution) + begin, n);
    });
  }
  count(e, [&next_group, group] { next_group = group + 1; });
  return absl::OkStatus();
}

absl::Status GradientHome::add_rows(ParameterId id, std::uint32_t microbatch, devices::BufferView ids,
                                    devices::BufferView rows) {
  Entry& e = entry(id);
  {
    const MutexLock lock(mutex_);
    while (e.next_microbatch < microbatch && !abandoned_) changed_.wait(mutex_);
    if (abandoned_) return abandoned_error();
    if (e.next_microbatch != microbatch) {
      return internal_error("row gradients of parameter {}: microbatch {} came twice", id, microbatch);
    }
  }
  if (!phantom_) {
    const auto* id_list = reinterpret_cast<const std::int32_t*>(ids.host());
    const devices::BufferView home = e.rows ? e.rows.view() : e.sum;
    // Not at the step's begin: the optimizer may still be reading the step before.
    if (microbatch == 0) {
      for_blocks(threads_, e.spec.elements, [&](std::size_t begin, std::size_t n, std::size_t) {
        std::memset(floats(home) + begin, 0, n * sizeof(float));
      });
    }
    devices::add_rows(threads_, id_list, floats(rows), e.spec.row_width, e.spec.padding_row, floats(home));
  }
  count(e, [&e, microbatch] { e.next_microbatch = microbatch + 1; });
  return absl::OkStatus();
}

bool GradientHome::has_all(const Entry& e) const {
  const std::uint32_t groups = groups_;
  const bool dense = std::ranges::all_of(e.next_group, [groups](std::uint32_t next) { return next == groups; });
  return (!e.spec.dense || dense) && (!e.spec.sparse || e.next_microbatch == microbatches_);
}

bool GradientHome::complete() const {
  const MutexLock lock(mutex_);
  for (const Entry& e : entries_) {
    if (!e.finished) return false;
  }
  return true;
}

absl::Status GradientHome::wait_until_complete(std::chrono::steady_clock::time_point deadline) {
  const MutexLock lock(mutex_);
  for (const Entry& e : entries_) {
    while (!e.finished) {
      if (abandoned_) return abandoned_error();
      if (!changed_.wait_until(mutex_, deadline) && !e.finished) {
        return absl::DeadlineExceededError("gradients did not come home in time");
      }
    }
  }
  return absl::OkStatus();
}

void GradientHome::abandon() {
  const MutexLock lock(mutex_);
  abandoned_ = true;
  changed_.notify_all();
}

std::span<const float> GradientHome::gradient(ParameterId id) const {
  const Entry& e = entry(id);
  return {floats(e.sum), e.spec.elements};
}

void GradientHome::finish(Entry& e) {
  e.squares = 0;
  if (phantom_) return;
  if (e.rows) {
    for_blocks(threads_, e.spec.elements, [&](std::size_t begin, std::size_t n, std::size_t) {
      devices::add_to(floats(e.sum) + begin, floats(e.rows.view()) + begin, n);
    });
  }
  const float* sum = floats(e.sum);
  for_blocks(threads_, e.spec.elements, [&](std::size_t begin, std::size_t n, std::size_t block) {
    e.block_squares[block] = devices::sum_of_squares(sum + begin, n);
  });
  for (const double squares : e.block_squares) e.squares += squares;
}

}  // namespace rondo::offload
