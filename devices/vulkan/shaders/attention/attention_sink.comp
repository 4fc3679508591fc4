// What a sink makes of attention: one more score of each query, whose value is zero.
//
// slots: o [T, H, D], lse [T, H], sinks [H], o with the sink, lse with it. sizes: elements of o, D, H.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "spread.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 2) const uint kEach = 1;  // steps of an invocation, all of one query

/// log(e^a + e^b), of whose exponentials the larger one is taken out.
float log_of_both(float a, float b) {
  const float rest = exact_exp(-abs(a - b));
  precise float sum = 1.0 + rest;
  precise float lost = rest - (sum - 1.0);
  return max(a, b) + (exact_log(sum) + lost / sum);
}

void main() {
  const uint first = (group_place() * 256 + invocation()) * kEach * kStep;
  if (first >= push.sizes[0]) return;
  const uint width = push.sizes[1];
  const uint query = first / width;
  const float own = Floats(address(1)).v[query];
  const float sink = load(address(2), kType, query % push.sizes[2]);
  const float part = logistic(own - sink).x;
  const uint64_t o = address(0);
  const uint64_t with_sink = address(3);
  for (uint e = 0; e < kEach; ++e) {
    const uint i = first + e * kStep;
    store_step(with_sink, i, load_step(o, i) * part);
  }
  if (first % width == 0) Floats(address(4)).v[query] = log_of_both(own, sink);
}
