// Vectorised passes over flat fp32 arrays for the host optimizer. Single-threaded: callers cut the work into fixed
// blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rondo/devices/random.h"
#include "rondo/offload/optimizer.h"

namespace rondo::offload {

/// Sum of squares in fp64; the order of the additions is fixed: eight partial sums, element i to sum i mod 8, added
/// pairwise.
double sum_of_squares(const float* x, std::size_t n);

/// y += x.
void add_to(float* y, const float* x, std::size_t n);

/// Elements that one rounding key serves, and one task of the optimizer: fits a core's cache five times over.
inline constexpr std::size_t kUpdateBlock = 16384;

/// Where the random bits of stochastic rounding come from, for one block of one version of a parameter.
constexpr std::uint32_t rounding_key(ParameterId id, std::uint64_t version, std::size_t block) {
  return static_cast<std::uint32_t>(devices::combine_keys(devices::combine_keys(id, version), block));
}
/// For elements from `first` on of such a block.
constexpr std::uint32_t rounding_key_from(std::uint32_t key, std::size_t first) {
  return key + static_cast<std::uint32_t>(first);
}

/// A number of 16 bits that weights are published as.
enum class Narrow : std::uint8_t { kBfloat16, kFloat16 };
/// REQUIRES: one of the two.
constexpr Narrow narrow_of(devices::DType dtype) {
  return dtype == devices::DType::kFloat16 ? Narrow::kFloat16 : Narrow::kBfloat16;
}

/// The arrays of one update of n consecutive elements; moments that a rule does not have are not touched.
struct UpdateArrays {
  float* master = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  const float* gradient = nullptr;
  std::uint16_t* published = nullptr;  // stochastically rounded; null: fp32, the master itself
  Narrow narrow = Narrow::kBfloat16;   // of published
};

/// AdamW (PyTorch's, decoupled decay).
void adamw(const UpdateArrays& arrays, std::size_t n, const StepFactors& factors, float weight_decay,
           std::uint32_t rounding_key);
/// SGD (PyTorch's: the decay is part of the gradient). `first`: the momentum buffer, null without momentum.
void sgd(const UpdateArrays& arrays, std::size_t n, const StepFactors& factors, float weight_decay,
         std::uint32_t rounding_key);
/// Lion (decoupled decay). `first`: the momentum.
void lion(const UpdateArrays& arrays, std::size_t n, const StepFactors& factors, float weight_decay,
          std::uint32_t rounding_key);

/// To nearest, ties to even; NaN stays NaN.
void round_to_nearest(const float* x, Narrow narrow, std::uint16_t* y, std::size_t n);

/// Away from zero with the probability of the rest, so that the expectation is x; what `narrow` holds, infinities and
/// NaN stay, and no number that would be finite to nearest becomes infinite. The random bits follow from the key and
/// the element's index alone. In fp16 what lies below 2^-14 is taken to 2^-37 first.
void round_stochastically(const float* x, Narrow narrow, std::uint16_t* y, std::size_t n, std::uint32_t rounding_key);

}  // namespace rondo::offload
