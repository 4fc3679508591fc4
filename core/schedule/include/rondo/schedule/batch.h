// Microbatches as flat token lists, and how they lie in memory for the devices.
#pragma once

#include <cstdint>
#include <vector>

#include "rondo/base/units.h"
#include "rondo/devices/device.h"

namespace rondo::schedule {

/// T tokens of n sequences, one after another.
struct Microbatch {
  std::vector<std::int32_t> ids;        // [T]
  std::vector<std::int32_t> positions;  // [T], from 0 in each sequence
  std::vector<std::int32_t> targets;    // [T], the id to predict after this token, negative: none
  std::vector<std::int32_t> bounds;     // [n + 1] first token of each sequence, then T
  std::vector<std::uint64_t> keys;      // [T] of the random numbers
  std::uint64_t target_tokens = 0;

  static constexpr Bytes kBytesPerToken = 3 * sizeof(std::int32_t) + sizeof(std::uint64_t);
};

/// Offsets of the batch tensors for a bucket of tokens; the loss (8 bytes, fp64) stands last.
struct BatchLayout {
  explicit BatchLayout(std::uint32_t bucket);
  Bytes offset(devices::BatchTensor which) const { return offsets_[static_cast<std::size_t>(which)]; }
  Bytes size(devices::BatchTensor which) const;
  Bytes loss_offset() const { return loss_; }
  Bytes total() const { return total_; }

 private:
  std::uint32_t bucket_;
  Bytes offsets_[devices::kBatchTensors] = {};
  Bytes loss_ = 0;
  Bytes total_ = 0;
};

/// Writes `batch` into `to` (BatchLayout(bucket).total() bytes), padded to the bucket: ids and targets -1.
/// `loss_scale`: of the step.
void pack_batch(const Microbatch& batch, std::uint32_t bucket, std::byte* to, float loss_scale = 1.0F);

}  // namespace rondo::schedule
