// do . o of every token and head: what the softmax takes off each gradient of a probability. With a sink, times minus
// its probability: what the query adds to the sink's gradient.
//
// slots: o, do, delta [T, H], lse [T, H], sinks [H]. sizes: rows (T H), width of a head, heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "spread.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 2) const bool kSink = false;

void main() {
  const uint row = group_place() * 64 + invocation();
  if (row >= push.sizes[0]) return;
  const uint width = push.sizes[1];
  const uint64_t o = address(0);
  const uint64_t d_o = address(1);
  float sum = 0.0;
  for (uint d = 0; d < width; d += kStep) {
    const vec4 terms = load_step(o, row * width + d) * load_step(d_o, row * width + d);
    [[unroll]] for (uint j = 0; j < kStep; ++j) sum += terms[j];
  }
  if (kSink) sum *= -exact_exp(load(address(4), kType, row % push.sizes[2]) - Floats(address(3)).v[row]);
  Floats(address(2)).v[row] = sum;
}
