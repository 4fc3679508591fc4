// Tensors that files have in another order, or together with others: numbers where they are asked for, and bytes of
// what is not written by itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "rondo/model/safetensors.h"
#include "rondo/model/stored_weights.h"

namespace rondo::model {

/// Numbers that lie together in a file's tensor: where the first is, and how many there are.
struct Run {
  std::uint64_t place;
  std::uint64_t count;
};

/// TensorView::decode of a view on `whole`; run_at(i) says where its numbers from `i` on lie.
template <typename RunAt>
std::function<void(std::uint64_t, std::span<float>)> decode_runs(TensorView whole, RunAt run_at) {
  return [whole = std::move(whole), run_at = std::move(run_at)](std::uint64_t first, std::span<float> out) {
    while (!out.empty()) {
      const Run run = run_at(first);
      const std::size_t count = std::min<std::uint64_t>(run.count, out.size());
      TensorFiles::read_as_float32(whole, run.place, out.first(count));
      out = out.subspan(count);
      first += count;
    }
  };
}

/// All bytes of a plan's tensor, which are `bytes`.
inline absl::Status collect(const TensorProducer& produce, std::size_t index, std::size_t bytes,
                            std::vector<std::byte>& out) {
  out.clear();
  out.reserve(bytes);  // grown by halves it would be held twice at times
  return produce(index, [&](std::span<const std::byte> piece) {
    out.insert(out.end(), piece.begin(), piece.end());
    return absl::OkStatus();
  });
}

}  // namespace rondo::model
