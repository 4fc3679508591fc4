// How far a device's result may lie from the reference's: one table by op and dtype.
//
// allowed = rounding(dtype of the result) |want| + units 2^-24 sqrt(n) rms(want), n: terms of the longest sum.
// - The result's own rounding: one unit in the last place, 2^-23 (fp32), 2^-7 (bf16) and 2^-10 (fp16) of the value at
// most, since
//   two roundings of nearly the same number may fall to neighbouring sides. In fp16 a unit is never below 2^-24.
// - Sums: each of n fp32 additions errs by at most 2^-24 of the partial sum, uniformly: by 2^-24 / sqrt(3) rms. Partial
//   sums grow like sqrt(k), so the sum of n terms errs by 2^-24 sqrt(n / 2) / sqrt(3) = 0.41 2^-24 sqrt(n) of its rms.
//   Six standard deviations, for the largest of 10^6 elements: 2.5 units. One stage of sums is therefore 3 units.
// - A stage that reads the result of another (scores -> softmax -> values) adds its own units.
// - Where large sums are subtracted, what is left is judged by them: rest_of_slopes().
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "rondo/devices/op.h"

namespace rondo::devices::testing {

/// Units for the stages of an op; the comment counts them.
inline double units_of(const Op& op) {
  switch (op.kind) {
    case OpKind::kEmbedding:
    case OpKind::kSelectLast:
      return 0;  // copies
    case OpKind::kAdd:
    case OpKind::kDropout:
    case OpKind::kNoise:
    case OpKind::kExpand:
    case OpKind::kEncode:
    case OpKind::kAddRows:
    case OpKind::kGroupedBias:
      return 0;  // one rounding, that of the result
    case OpKind::kSoftCap:
      return 3;  // exp, division, products
    case OpKind::kSumOfSquares:
      return 0;  // in fp64
    case OpKind::kAdamW:
    case OpKind::kAdamW8:
      return 4;  // both moments, root and quotient, none of them a sum over many
    case OpKind::kEmbeddingBackward:
    case OpKind::kBiasGradient:
    case OpKind::kGroupedBiasGradient:
    case OpKind::kMatMul:
    case OpKind::kMatMulInputGradient:
    case OpKind::kMatMulWeightGradient:
      return 3;  // one sum
    case OpKind::kDispatch:
    case OpKind::kJoinHeads:
      return 0;  // copies
    case OpKind::kJoinHeadsBackward:
    case OpKind::kHeadScaleGradient:
      return 3;  // one sum
    case OpKind::kRoute:
      return 5;  // exp and its sum, quotient
    case OpKind::kRouteBackward:
      return 9;  // the forward's, the mean of products, their difference
    case OpKind::kShareScale:
      return 1;  // a product
    case OpKind::kShareScaleBackward:
    case OpKind::kGroupedMatMul:
    case OpKind::kGroupedMatMulInputGradient:
    case OpKind::kGroupedMatMulWeightGradient:
    case OpKind::kCombine:
    case OpKind::kCombineBackward:
      return 3;  // one sum
    case OpKind::kColumnScale:
      return 1;  // a product and two additions, none of them a sum over many
    case OpKind::kColumnScaleBackward:
      return 4;  // one sum, and a product with it
    case OpKind::kMagnitudeScale:
      return 7;  // the sum of b a, that of squares, root, quotient
    case OpKind::kNorm:
      return 5;  // one sum, root, two products
    case OpKind::kNormBackward:
      return 9;  // the forward's, the mean of products, their difference
    case OpKind::kRope:
      return 4;  // cosine and sine rounded, two products, one addition
    case OpKind::kConvolution:
      return 6;  // a short sum, exp, division
    case OpKind::kConvolutionBackward:
      return 13;  // the slope of that, and a sum
    case OpKind::kDecay:
      return 6;  // exp, its logarithm, their product
    case OpKind::kDecayBackward:
      return 13;  // the same for the slopes, and a sum
    case OpKind::kDeltaRule:
      return 15;  // lengths, scores, what the state knows, the state, what is read; each of the one before
    case OpKind::kDeltaRuleBackward:
      return 30;  // the forward's twice
    case OpKind::kGatedActivation:
      return 6;  // exp or erfc to 1-2 ulp, division, products
    case OpKind::kGatedActivationBackward:
      return 12;  // the same for value and slope, which is two quotients' product, and their sum
    case OpKind::kAttention:
    case OpKind::kCachedAttention:
      return 9;  // scores, exp and its sum, sum of values
    case OpKind::kAttentionSink:
      return 6;  // exp, its logarithm or quotient
    case OpKind::kAttentionSinkGradient:
      return 9;  // exp, the products of o, their sum
    case OpKind::kAttentionBackward:
      return 18;  // the forward's twice (probabilities; dp and delta), then the sums of dq, dk, dv
    case OpKind::kVocabularyStatistics:
      return 9;  // logits, exp and its sum
    case OpKind::kVocabularyLoss:
    case OpKind::kVocabularyGradient: {
      const auto& attributes = std::get<VocabularyAttributes>(op.attributes);
      const bool whole = op.kind == OpKind::kVocabularyLoss && attributes.first_row == 0 && attributes.parts == 1;
      // Logits, exp and its sum, sums of dx and dw; the parts' sums of exp, added up and rounded.
      return whole ? 12 : 15;
    }
  }
  return 0;
}

/// Of attention's dq and dk, beside the units: what is left of do . v - delta where the two are equal, as of a query
/// that sees one key, whose gradient is none. Both are sums over the head, three units each of an rms that is far above
/// the result's; times the scale and a number of k or q. The tensors' numbers have an rms near one.
inline double rest_of_slopes(std::int64_t head_dim, double scale) {
  return 2 * 3 * 0x1.0p-24 * static_cast<double>(head_dim) * scale;
}

/// Of the result itself.
inline double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::kBfloat16:
      return 0x1.0p-7;
    case DType::kFloat16:
      return 0x1.0p-10;
    case DType::kFloat64:
      return 0x1.0p-22;  // the loss: an fp64 sum of fp32 logarithms
    default:
      return 0x1.0p-23;
  }
}

/// The least unit in the last place: what numbers near zero are rounded to. Those of fp32 and bf16 are far below any
/// result here.
inline double least_unit_of(DType dtype) { return dtype == DType::kFloat16 ? 0x1.0p-24 : 0; }

/// Of a Hadamard encoding: codes that may differ, in units of a block's scale, which is what one code adds to each
/// element. Only devices whose quotients are not exact have any.
inline constexpr double kHadamardCodes = 4;

/// A gradient that is rounded after each part of the vocabulary: by how many units in the last place of its rms a sum
/// so far may differ, which is six standard deviations at most.
inline constexpr double kSumSoFar = 6;

/// A term that is read as bf16 or fp16 errs by half a unit at most: by this much of itself just below a power of two,
/// by twice as much at the power, and rms by 1 / sqrt(3) of that.
inline double narrow_rounding(DType operands) { return operands == DType::kFloat16 ? 0x1.0p-12 : 0x1.0p-9; }

/// Devices that multiply bf16 themselves read softmax - onehot as such: the sum errs by as much of its rms as a term
/// does of itself; six standard deviations.
inline double narrow_entropy_gradient(DType operands) { return 6 * narrow_rounding(operands) / 1.7320508; }

/// Where attention is such products they read softmax and its gradient so. Some sums are of two terms (a query's first
/// keys), whose rms is that of the sum's row over sqrt(2); each may be 4.5 times that and err by all that it can.
inline double narrow_softmax(DType operands) { return 4.5 * 1.4142136 * narrow_rounding(operands); }

/// Matrix units that keep some 14 bits of what they add up in eight bits (Hopper: DeepSeek-V3, arXiv 2412.19437,
/// section 3.3.2), put into fp32 after every 128 terms: what is cut off there is a part of the sum so far, always
/// towards zero. By how much of itself and of its rms a sum of `terms` may err.
inline constexpr double kShortSum = 0x1.0p-11;
inline double short_sums(std::int64_t terms) {
  return kShortSum * std::sqrt(std::max(1.0, static_cast<double>(terms) / 128));
}

}  // namespace rondo::devices::testing
