#include "rondo/schedule/batch.h"

#include <algorithm>
#include <cstring>

#include "rondo/base/float16.h"

namespace rondo::schedule {
namespace {

/// Rows of several tokens are one task.
constexpr std::int64_t kTokensOfTask = 16;

void scale_row(devices::DType dtype, const std::byte* from, float scale, std::uint32_t width, std::byte* to) {
  if (dtype == devices::DType::kFloat32) {
    const auto* numbers = reinterpret_cast<const float*>(from);
    std::transform(numbers, numbers + width, reinterpret_cast<float*>(to), [scale](float x) { return x * scale; });
    return;
  }
  const auto* numbers = reinterpret_cast<const std::uint16_t*>(from);
  auto* const out = reinterpret_cast<std::uint16_t*>(to);
  if (dtype == devices::DType::kFloat16) {
    std::transform(numbers, numbers + width, out,
                   [scale](std::uint16_t x) { return to_float16(from_float16(x) * scale); });
  } else {
    std::transform(numbers, numbers + width, out,
                   [scale](std::uint16_t x) { return to_bfloat16(from_bfloat16(x) * scale); });
  }
}

void look_up(const model::Architecture& model, const std::byte* table, const std::vector<std::int32_t>& ids,
             std::uint32_t bucket, devices::ThreadPool* threads, std::byte* to) {
  const BatchLayout layout(model, bucket);
  const model::Architecture::BlockTable& blocks = *model.block_table();
  const devices::DType dtype = model.method().dtype;
  const Bytes row = Bytes{blocks.width} * devices::size_of(dtype);
  const auto look_up_some = [&](std::int64_t task, std::uint32_t) {
    const auto end = static_cast<std::size_t>(std::min<std::int64_t>((task + 1) * kTokensOfTask, bucket));
    for (auto t = static_cast<std::size_t>(task * kTokensOfTask); t < end; ++t) {
      const bool real = t < ids.size() && ids[t] >= 0;
      for (std::uint32_t block = 0; block < blocks.blocks; ++block) {
        std::byte* const out = to + layout.offset(devices::BatchTensor::kBlockRows, block) + t * row;
        if (!real) {
          std::memset(out, 0, row);
          continue;
        }
        const std::byte* const from = table + (static_cast<std::size_t>(ids[t]) * blocks.blocks + block) * row;
        scale_row(dtype, from, static_cast<float>(blocks.scale), blocks.width, out);
      }
    }
  };
  const std::int64_t tasks = (std::int64_t{bucket} + kTokensOfTask - 1) / kTokensOfTask;
  if (threads != nullptr) return threads->parallel_for(tasks, look_up_some);
  for (std::int64_t task = 0; task < tasks; ++task) look_up_some(task, 0);
}

}  // namespace

BatchLayout::BatchLayout(const model::Architecture& model, std::uint32_t bucket) : bucket_(bucket) {
  Bytes end = 0;
  for (std::size_t i = 0; i < devices::kBatchTensors; ++i) {
    offsets_[i] = end;
    end = round_up(end + size(static_cast<devices::BatchTensor>(i)), 64);
  }
  loss_ = end;
  total_ = block_rows_ = end + 64;
  if (const auto& table = model.block_table()) {
    rows_of_a_block_ = round_up(Bytes{bucket} * table->width * devices::size_of(model.method().dtype), 64);
    total_ += rows_of_a_block_ * table->blocks;
  }
}

Bytes BatchLayout::offset(devices::BatchTensor which, std::uint32_t block) const {
  if (which == devices::BatchTensor::kBlockRows) return block_rows_ + block * rows_of_a_block_;
  return offsets_[static_cast<std::size_t>(which)];
}

BatchLayout::Stretch BatchLayout::block_rows(const model::Architecture& model, model::LayerIndex first,
                                             model::LayerIndex last) const {
  const auto lowest = std::max<model::LayerIndex>(first, 1);  // the embedding reads none, nor does the head
  const model::LayerIndex end = std::min(last + 1, model.first_head_layer());
  if (rows_of_a_block_ == 0 || lowest >= end) return {};
  const std::uint32_t from = model.layers()[lowest].block;
  const std::uint32_t blocks = model.layers()[end - 1].block + 1 - from;
  return {block_rows_ + from * rows_of_a_block_, blocks * rows_of_a_block_};
}

Bytes BatchLayout::size(devices::BatchTensor which) const {
  switch (which) {
    case devices::BatchTensor::kBounds:
      return (Bytes{bucket_} + 2) * 4;
    case devices::BatchTensor::kKeys:
      return Bytes{bucket_} * 8;
    case devices::BatchTensor::kLossScale:
      return sizeof(float);
    case devices::BatchTensor::kBlockRows:
      return rows_of_a_block_;
    default:
      return Bytes{bucket_} * 4;
  }
}

void pack_batch(const model::Architecture& model, devices::BufferView table, const Microbatch& batch,
                std::uint32_t bucket, devices::ThreadPool* threads, std::byte* to, float loss_scale) {
  const BatchLayout layout(model, bucket);
  const auto place = [&]<typename T>(devices::BatchTensor which, const std::vector<T>& values, T padding) {
    T* out = reinterpret_cast<T*>(to + layout.offset(which));
    std::copy(values.begin(), values.end(), out);
    std::fill(out + values.size(), out + bucket, padding);
  };
  place(devices::BatchTensor::kIds, batch.ids, std::int32_t{-1});
  place(devices::BatchTensor::kPositions, batch.positions, std::int32_t{0});
  place(devices::BatchTensor::kTargets, batch.targets, std::int32_t{-1});
  place(devices::BatchTensor::kKeys, batch.keys, std::uint64_t{0});
  auto* bounds = reinterpret_cast<std::int32_t*>(to + layout.offset(devices::BatchTensor::kBounds));
  std::fill(bounds, bounds + bucket + 2, 0);
  bounds[0] = static_cast<std::int32_t>(batch.bounds.size()) - 1;
  std::ranges::copy(batch.bounds, bounds + 1);
  std::memcpy(to + layout.offset(devices::BatchTensor::kLossScale), &loss_scale, sizeof(loss_scale));
  if (model.block_table() && table.host() != nullptr) look_up(model, table.host(), batch.ids, bucket, threads, to);
}

}  // namespace rondo::schedule
