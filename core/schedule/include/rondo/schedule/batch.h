// Microbatches as flat token lists, and how they lie in memory for the devices.
#pragma once

#include <cstdint>
#include <vector>

#include "rondo/base/units.h"
#include "rondo/devices/device.h"
#include "rondo/devices/thread_pool.h"
#include "rondo/model/architecture.h"

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

/// Offsets of the batch tensors for a bucket of tokens; then comes the loss (8 bytes, fp64), and behind it, block by
/// block, what the host has looked up for the model's blocks (Architecture::block_table()).
class BatchLayout {
 public:
  BatchLayout(const model::Architecture& model, std::uint32_t bucket);
  /// `block`: of the layer that reads it, where that matters.
  Bytes offset(devices::BatchTensor which, std::uint32_t block = 0) const;
  Bytes size(devices::BatchTensor which) const;
  Bytes loss_offset() const { return loss_; }
  /// What all layers may read, and the loss: the beginning.
  Bytes common() const { return block_rows_; }
  /// What was looked up for the blocks of these layers.
  struct Stretch {
    Bytes first = 0;
    Bytes size = 0;
  };
  Stretch block_rows(const model::Architecture& model, model::LayerIndex first, model::LayerIndex last) const;
  Bytes total() const { return total_; }

 private:
  std::uint32_t bucket_;
  Bytes offsets_[devices::kBatchTensors] = {};
  Bytes loss_ = 0;
  Bytes block_rows_ = 0;       // where they begin
  Bytes rows_of_a_block_ = 0;  // 0: there are none
  Bytes total_ = 0;
};

/// Writes `batch` into `to` (BatchLayout::total() bytes), padded to the bucket: ids and targets -1, rows of blocks 0.
/// `table`: the numbers of Architecture::block_table(), in the dtype of the method; without memory nothing is looked
/// up. `threads`: null for this one alone. `loss_scale`: of the step.
void pack_batch(const model::Architecture& model, devices::BufferView table, const Microbatch& batch,
                std::uint32_t bucket, devices::ThreadPool* threads, std::byte* to, float loss_scale = 1.0F);
/// What pack_batch() looks rows up in: empty where the model has no such table.
template <typename Store>
devices::BufferView block_table_of(const model::Architecture& model, const Store& store) {
  return model.block_table() ? store.published(model.block_table()->table) : devices::BufferView();
}

}  // namespace rondo::schedule
