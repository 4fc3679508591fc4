// The activations and gradients at stage boundaries on the host: the only edge between devices, and the checkpoints
// that backward visits recompute from.
//
// A place is (kind, round, cut, microbatch). All places of `rounds` consecutive rounds exist from the start, in memory
// or, with `buffers`, on disk behind so many working buffers (boundary_tier.h): reserving waits until the round that
// had the place's memory before has released it, and in the second case for a buffer. What a place holds can be read
// until it is released, as often as need be. Thread-safe; nothing allocates after make().
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/mutex.h"
#include "rondo/devices/device.h"
#include "rondo/offload/boundary_tier.h"

namespace rondo::offload {

enum class BoundaryKind : std::uint8_t { kActivation, kGradient };

struct BoundaryPlace {
  BoundaryKind kind = BoundaryKind::kActivation;
  std::uint64_t round = 0;       // counted over the whole run
  std::uint32_t cut = 0;         // index of the layer above the boundary
  std::uint32_t microbatch = 0;  // within the round
};

struct ActivationStoreOptions {
  std::vector<std::uint32_t> activation_cuts;  // sorted
  std::vector<std::uint32_t> gradient_cuts;    // sorted
  std::uint32_t microbatches = 1;              // of the largest round
  Bytes boundary_bytes = 0;                    // of the longest bucket
  bool phantom = false;
  std::uint32_t rounds = 2;           // that may be under way at a time: 1 when there is but one device
  std::uint32_t buffers = 0;          // working buffers of places on disk; 0: all places are in memory
  std::filesystem::path disk_folder;  // for these
  double disk_bandwidth = 0;          // of phantom ones: bytes per second
  /// By round of a step: what it fills of each microbatch, which may be nothing. Empty: rounds come in order.
  std::vector<std::vector<BoundaryPlace>> fills;
};

class ActivationStore {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// Errors: ResourceExhausted with the numbers; those of ScratchFile::make.
  static absl::StatusOr<std::unique_ptr<ActivationStore>> make(const ActivationStoreOptions& options);

  /// Bytes that make() takes in memory.
  static Bytes bytes_for(const ActivationStoreOptions& options);

  /// A step whose rounds will be under way: so many microbatches each, gradients or none. A place then has its memory
  /// after the round before it has had it, however far ahead of each other the devices are.
  void begin(std::uint64_t first_round, const std::vector<std::uint32_t>& microbatches, bool gradients);
  /// All memory that places are in.
  std::vector<devices::BufferView> memory() const;
  /// The memory of a place. REQUIRES: it is reserved and not published yet, or held.
  devices::BufferView view(const BoundaryPlace& place, Bytes size) const;
  /// Waits until the round before has had the place's memory and it is free again, and for memory. `size`: of what it
  /// will be filled with; `order`: when that will be read. Again for a place that is reserved: nothing changes.
  absl::Status reserve(const BoundaryPlace& place, Deadline deadline, Bytes size = ~Bytes{0},
                       const ReadOrder& order = {});
  /// The place is filled.
  void publish(const BoundaryPlace& place);
  /// The place has been filled in its round, whether or not it was released since. Once true it remains so.
  bool was_published(const BoundaryPlace& place) const;
  /// Waits until the place is filled and its bytes are in memory, where they stay until let_go().
  absl::Status hold(const BoundaryPlace& place, Deadline deadline);
  void let_go(const BoundaryPlace& place);
  /// Nobody will read the place again: free for the round that has its memory next.
  void release(const BoundaryPlace& place);

  /// Ends all waits with `error`.
  void fail(const absl::Status& error);
  /// All places free, no error. REQUIRES: no other call under way.
  void reset();
  /// After fail(): removes what lies on disk. The memory stays.
  void close();
  /// Null when all places are in memory.
  const BoundaryTier* tier() const { return tier_.get(); }

 private:
  explicit ActivationStore(const ActivationStoreOptions& options) : options_(options) {}
  std::size_t row_of(const BoundaryPlace& place) const;
  std::size_t index_of(const BoundaryPlace& place) const;

  const ActivationStoreOptions options_;
  std::vector<devices::Buffer> buffers_;  // by place, or none
  std::unique_ptr<BoundaryTier> tier_;    // or null
  mutable Mutex mutex_;
  std::deque<CondVar> changed_;  // by row: who waits for one boundary is not woken for others
  struct State {
    std::optional<std::uint64_t> round;  // that took it last
    bool taken = false;
    bool filled = false;
  };
  struct Expected {
    std::uint64_t round = 0;
    std::size_t of_step = 0;
    std::uint32_t microbatches = 0;
    bool gradients = false;
  };
  bool is_due_before(const BoundaryPlace& place) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::vector<bool>> fills_;  // by round of a step and row
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);
  std::vector<Expected> expected_ ABSL_GUARDED_BY(mutex_);  // a ring: the rounds of two steps, and of the one before
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rondo::offload
