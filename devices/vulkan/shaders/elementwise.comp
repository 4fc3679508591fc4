// Ops on elements alone: addition, gated activation and its gradient, dropout, zeros.
//
// slots: reads, then writes. sizes: elements, columns, site, rest. factors: probability, what is kept is times that;
// what is dropped is 0, or itself with `rest`.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kMode = 0;
layout(constant_id = 1) const uint kType = 0;
layout(constant_id = 2) const uint kActivation = 0;
layout(constant_id = 3) const uint kEach = 1;  // elements of an invocation, for which tensors are looked up once

const uint kAdd = 0, kGated = 1, kGatedBackward = 2, kDropout = 3, kZero = 4;
const uint kSilu = 0, kGelu = 1, kGeluTanh = 2;

/// Value and slope.
vec2 activate(float x) {
  if (kActivation == kSilu) {
    const vec2 sigmoid = logistic(x);
    return vec2(x * sigmoid.x, sigmoid.x * (1.0 + x * sigmoid.y));
  }
  if (kActivation == kGelu) {
    const float phi = 0.5 + 0.5 * exact_erf(x * 0.707106781);
    const float density = exact_exp(-0.5 * x * x) * 0.398942280;
    return vec2(x * phi, phi + x * density);
  }
  // (1 + tanh z) / 2 is the logistic function of 2 z.
  const vec2 sigmoid = logistic(1.59576912 * (x + 0.044715 * x * x * x));
  const float slope = 1.59576912 * (1.0 + 3.0 * 0.044715 * x * x);
  return vec2(x * sigmoid.x, sigmoid.x + x * sigmoid.x * sigmoid.y * slope);
}

uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ul;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ul;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBul;
  return x ^ (x >> 31);
}
uint64_t combine_keys(uint64_t a, uint64_t b) { return mix64(mix64(a) ^ b); }

/// rondo/devices/random.h's dropout_keeps().
bool keeps(uint i) {
  const uint64_t key = Words(address(1)).v[i / push.sizes[1]];
  const uint64_t place = (uint64_t(run_layer()) << 32) | uint64_t(push.sizes[2]);
  const uint64_t drawn = mix64(combine_keys(combine_keys(key, place), uint64_t(i % push.sizes[1])));
  return float(uint(drawn >> 40)) * 5.9604644775390625e-8 >= push.factors[0];
}

void compute(uint64_t tensors[5], uint i) {
  if (kMode == kZero) {
    store(tensors[0], kType, i, 0.0);
  } else if (kMode == kAdd) {
    store(tensors[2], kType, i, load(tensors[0], kType, i) + load(tensors[1], kType, i));
  } else if (kMode == kGated) {
    store(tensors[2], kType, i, activate(load(tensors[0], kType, i)).x * load(tensors[1], kType, i));
  } else if (kMode == kGatedBackward) {
    const vec2 activated = activate(load(tensors[0], kType, i));
    const float up = load(tensors[1], kType, i);
    const float dy = load(tensors[2], kType, i);
    store(tensors[3], kType, i, dy * up * activated.y);
    store(tensors[4], kType, i, dy * activated.x);
  } else {
    const float x = load(tensors[0], kType, i);
    store(tensors[2], kType, i, keeps(i) ? x * push.factors[1] : push.sizes[3] != 0 ? x : 0.0);
  }
}

void main() {
  const uint used = kMode == kZero ? 1 : kMode == kGatedBackward ? 5 : 3;
  uint64_t tensors[5];
  [[unroll]] for (uint t = 0; t < 5; ++t) tensors[t] = t < used ? address(t) : 0ul;
  const uint first = group_place() * 256 * kEach + gl_LocalInvocationID.x;
  for (uint e = 0; e < kEach; ++e) {
    const uint i = first + e * 256;
    if (i < push.sizes[0]) compute(tensors, i);
  }
}
