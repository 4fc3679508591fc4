// dq of one tile of queries: with p = e^(score - lse) and ds = p (do . v - delta), dq = scale * sum over keys of ds k.
//
// slots: q, k, v, lse, do, bounds, delta, dq. sizes: tokens, heads, key heads, window. factors: scale.
// Workgroups: tiles of queries, heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention.glsl"

shared vec4 query_tile[kTile * kPitch];
shared vec4 output_tile[kTile * kPitch];  // do
shared vec4 key_tile[kTile * kPitch];
shared vec4 value_tile[kTile * kPitch];
shared float slopes[kTile * kTile];

void main() {
  const uint row = gl_LocalInvocationIndex / kLanes;
  const uint lane = gl_LocalInvocationIndex % kLanes;
  const uint head = gl_WorkGroupID.y;
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint key_head = head / (heads / key_heads);
  const int window = int(push.sizes[3]);
  Ints bounds = Ints(address(5));
  const int real = real_tokens(bounds);
  const int first_token = int(gl_WorkGroupID.x * kTile);
  const int token = first_token + int(row);
  const int last_token = min(first_token + int(kTile), real) - 1;
  const uint query = uint(token) * heads + head;
  for (uint four = lane; four < kFours; four += kLanes) {
    query_tile[row * kPitch + four] = token < real ? load_channels(address(0), query, four) : vec4(0.0);
    output_tile[row * kPitch + four] = token < real ? load_channels(address(4), query, four) : vec4(0.0);
  }
  const int seen_from = first_seen(bounds, token, window);
  const float lse = token < real ? Floats(address(3)).v[query] : 0.0;
  const float delta = token < real ? Floats(address(6)).v[query] : 0.0;
  const int tile_from = last_token >= first_token ? first_seen(bounds, first_token, window) : 0;
  vec4 sums[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) sums[i] = vec4(0.0);
  for (int first = tile_from; first <= last_token; first += int(kTile)) {
    for (uint i = gl_LocalInvocationIndex; i < kTile * kFours; i += 64) {
      const int key = first + int(i / kFours);
      const uint to = i / kFours * kPitch + i % kFours;
      const uint at = uint(key) * key_heads + key_head;
      key_tile[to] = key <= last_token ? load_channels(address(1), at, i % kFours) : vec4(0.0);
      value_tile[to] = key <= last_token ? load_channels(address(2), at, i % kFours) : vec4(0.0);
    }
    barrier();
    float score[kColumns];
    float dp[kColumns];
    [[unroll]] for (uint j = 0; j < kColumns; ++j) {
      score[j] = 0.0;
      dp[j] = 0.0;
    }
    for (uint four = 0; four < kFours; ++four) {
      const vec4 q = query_tile[row * kPitch + four];
      const vec4 d_o = output_tile[row * kPitch + four];
      [[unroll]] for (uint j = 0; j < kColumns; ++j) {
        const uint at = min(lane + j * kLanes, kTile - 1) * kPitch + four;
        score[j] += dot(q, key_tile[at]);
        dp[j] += dot(d_o, value_tile[at]);
      }
    }
    [[unroll]] for (uint j = 0; j < kColumns; ++j) {
      const uint c = lane + j * kLanes;
      const int key = first + int(c);
      const bool seen = token < real && key >= seen_from && key <= token;
      if (c < kTile) {
        slopes[row * kTile + c] =
            seen ? exact_exp(score[j] * push.factors[0] - lse) * (dp[j] - delta) * push.factors[0] : 0.0;
      }
    }
    barrier();
    for (uint c = 0; c < kTile; ++c) {
      const float slope = slopes[row * kTile + c];
      [[unroll]] for (uint i = 0; i < kEach; ++i) {
        sums[i] += slope * key_tile[c * kPitch + min(lane + i * kLanes, kFours - 1)];
      }
    }
    barrier();
  }
  if (token >= int(push.sizes[0])) return;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    const uint four = lane + i * kLanes;
    if (four < kFours) store_channels(address(7), query, four, sums[i]);
  }
}
