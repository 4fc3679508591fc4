#include "rondo/schedule/batch.h"

#include <algorithm>
#include <cstring>

namespace rondo::schedule {

BatchLayout::BatchLayout(std::uint32_t bucket) : bucket_(bucket) {
  Bytes end = 0;
  for (std::size_t i = 0; i < devices::kBatchTensors; ++i) {
    offsets_[i] = end;
    end = round_up(end + size(static_cast<devices::BatchTensor>(i)), 64);
  }
  loss_ = end;
  total_ = end + 64;
}

Bytes BatchLayout::size(devices::BatchTensor which) const {
  switch (which) {
    case devices::BatchTensor::kBounds:
      return (Bytes{bucket_} + 2) * 4;
    case devices::BatchTensor::kKeys:
      return Bytes{bucket_} * 8;
    case devices::BatchTensor::kLossScale:
      return sizeof(float);
    default:
      return Bytes{bucket_} * 4;
  }
}

void pack_batch(const Microbatch& batch, std::uint32_t bucket, std::byte* to, float loss_scale) {
  const BatchLayout layout(bucket);
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
}

}  // namespace rondo::schedule
