// Vectorised passes over flat fp32 arrays for the host optimizer. Single-threaded: callers cut the work into fixed
// blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rondo/offload/optimizer.h"

namespace rondo::offload {

/// Sum of squares in fp64; the order of the additions is fixed: eight partial sums, element i to sum i mod 8, added
/// pairwise.
double sum_of_squares(const float* x, std::size_t n);

/// y += x.
void add_to(float* y, const float* x, std::size_t n);

/// One AdamW update of n elements (PyTorch's, decoupled decay) and the rounding into `published` (null: fp32, the
/// master itself).
void adamw(float* master, float* first_moment, float* second_moment, const float* gradient, std::uint16_t* published,
           std::size_t n, const StepFactors& factors, float weight_decay);

/// To nearest, ties to even; NaN stays NaN.
void round_to_bfloat16(const float* x, std::uint16_t* y, std::size_t n);

}  // namespace rondo::offload
