// What a sink makes of attention: one more score of each query, whose value is zero.
//
// slots: o [T, H, D], lse [T, H], sinks [H], o with the sink, lse with it. sizes: elements of o, D, H.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "spread.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 2) const uint kEach = 1;  // steps of an invocation, for which tensors are looked up once

/// log(e^a + e^b), of whose exponentials the larger one is taken out.
float log_of_both(float a, float b) {
  const float rest = exact_exp(-abs(a - b));
  precise float sum = 1.0 + rest;
  precise float lost = rest - (sum - 1.0);
  return max(a, b) + (exact_log(sum) + lost / sum);
}

void main() {
  const uint64_t o = address(0);
  const uint64_t lse = address(1);
  const uint64_t sinks = address(2);
  const uint64_t with_sink = address(3);
  const uint64_t total = address(4);
  const uint width = push.sizes[1];
  const uint first = group_place() * 256 * kEach + invocation();
  for (uint e = 0; e < kEach; ++e) {
    const uint i = (first + e * 256) * kStep;
    if (i >= push.sizes[0]) break;
    const uint query = i / width;
    const float own = Floats(lse).v[query];
    const float sink = load(sinks, kType, query % push.sizes[2]);
    store_step(with_sink, i, load_step(o, i) * logistic(own - sink).x);
    if (i % width == 0) Floats(total).v[query] = log_of_both(own, sink);
  }
}
