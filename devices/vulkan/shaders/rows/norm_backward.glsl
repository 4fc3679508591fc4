// With n = r c, c = x or x - mean(x), and the gain g: dx = r (g dy - n mean(n g dy)) (+ addend), where it is centred
// less r mean(g dy). r times the weights' factor is kept for the gradient of w, and the mean where it is centred. A
// workgroup kRows rows, for which a weight is read once.
//
// slots: x, w, dy, dx, addend, what is kept [1 or 2, rows]. sizes: width, rows. factors: epsilon.
#include "common.glsl"

layout(local_size_x = kThreads) in;
layout(constant_id = 6) const bool kAddend = false;
layout(constant_id = 7) const bool kKeep = false;
#include "norm_weights.glsl"

void keep(uint64_t kept, uint row, uint rows, float factor, float mean) {
  Floats(kept).v[row] = factor * kWeightFactor;
  if (kCentred) Floats(kept).v[rows + row] = mean;
}

#ifdef RONDO_ONE_SUBGROUP
layout(constant_id = 8) const uint kHeld = 0;  // pairs of a row that an invocation holds: the width is 16 times that
const uint kRowsHeld = 16;                     // of a workgroup then

/// Reads a number once: those of a row wait in registers for its sums, weights for all rows.
void differentiate_held() {
  const uint64_t x = address(0);
  const uint64_t w = address(1);
  const uint64_t dy = address(2);
  const uint64_t dx = address(3);
  const uint64_t addend = kAddend ? address(4) : 0ul;
  const uint64_t kept = kKeep ? address(5) : 0ul;
  const uint width = kHeld * kThreads * 2;
  const uint first = group_place() * kRowsHeld;
  const uint rows = push.sizes[1];
  const float epsilon = push.factors[0];
  const uint begin = invocation() * 2;
  vec2 weights[kHeld + 1];  // one is room for none
  [[unroll]] for (uint i = 0; i < kHeld; ++i) weights[i] = load_gain(w, 2, begin + i * kThreads * 2);
  for (uint row = first; row < min(first + kRowsHeld, rows); ++row) {
    vec2 values[kHeld + 1];
    vec2 gradients[kHeld + 1];  // times the weight
    float off = 0.0;            // the mean of the row
    float slope = 0.0;
    [[unroll]] for (uint i = 0; i < kHeld; ++i) {
      const uint at = row * width + begin + i * kThreads * 2;
      values[i] = load_some(x, kType, 2, at);
      gradients[i] = weights[i] * load_some(dy, kType, 2, at);
      off += values[i].x + values[i].y;
      slope += gradients[i].x + gradients[i].y;
    }
    if (kCentred) {
      off = sum_over_group(off) / float(width);
      slope = sum_over_group(slope) / float(width);
    }
    float squares = 0.0;
    float products = 0.0;
    [[unroll]] for (uint i = 0; i < kHeld; ++i) {
      values[i] = centred(values[i], off, 2);
      const vec2 product = values[i] * gradients[i];
      squares += values[i].x * values[i].x + values[i].y * values[i].y;
      products += product.x + product.y;
    }
    const float factor = exact_inverse_root(sum_over_group(squares) / float(width) + epsilon);
    const float mean = sum_over_group(products) * factor / float(width);
    [[unroll]] for (uint i = 0; i < kHeld; ++i) {
      const uint at = row * width + begin + i * kThreads * 2;
      vec2 gradient = factor * (centred(gradients[i], slope, 2) - values[i] * factor * mean);
      if (kAddend) gradient += load_some(addend, kType, 2, at);
      store_some(dx, kType, 2, at, gradient);
    }
    if (kKeep && invocation() == 0) keep(kept, row, rows, factor, off);
  }
}
#endif

void main() {
#ifdef RONDO_ONE_SUBGROUP
  if (kHeld > 0) {
    differentiate_held();
    return;
  }
#endif
  const uint width = push.sizes[0];
  const uint first = group_place() * kRows;
  if (first >= push.sizes[1]) return;
  const uint64_t x = address(0);
  const uint64_t w = address(1);
  const uint64_t dy = address(2);
  const uint64_t dx = address(3);
  const uint64_t addend = address(4);
  uint begins[kRows];  // past the last row it is done again
  float offs[kRows];   // means of the rows
  float slopes[kRows];
  float squares[kRows];
  float products[kRows];
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    begins[r] = min(first + r, push.sizes[1] - 1) * width;
    offs[r] = kCentred ? mean_of_row(x, begins[r], width) : 0.0;
    slopes[r] = 0.0;
    squares[r] = 0.0;
    products[r] = 0.0;
  }
  for (uint d = invocation() * kStep; d < width; d += kThreads * kStep) {
    const vec2 weight = load_gain(w, kStep, d);
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      const vec2 value = centred(load_some(x, kType, kStep, begins[r] + d), offs[r], kStep);
      const vec2 gradient = load_some(dy, kType, kStep, begins[r] + d);
      const vec2 product = value * weight * gradient;
      if (kCentred) slopes[r] += weight.x * gradient.x + weight.y * gradient.y;
      squares[r] += value.x * value.x + value.y * value.y;
      products[r] += product.x + product.y;
    }
  }
  float factors[kRows];
  float means[kRows];
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    factors[r] = exact_inverse_root(sum_over_group(squares[r]) / float(width) + push.factors[0]);
    means[r] = sum_over_group(products[r]) * factors[r] / float(width);
    if (kCentred) slopes[r] = sum_over_group(slopes[r]) / float(width);
  }
  for (uint d = invocation() * kStep; d < width; d += kThreads * kStep) {
    const vec2 weight = load_gain(w, kStep, d);
    vec2 gradients[kRows];
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      const uint i = begins[r] + d;
      const vec2 normal = centred(load_some(x, kType, kStep, i), offs[r], kStep) * factors[r];
      const vec2 gradient = centred(weight * load_some(dy, kType, kStep, i), slopes[r], kStep);
      gradients[r] = factors[r] * (gradient - normal * means[r]);
      if (kAddend) gradients[r] += load_some(addend, kType, kStep, i);
    }
    [[unroll]] for (uint r = 0; r < kRows; ++r) store_some(dx, kType, kStep, begins[r] + d, gradients[r]);
  }
  if (!kKeep || invocation() != 0) return;
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    keep(address(5), begins[r] / width, push.sizes[1], factors[r], offs[r]);
  }
}
