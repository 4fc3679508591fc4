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

/// One AdamW update of n elements (PyTorch's, decoupled decay) and the stochastic rounding into `published` (null:
/// fp32, the master itself).
void adamw(float* master, float* first_moment, float* second_moment, const float* gradient, std::uint16_t* published,
           std::size_t n, const StepFactors& factors, float weight_decay, std::uint32_t rounding_key);

/// To nearest, ties to even; NaN stays NaN.
void round_to_nearest(const float* x, std::uint16_t* y, std::size_t n);

/// Away from zero with the probability of the rest, so that the expectation is x; bf16 values, infinities and NaN stay.
/// The random bits follow from the key and the element's index alone.
void round_stochastically(const float* x, std::uint16_t* y, std::size_t n, std::uint32_t rounding_key);

}  // namespace rondo::offload
