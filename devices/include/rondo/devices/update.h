// The arithmetic of an optimizer's update, wherever it runs: passes over flat fp32 arrays in fixed blocks, each of
// which gives the same bits on every processor and card: each product and sum is rounded by itself, none fused with
// another. Single-threaded, but where a pool is given: callers share out the blocks.
//
// AdamW: Loshchilov and Hutter (arXiv 1711.05101); SGD with momentum; both with PyTorch's arithmetic and order, in
// fp32. Lion: Chen et al. (arXiv 2302.06675).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "rondo/devices/tensor.h"
#include "rondo/devices/thread_pool.h"
#include "rondo/devices/update_block.h"

namespace rondo::devices {

/// What one step's updates share, and what is a parameter's own.
struct StepFactors {
  float gradient_factor = 1;  // clip / (loss scale * targets)
  float learning_rate = 0;
  float beta1 = 0;
  float beta2 = 0;
  float rest1 = 0;  // 1 - beta1, rounded once: 1 - 0.999F is off by 1e-5 of itself
  float rest2 = 0;  // 1 - beta2
  float epsilon = 0;
  float step_size = 0;            // learning rate / (1 - beta1^t)
  float inverse_correction2 = 0;  // 1 / sqrt(1 - beta2^t)
  float momentum = 0;
  // Of a parameter:
  float decay = 0;  // weight decay
  float kept = 1;   // 1 - learning rate * decay

  /// For a parameter that learns at `rate` times the rate of the others.
  StepFactors of_parameter(float rate, float weight_decay) const {
    StepFactors factors = *this;
    factors.learning_rate *= rate;
    factors.step_size *= rate;
    factors.decay = weight_decay;
    factors.kept = 1.0F - factors.learning_rate * weight_decay;
    return factors;
  }
};

/// The fields that OpKind::kAdamW is told of a parameter, in its order.
inline constexpr float StepFactors::*kUpdateFields[] = {
    &StepFactors::gradient_factor, &StepFactors::kept,    &StepFactors::rest1,     &StepFactors::beta2,
    &StepFactors::rest2,           &StepFactors::epsilon, &StepFactors::step_size, &StepFactors::inverse_correction2};
static_assert(std::size(kUpdateFields) == kUpdateFactors);
/// A row of kUpdateFactors numbers, and back.
inline void pack(const StepFactors& factors, float* row) {
  for (float StepFactors::*const field : kUpdateFields) *row++ = factors.*field;
}
inline StepFactors unpack(const float* row) {
  StepFactors factors;
  for (float StepFactors::*const field : kUpdateFields) factors.*field = *row++;
  return factors;
}

/// Sum of squares in fp64; the order of the additions is fixed: eight partial sums, element i to sum i mod 8, added
/// pairwise: ((0 + 4) + (1 + 5)) + ((2 + 6) + (3 + 7)).
double sum_of_squares(const float* x, std::size_t n);

/// y += x.
void add_to(float* y, const float* x, std::size_t n);

/// Rows of a lookup table's gradient to its sum, of `width` numbers each, but not the padding row's. `ids`: as
/// OpKind::kEmbeddingBackward writes them. On the pool.
void add_rows(ThreadPool& threads, const std::int32_t* ids, const float* rows, std::size_t width,
              std::int64_t padding_row, float* table);

/// A number of 16 bits that weights are published as.
enum class Narrow : std::uint8_t { kBfloat16, kFloat16 };
/// REQUIRES: one of the two.
constexpr Narrow narrow_of(DType dtype) { return dtype == DType::kFloat16 ? Narrow::kFloat16 : Narrow::kBfloat16; }

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
void adamw(const UpdateArrays& arrays, std::size_t n, const StepFactors& factors, std::uint32_t rounding_key);
/// The same with moments in codes (moment_codes.h): decoded, updated and encoded anew, kMomentBlock elements at a time.
/// `codes` and `scales`: of the first and the second moment, from the arrays' first element on, which begins a block;
/// the arrays' own moments are not touched.
struct CodedMoments {
  std::uint8_t* codes[2] = {nullptr, nullptr};
  float* scales[2] = {nullptr, nullptr};
};
void adamw_coded(const UpdateArrays& arrays, const CodedMoments& moments, std::size_t n, const StepFactors& factors,
                 std::uint32_t rounding_key);
/// SGD (PyTorch's: the decay is part of the gradient). `first`: the momentum buffer, null without momentum.
void sgd(const UpdateArrays& arrays, std::size_t n, const StepFactors& factors, std::uint32_t rounding_key);
/// Lion (decoupled decay). `first`: the momentum.
void lion(const UpdateArrays& arrays, std::size_t n, const StepFactors& factors, std::uint32_t rounding_key);

/// To nearest, ties to even; NaN stays NaN.
void round_to_nearest(const float* x, Narrow narrow, std::uint16_t* y, std::size_t n);

/// Away from zero with the probability of the rest, so that the expectation is x; what `narrow` holds, infinities and
/// NaN stay, and no number that would be finite to nearest becomes infinite. The random bits follow from the key and
/// the element's index alone. In fp16 what lies below 2^-14 is taken to 2^-37 first.
void round_stochastically(const float* x, Narrow narrow, std::uint16_t* y, std::size_t n, std::uint32_t rounding_key);

}  // namespace rondo::devices
