// Ops on elements alone: addition, gated activation and its gradient, dropout, zeros, copies.
//
// slots: reads, then writes. sizes: elements, columns, site, rest. factors: probability, what is kept is times that;
// what is dropped is 0, or itself with `rest`.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "random.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kMode = 0;
layout(constant_id = 1) const uint kType = 0;
layout(constant_id = 2) const uint kActivation = 0;
layout(constant_id = 3) const uint kEach = 1;  // steps of an invocation, for which tensors are looked up once
layout(constant_id = 4) const uint kStep = 1;  // 2: the number of elements is even

const uint kAdd = 0, kGated = 1, kGatedBackward = 2, kDropout = 3, kZero = 4, kCopy = 5;
const uint kSilu = 0, kGelu = 1, kGeluTanh = 2;

/// Value and slope.
vec2 activate(float x) {
  if (kActivation == kSilu) {
    const vec2 sigmoid = logistic(x);
    return vec2(x * sigmoid.x, sigmoid.x + x * sigmoid.y * sigmoid.x);
  }
  if (kActivation == kGelu) {
    const vec2 phi = normal_parts(x);
    const float density = exact_exp(-0.5 * x * x) * 0.398942280;
    return vec2(x * (phi.x + phi.y), phi.x + (phi.y + x * density));
  }
  // (1 + tanh z) / 2 is the logistic function of 2 z.
  const vec2 sigmoid = logistic(1.59576912 * (x + 0.044715 * x * x * x));
  const float slope = 1.59576912 * (1.0 + 3.0 * 0.044715 * x * x);
  return vec2(x * sigmoid.x, sigmoid.x + x * sigmoid.x * sigmoid.y * slope);
}

/// rondo/devices/random.h's dropout_keeps().
bool keeps(uint i) {
  const uint64_t key = Words(address(1)).v[i / push.sizes[1]];
  const uint64_t place = (uint64_t(run_layer()) << 32) | uint64_t(push.sizes[2]);
  const uint64_t drawn = mix64(combine_keys(combine_keys(key, place), uint64_t(i % push.sizes[1])));
  return float(uint(drawn >> 40)) * 5.9604644775390625e-8 >= push.factors[0];
}

/// Elements i and i + 1, or i alone.
void compute(uint64_t tensors[5], uint i) {
  if (kMode == kZero) {
    store_some(tensors[0], kType, kStep, i, vec2(0.0));
    return;
  }
  const vec2 a = load_some(tensors[0], kType, kStep, i);
  if (kMode == kCopy) {
    store_some(tensors[1], kType, kStep, i, a);
    return;
  }
  if (kMode == kDropout) {
    vec2 kept = a;
    [[unroll]] for (uint e = 0; e < 2; ++e) {
      if (e < kStep) kept[e] = keeps(i + e) ? a[e] * push.factors[1] : push.sizes[3] != 0 ? a[e] : 0.0;
    }
    store_some(tensors[2], kType, kStep, i, kept);
    return;
  }
  const vec2 b = load_some(tensors[1], kType, kStep, i);
  if (kMode == kAdd) {
    store_some(tensors[2], kType, kStep, i, a + b);
    return;
  }
  vec2 values;
  vec2 slopes;
  [[unroll]] for (uint e = 0; e < 2; ++e) {
    const vec2 activated = e < kStep ? activate(a[e]) : vec2(0.0);
    values[e] = activated.x;
    slopes[e] = activated.y;
  }
  if (kMode == kGated) {
    store_some(tensors[2], kType, kStep, i, values * b);
  } else {
    const vec2 dy = load_some(tensors[2], kType, kStep, i);
    store_some(tensors[3], kType, kStep, i, dy * b * slopes);
    store_some(tensors[4], kType, kStep, i, dy * values);
  }
}

void main() {
  const uint used = kMode == kZero ? 1 : kMode == kCopy ? 2 : kMode == kGatedBackward ? 5 : 3;
  uint64_t tensors[5];
  [[unroll]] for (uint t = 0; t < 5; ++t) tensors[t] = t < used ? address(t) : 0ul;
  const uint first = group_place() * 256 * kEach + invocation();
  for (uint e = 0; e < kEach; ++e) {
    const uint i = (first + e * 256) * kStep;
    if (i < push.sizes[0]) compute(tensors, i);
  }
}
