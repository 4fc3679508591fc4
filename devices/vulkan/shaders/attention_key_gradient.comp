// dk and dv of one tile of keys: over the query heads that share the key head, and over the queries that see the tile,
// in rising order: dv = sum of p do, dk = scale * sum of ds q.
//
// slots: q, k, v, lse, do, bounds, delta, dk, dv. sizes: tokens, heads, key heads, window. factors: scale.
// Workgroups: tiles of keys, key heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention.glsl"

shared vec4 key_tile[kTile * kPitch];
shared vec4 value_tile[kTile * kPitch];
shared vec4 query_tile[kTile * kPitch];
shared vec4 output_tile[kTile * kPitch];  // do
shared float chances[kTile * kTile];      // by key, then query
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
  for (uint four = lane; four < kFours; four += kLanes) {
    key_tile[row * kPitch + four] = key < real ? load_channels(address(1), own, four) : vec4(0.0);
    value_tile[row * kPitch + four] = key < real ? load_channels(address(2), own, four) : vec4(0.0);
  }
  int last_token = -1;
  if (last_key >= first_key) {
    last_token = bounds.v[2 + sequence_of(bounds, last_key)] - 1;
    if (window != 0) last_token = min(last_token, last_key + window - 1);
  }
  vec4 key_sums[kEach];
  vec4 value_sums[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    key_sums[i] = vec4(0.0);
    value_sums[i] = vec4(0.0);
  }
  for (uint head = key_head * group; head < (key_head + 1) * group; ++head) {
    for (int first = first_key; first <= last_token; first += int(kTile)) {
      for (uint i = gl_LocalInvocationIndex; i < kTile * kFours; i += 64) {
        const int token = first + int(i / kFours);
        const uint to = i / kFours * kPitch + i % kFours;
        const uint at = uint(token) * heads + head;
        query_tile[to] = token <= last_token ? load_channels(address(0), at, i % kFours) : vec4(0.0);
        output_tile[to] = token <= last_token ? load_channels(address(4), at, i % kFours) : vec4(0.0);
      }
      if (gl_LocalInvocationIndex < kTile) {
        const int token = first + int(gl_LocalInvocationIndex);
        seen_from[gl_LocalInvocationIndex] = token <= last_token ? first_seen(bounds, token, window) : 0x7FFFFFFF;
      }
      barrier();
      float score[kColumns];
      float dp[kColumns];
      [[unroll]] for (uint j = 0; j < kColumns; ++j) {
        score[j] = 0.0;
        dp[j] = 0.0;
      }
      for (uint four = 0; four < kFours; ++four) {
        const vec4 k = key_tile[row * kPitch + four];
        const vec4 v = value_tile[row * kPitch + four];
        [[unroll]] for (uint j = 0; j < kColumns; ++j) {
          const uint at = min(lane + j * kLanes, kTile - 1) * kPitch + four;
          score[j] += dot(query_tile[at], k);
          dp[j] += dot(output_tile[at], v);
        }
      }
      [[unroll]] for (uint j = 0; j < kColumns; ++j) {
        const uint c = lane + j * kLanes;
        if (c < kTile) {
          const int token = first + int(c);
          float p = 0.0;
          float slope = 0.0;
          if (key >= seen_from[c] && key <= token && key < real) {
            const uint query = uint(token) * heads + head;
            p = exact_exp(score[j] * push.factors[0] - Floats(address(3)).v[query]);
            slope = p * (dp[j] - Floats(address(6)).v[query]) * push.factors[0];
          }
          chances[row * kTile + c] = p;
          slopes[row * kTile + c] = slope;
        }
      }
      barrier();
      for (uint c = 0; c < kTile; ++c) {
        const float p = chances[row * kTile + c];
        const float slope = slopes[row * kTile + c];
        [[unroll]] for (uint i = 0; i < kEach; ++i) {
          const uint at = c * kPitch + min(lane + i * kLanes, kFours - 1);
          key_sums[i] += slope * query_tile[at];
          value_sums[i] += p * output_tile[at];
        }
      }
      barrier();
    }
  }
  if (key >= int(push.sizes[0])) return;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    const uint four = lane + i * kLanes;
    if (four < kFours) {
      store_channels(address(7), own, four, key_sums[i]);
      store_channels(address(8), own, four, value_sums[i]);
    }
  }
}
