// Where gradients come together on the host: one fp32 sum per trained parameter and step.
//
// Contributions arrive by reduction group. Groups are added in rising order whichever device brings them: what comes
// early waits. Group 0 is written in place, later ones are added. Sparse rows (the gradient of a lookup table) come per
// microbatch; with one group they are added to the sum itself, after the dense contribution of a tied head; with
// several they have a sum of their own, which is added last, so that the order does not depend on how groups are put
// into rounds. Who brings a parameter's last contribution also takes its part of the norm, so that little of that is
// left when the last gradient is home. Thread-safe; a ledger of (parameter, group) refuses what was added already.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/mutex.h"
#include "rondo/devices/device.h"
#include "rondo/devices/thread_pool.h"
#include "rondo/offload/packed_memory.h"
#include "rondo/offload/parameter_store.h"

namespace rondo::offload {

struct GradientSpec {
  ParameterId parameter = 0;
  std::uint64_t elements = 0;
  bool dense = true;    // some layer contributes a dense sum per group
  bool sparse = false;  // some layer contributes rows per microbatch
  std::uint64_t row_width = 0;
  std::int64_t padding_row = -1;  // of a lookup table: its row for the padding token, which lookups do not train
  std::uint32_t pieces = 1;       // dense sums per group, each of a range of its own; together they are all elements
  std::uint32_t group = 0;        // sums of a group are neighbours in memory
};

class GradientHome {
 public:
  /// `threads` outlives the home.
  static absl::StatusOr<std::unique_ptr<GradientHome>> make(const std::vector<GradientSpec>& specs,
                                                            std::size_t parameters, bool phantom,
                                                            devices::ThreadPool& threads);

  /// Forgets the step before: nothing has been added. `groups` and `microbatches`: of this step.
  void begin_step(std::uint32_t groups, std::uint32_t microbatches);

  /// Where group 0 of a parameter is to be written: the sum itself.
  devices::BufferView sum(ParameterId id) const;
  /// Where a dense sum belongs, of several that make up a parameter's gradient.
  struct Piece {
    std::uint32_t index = 0;
    std::uint64_t first_element = 0;
  };
  /// Group 0 of a piece was written into sum() completely.
  void complete_first(ParameterId id, std::uint32_t piece = 0);
  /// Waits until all groups of the piece before are in, then adds. `group` >= 1. Cancelled after abandon().
  absl::Status add(ParameterId id, std::uint32_t group, devices::BufferView contribution, Piece piece);
  absl::Status add(ParameterId id, std::uint32_t group, devices::BufferView contribution) {
    return add(id, group, contribution, Piece());
  }
  /// Waits for the microbatches before (and, with one group, for the dense part), then adds n rows: ids[0] = n,
  /// ids[1...] rising, rows [n, width] fp32.
  absl::Status add_rows(ParameterId id, std::uint32_t microbatch, devices::BufferView ids, devices::BufferView rows);

  /// All contributions of the step are in, and their squares are taken.
  bool complete() const;
  absl::Status wait_until_complete(std::chrono::steady_clock::time_point deadline);
  /// Ends all waits with Cancelled, until begin_step().
  void abandon();

  /// After wait_until_complete(): the sum of squares over fixed blocks in fp64; not finite when an element is not.
  double squares(ParameterId id) const { return entry(id).squares; }
  /// The gradient, after wait_until_complete(); stays until the next step's first contribution.
  std::span<const float> gradient(ParameterId id) const;

 private:
  struct Entry {
    GradientSpec spec;
    devices::BufferView sum;
    devices::Buffer rows;  // of its own, where there is a dense sum too
    std::vector<double> block_squares;
    double squares = 0;                     // written before `finished`
    std::vector<std::uint32_t> next_group;  // by piece; guarded by mutex_
    std::uint32_t next_microbatch = 0;
    bool finished = false;  // no contribution is missing, and `squares` is theirs
  };
  GradientHome(std::size_t parameters, bool phantom, devices::ThreadPool& threads);
  Entry& entry(ParameterId id) { return entries_[static_cast<std::size_t>(index_[id])]; }
  const Entry& entry(ParameterId id) const { return entries_[static_cast<std::size_t>(index_[id])]; }
  bool has_all(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Notes a contribution by `counted` under the mutex; who brings the last one finishes the gradient.
  template <typename Count>
  void count(Entry& entry, Count counted);
  /// Adds what is kept apart, and takes the squares.
  void finish(Entry& entry);

  devices::ThreadPool& threads_;
  const bool phantom_;
  std::vector<Entry> entries_;
  PackedMemory sums_;
  std::vector<std::int32_t> index_;  // of a parameter's entry, -1: not trained

  mutable Mutex mutex_;
  CondVar changed_;
  std::uint32_t groups_ ABSL_GUARDED_BY(mutex_) = 1;
  std::uint32_t microbatches_ ABSL_GUARDED_BY(mutex_) = 1;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace rondo::offload
