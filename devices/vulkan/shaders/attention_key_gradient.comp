// dk and dv of one tile of keys: over the query heads that share the key head, and over the queries that see the tile,
// in rising order: dv = sum of p do, dk = scale * sum of ds q.
//
// slots: q, k, v, lse, do, bounds, delta, dk, dv. sizes: tokens, heads, key heads, window. factors: scale.
// Workgroups: tiles of keys, key heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

shared float key_tile[kTile * kPitch];
shared float value_tile[kTile * kPitch];
shared float query_tile[kTile * kPitch];
shared float output_tile[kTile * kPitch];  // do
shared float chances[kTile * kTile];       // by key, then query
shared float slopes[kTile * kTile];
shared int seen_from[kTile];  // by query

void main() {
  const uint row = gl_LocalInvocationIndex / kLanes;
  const uint lane = gl_LocalInvocationIndex % kLanes;
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint key_head = gl_WorkGroupID.y;
  const uint group = heads / key_heads;
  const int window = int(push.sizes[3]);
  Ints bounds = Ints(address(5));
  const int real = real_tokens(bounds);
  const int first_key = int(gl_WorkGroupID.x * kTile);
  const int key = first_key + int(row);
  const int last_key = min(first_key + int(kTile), real) - 1;
  const uint own = uint(key) * key_heads + key_head;
  for (uint d = lane; d < kWidth; d += kLanes) {
    key_tile[row * kPitch + d] = key < real ? load(address(1), kType, own * kWidth + d) : 0.0;
    value_tile[row * kPitch + d] = key < real ? load(address(2), kType, own * kWidth + d) : 0.0;
  }
  int last_token = -1;
  if (last_key >= first_key) {
    last_token = bounds.v[2 + sequence_of(bounds, last_key)] - 1;
    if (window != 0) last_token = min(last_token, last_key + window - 1);
  }
  float key_sums[kEach];
  float value_sums[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    key_sums[i] = 0.0;
    value_sums[i] = 0.0;
  }
  for (uint head = key_head * group; head < (key_head + 1) * group; ++head) {
    for (int first = first_key; first <= last_token; first += int(kTile)) {
      for (uint i = gl_LocalInvocationIndex; i < kTile * kWidth; i += 64) {
        const int token = first + int(i / kWidth);
        const uint d = i % kWidth;
        const uint at = (uint(token) * heads + head) * kWidth + d;
        query_tile[i / kWidth * kPitch + d] = token <= last_token ? load(address(0), kType, at) : 0.0;
        output_tile[i / kWidth * kPitch + d] = token <= last_token ? load(address(4), kType, at) : 0.0;
      }
      if (gl_LocalInvocationIndex < kTile) {
        const int token = first + int(gl_LocalInvocationIndex);
        seen_from[gl_LocalInvocationIndex] = token <= last_token ? first_seen(bounds, token, window) : 0x7FFFFFFF;
      }
      barrier();
      for (uint c = lane; c < kTile; c += kLanes) {
        const int token = first + int(c);
        const bool seen = key >= seen_from[c] && key <= token && key < real;
        float score = 0.0;
        float dp = 0.0;
        for (uint d = 0; d < kWidth; ++d) {
          score += query_tile[c * kPitch + d] * key_tile[row * kPitch + d];
          dp += output_tile[c * kPitch + d] * value_tile[row * kPitch + d];
        }
        float p = 0.0;
        float slope = 0.0;
        if (seen) {
          const uint query = uint(token) * heads + head;
          p = exact_exp(score * push.factors[0] - Floats(address(3)).v[query]);
          slope = p * (dp - Floats(address(6)).v[query]) * push.factors[0];
        }
        chances[row * kTile + c] = p;
        slopes[row * kTile + c] = slope;
      }
      barrier();
      [[unroll]] for (uint i = 0; i < kEach; ++i) {
        const uint d = min(lane + i * kLanes, kWidth - 1);
        float key_sum = 0.0;
        float value_sum = 0.0;
        for (uint c = 0; c < kTile; ++c) {
          key_sum += slopes[row * kTile + c] * query_tile[c * kPitch + d];
          value_sum += chances[row * kTile + c] * output_tile[c * kPitch + d];
        }
        key_sums[i] += key_sum;
        value_sums[i] += value_sum;
      }
      barrier();
    }
  }
  if (key >= int(push.sizes[0])) return;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    const uint d = lane + i * kLanes;
    if (d < kWidth) {
      store(address(7), kType, own * kWidth + d, key_sums[i]);
      store(address(8), kType, own * kWidth + d, value_sums[i]);
    }
  }
}
