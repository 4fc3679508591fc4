// The gates of the delta rule or the steps of a state space, and their gradient.
//
// slots: a [T, H], b, rates fp32 [H], bias fp32 [H], then g and beta, fp32 [T, H], or dg, dbeta, da, db, and of each
// element its part of drates and of dbias, fp32 [T, H]. sizes: elements, heads, whether these parts are asked for.
// factors: what a step may be. A state space has neither b nor db.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const bool kBackward = false;
layout(constant_id = 2) const bool kStateSpace = false;

/// log(1 + e^x).
float softplus(float x) {
  const float e = exact_exp(-abs(x));
  precise float sum = 1.0 + e;
  precise float lost = e - (sum - 1.0);
  return max(x, 0.0) + (exact_log(sum) + lost / sum);
}

/// Of a state space: x is what the softplus is of.
void of_step(uint i, float x, float rate) {
  const float whole = softplus(x);
  const float step = clamp(whole, push.factors[0], push.factors[1]);
  if (!kBackward) {
    Floats(address(4)).v[i] = rate * step;
    Floats(address(5)).v[i] = step;
    return;
  }
  const float dg = Floats(address(4)).v[i];
  const float slope = step == whole ? (Floats(address(5)).v[i] + dg * rate) * logistic(x).x : 0.0;
  store(address(6), kType, i, slope);
  if (push.sizes[2] == 0) return;
  Floats(address(8)).v[i] = dg * rate * step;
  Floats(address(9)).v[i] = slope;
}

void main() {
  const uint i = group_place() * 64 + invocation();
  if (i >= push.sizes[0]) return;
  const uint head = i % push.sizes[1];
  const float x = load(address(0), kType, i) + Floats(address(3)).v[head];
  if (kStateSpace) {
    of_step(i, x, -exact_exp(Floats(address(2)).v[head]));
    return;
  }
  const vec2 written = logistic(load(address(1), kType, i));
  const float rate = -exact_exp(Floats(address(2)).v[head]);
  const float g = rate * softplus(x);
  if (!kBackward) {
    Floats(address(4)).v[i] = g;
    Floats(address(5)).v[i] = written.x;
    return;
  }
  const float dg = Floats(address(4)).v[i];
  const float slope = dg * rate * logistic(x).x;
  store(address(6), kType, i, slope);
  store(address(7), kType, i, Floats(address(5)).v[i] * written.x * written.y);
  if (push.sizes[2] == 0) return;
  Floats(address(8)).v[i] = dg * g;
  Floats(address(9)).v[i] = slope;
}
