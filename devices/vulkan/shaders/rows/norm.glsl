// y = c / sqrt(mean(c^2) + epsilon) * gain (+ bias) of c = x or x - mean(x), a workgroup kRows rows, for which a weight
// is read once.
//
// slots: x, w, y, bias. sizes: width, rows. factors: epsilon.
#include "common.glsl"

layout(local_size_x = kThreads) in;
#include "norm_weights.glsl"
layout(constant_id = 6) const bool kBias = false;

#ifdef RONDO_ONE_SUBGROUP
layout(constant_id = 7) const uint kHeld = 0;  // pairs of a row that an invocation holds: the width is 16 times that
const uint kRowsHeld = 16;                     // of a workgroup then

/// Reads a number once: those of a row wait in registers for its sum, weights for all rows.
void normalize_held(uint64_t x, uint64_t w, uint64_t y, uint64_t bias) {
  const uint width = kHeld * kThreads * 2;
  const uint first = group_place() * kRowsHeld;
  const uint rows = push.sizes[1];
  const float epsilon = push.factors[0];
  const uint begin = invocation() * 2;
  vec2 weights[kHeld + 1];  // one is room for none
  [[unroll]] for (uint i = 0; i < kHeld; ++i) weights[i] = load_gain(w, 2, begin + i * kThreads * 2);
  for (uint row = first; row < min(first + kRowsHeld, rows); ++row) {
    vec2 values[kHeld + 1];
    float mean = 0.0;
    [[unroll]] for (uint i = 0; i < kHeld; ++i) {
      values[i] = load_some(x, kType, 2, row * width + begin + i * kThreads * 2);
      mean += values[i].x + values[i].y;
    }
    if (kCentred) mean = sum_over_group(mean) / float(width);
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < kHeld; ++i) {
      values[i] = centred(values[i], mean, 2);
      sum += values[i].x * values[i].x + values[i].y * values[i].y;
    }
    const float factor = exact_inverse_root(sum_over_group(sum) / float(width) + epsilon);
    [[unroll]] for (uint i = 0; i < kHeld; ++i) {
      const uint column = begin + i * kThreads * 2;
      vec2 normal = values[i] * factor * weights[i];
      if (kBias) normal += load_some(bias, kWeightType, 2, column);
      store_some(y, kType, 2, row * width + column, normal);
    }
  }
}
#endif

void main() {
#ifdef RONDO_ONE_SUBGROUP
  if (kHeld > 0) {
    normalize_held(address(0), address(1), address(2), address(3));
    return;
  }
#endif
  const uint width = push.sizes[0];
  const uint first = group_place() * kRows;
  if (first >= push.sizes[1]) return;
  const uint64_t x = address(0);
  const uint64_t w = address(1);
  const uint64_t y = address(2);
  const uint64_t bias = address(3);
  uint begins[kRows];  // past the last row it is done again
  float means[kRows];
  float factors[kRows];
  [[unroll]] for (uint r = 0; r < kRows; ++r) begins[r] = min(first + r, push.sizes[1] - 1) * width;
  [[unroll]] for (uint r = 0; r < kRows; ++r) means[r] = kCentred ? mean_of_row(x, begins[r], width) : 0.0;
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    float sum = 0.0;
    for (uint d = invocation() * kStep; d < width; d += kThreads * kStep) {
      const vec2 value = centred(load_some(x, kType, kStep, begins[r] + d), means[r], kStep);
      sum += value.x * value.x + value.y * value.y;
    }
    factors[r] = exact_inverse_root(sum_over_group(sum) / float(width) + push.factors[0]);
  }
  for (uint d = invocation() * kStep; d < width; d += kThreads * kStep) {
    const vec2 weight = load_gain(w, kStep, d);
    vec2 values[kRows];
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      values[r] = centred(load_some(x, kType, kStep, begins[r] + d), means[r], kStep) * factors[r] * weight;
      if (kBias) values[r] += load_some(bias, kWeightType, kStep, d);
    }
    [[unroll]] for (uint r = 0; r < kRows; ++r) store_some(y, kType, kStep, begins[r] + d, values[r]);
  }
}
