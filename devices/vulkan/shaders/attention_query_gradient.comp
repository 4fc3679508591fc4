// dq of one tile of queries: with p = e^(score - lse) and ds = p (do . v - delta), dq = scale * sum over keys of ds k.
//
// slots: q, k, v, lse, do, bounds, delta, dq. sizes: tokens, heads, key heads, window. factors: scale.
// Workgroups: tiles of queries, heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

shared float query_tile[kTile * kPitch];
shared float output_tile[kTile * kPitch];  // do
shared float key_tile[kTile * kPitch];
shared float value_tile[kTile * kPitch];
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
  for (uint d = lane; d < kWidth; d += kLanes) {
    query_tile[row * kPitch + d] = token < real ? load(address(0), kType, query * kWidth + d) : 0.0;
    output_tile[row * kPitch + d] = token < real ? load(address(4), kType, query * kWidth + d) : 0.0;
  }
  const int seen_from = first_seen(bounds, token, window);
  const float lse = token < real ? Floats(address(3)).v[query] : 0.0;
  const float delta = token < real ? Floats(address(6)).v[query] : 0.0;
  const int tile_from = last_token >= first_token ? first_seen(bounds, first_token, window) : 0;
  float sums[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) sums[i] = 0.0;
  for (int first = tile_from; first <= last_token; first += int(kTile)) {
    for (uint i = gl_LocalInvocationIndex; i < kTile * kWidth; i += 64) {
      const int key = first + int(i / kWidth);
      const uint d = i % kWidth;
      const uint at = (uint(key) * key_heads + key_head) * kWidth + d;
      key_tile[i / kWidth * kPitch + d] = key <= last_token ? load(address(1), kType, at) : 0.0;
      value_tile[i / kWidth * kPitch + d] = key <= last_token ? load(address(2), kType, at) : 0.0;
    }
    barrier();
    for (uint c = lane; c < kTile; c += kLanes) {
      const int key = first + int(c);
      float score = 0.0;
      float dp = 0.0;
      for (uint d = 0; d < kWidth; ++d) {
        score += query_tile[row * kPitch + d] * key_tile[c * kPitch + d];
        dp += output_tile[row * kPitch + d] * value_tile[c * kPitch + d];
      }
      const bool seen = token < real && key >= seen_from && key <= token;
      slopes[row * kTile + c] =
          seen ? exact_exp(score * push.factors[0] - lse) * (dp - delta) * push.factors[0] : 0.0;
    }
    barrier();
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      const uint d = min(lane + i * kLanes, kWidth - 1);
      float sum = 0.0;
      for (uint c = 0; c < kTile; ++c) sum += slopes[row * kTile + c] * key_tile[c * kPitch + d];
      sums[i] += sum;
    }
    barrier();
  }
  if (token >= int(push.sizes[0])) return;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    const uint d = lane + i * kLanes;
    if (d < kWidth) store(address(7), kType, query * kWidth + d, sums[i]);
  }
}
