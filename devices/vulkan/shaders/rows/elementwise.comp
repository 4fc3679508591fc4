// Ops on elements alone: addition, gated activation and its gradient, dropout, zeros, copies, the soft cap.
//
// slots: reads, then writes. sizes: elements, columns, site, rest. factors: probability, what is kept is times that;
// what is dropped is 0, or itself with `rest`. Of the clamped activation: alpha, limit. Of the soft cap: it.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "random.glsl"
#include "soft_cap.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kMode = 0;
layout(constant_id = 1) const uint kType = 0;
layout(constant_id = 2) const uint kActivation = 0;
layout(constant_id = 3) const uint kEach = 1;       // steps of an invocation, for which tensors are looked up once
layout(constant_id = 4) const uint kStep = 1;       // 2: the number of elements is even
layout(constant_id = 5) const bool kAlone = false;  // an activation without up: its slots hold the gate and dgate

const uint kAdd = 0, kGated = 1, kGatedBackward = 2, kDropout = 3, kZero = 4, kCopy = 5, kSoftCap = 6;
const uint kSilu = 0, kGelu = 1, kGeluTanh = 2, kClampedSwiglu = 3, kSigmoid = 4, kRelu = 5, kIdentity = 6;

/// Value and slope.
vec2 activate(float x) {
  if (kActivation == kSilu) {
    const vec2 sigmoid = logistic(x);
    return vec2(x * sigmoid.x, sigmoid.x + x * sigmoid.y * sigmoid.x);
  }
  if (kActivation == kSigmoid) {
    const vec2 sigmoid = logistic(x);
    return vec2(sigmoid.x, sigmoid.x * sigmoid.y);
  }
  if (kActivation == kRelu) return vec2(x < 0.0 ? 0.0 : x, x > 0.0 ? 1.0 : 0.0);
  if (kActivation == kIdentity) return vec2(x, 1.0);
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

/// activation(gate) * up, and its slopes along both.
vec3 gated(float gate, float up) {
  if (kActivation != kClampedSwiglu) {
    const vec2 activated = activate(gate);
    return vec3(activated.x * up, up * activated.y, activated.x);
  }
  const float alpha = push.factors[0];
  const float limit = push.factors[1];
  // Not by min and clamp, which may lose a NaN.
  const float g = gate > limit ? limit : gate;
  const float u = abs(up) > limit ? sign(up) * limit : up;
  const vec2 sigmoid = logistic(alpha * g);
  const float activated = g * sigmoid.x;
  const float slope = sigmoid.x + alpha * activated * sigmoid.y;
  return vec3(activated * (u + 1.0), gate > limit ? 0.0 : (u + 1.0) * slope, abs(up) > limit ? 0.0 : activated);
}

/// rondo/devices/random.h's dropout_keeps().
bool keeps(uint i) {
  const uint64_t key = Words(address(1)).v[i / push.sizes[1]];
  const uint drawn = drawn_at(place_of(key, run_layer(), push.sizes[2]), i % push.sizes[1]);
  return float(drawn) * 5.9604644775390625e-8 >= push.factors[0];
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
  if (kMode == kSoftCap) {
    store_some(tensors[1], kType, kStep, i,
               vec2(soft_capped(a.x, push.factors[0]).x, soft_capped(a.y, push.factors[0]).x));
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
  vec2 along_gate;
  vec2 along_up;
  [[unroll]] for (uint e = 0; e < 2; ++e) {
    const vec3 both = e < kStep ? gated(a[e], kAlone ? 1.0 : b[e]) : vec3(0.0);
    values[e] = both.x;
    along_gate[e] = both.y;
    along_up[e] = both.z;
  }
  if (kMode == kGated) {
    store_some(tensors[2], kType, kStep, i, values);
  } else {
    const vec2 dy = load_some(tensors[2], kType, kStep, i);
    store_some(tensors[3], kType, kStep, i, dy * along_gate);
    if (!kAlone) store_some(tensors[4], kType, kStep, i, dy * along_up);
  }
}

void main() {
  const uint used = kMode == kZero ? 1 : kMode == kCopy || kMode == kSoftCap ? 2 : kMode == kGatedBackward ? 5 : 3;
  uint64_t tensors[5];
  [[unroll]] for (uint t = 0; t < 5; ++t) tensors[t] = t < used ? address(t) : 0ul;
  const uint first = group_place() * 256 * kEach + invocation();
  for (uint e = 0; e < kEach; ++e) {
    const uint i = (first + e * 256) * kStep;
    if (i < push.sizes[0]) compute(tensors, i);
  }
}
