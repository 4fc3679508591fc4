// Causal attention of one tile of queries: keys go by tile by tile, with the running maximum, sum and output rescaled.
//
// slots: q, k, v, bounds, o, lse, positions. sizes: tokens, heads, key heads, window, rows of
// the cache. factors: scale.
// Workgroups: tiles of queries, heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

shared float query_tile[kTile * kPitch];
shared float key_tile[kTile * kPitch];  // then the values'
shared float scores[kTile * kTile];

const float kLowest = -1.0e30;

void load_keys(uint64_t from, int first, int last, uint head, uint heads) {
  for (uint i = gl_LocalInvocationIndex; i < kTile * kWidth; i += 64) {
    const int key = first + int(i / kWidth);
    const uint d = i % kWidth;
    key_tile[i / kWidth * kPitch + d] =
        key <= last ? load(from, kType, (uint(key) * heads + head) * kWidth + d) : 0.0;
  }
}

void main() {
  const uint row = gl_LocalInvocationIndex / kLanes;
  const uint lane = gl_LocalInvocationIndex % kLanes;
  const uint head = gl_WorkGroupID.y;
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint key_head = head / (heads / key_heads);
  const int window = int(push.sizes[3]);
  Ints bounds = Ints(address(3));
  const int real = real_tokens(bounds);
  const int token = int(gl_WorkGroupID.x * kTile + row);
  const int first_token = int(gl_WorkGroupID.x * kTile);
  const int last_token = min(first_token + int(kTile), real) - 1;

  for (uint d = lane; d < kWidth; d += kLanes) {
    query_tile[row * kPitch + d] =
        token < real ? load(address(0), kType, (uint(token) * heads + head) * kWidth + d) : 0.0;
  }
  int seen_from = 0x7FFFFFFF;
  int seen_to = -1;
  int tile_from = 0;
  int tile_to = -1;  // of all rows
  if (kCached) {
    Ints positions = Ints(address(6));
    if (token < real) {
      seen_to = min(positions.v[token], int(push.sizes[4]) - 1);
      seen_from = window == 0 ? 0 : max(0, seen_to - window + 1);
    }
    if (last_token >= first_token) {
      tile_from = window == 0 ? 0 : max(0, positions.v[first_token] - window + 1);
      tile_to = min(positions.v[last_token], int(push.sizes[4]) - 1);
    }
  } else {
    if (token < real) {
      seen_to = token;
      seen_from = first_seen(bounds, token, window);
    }
    if (last_token >= first_token) {
      tile_from = first_seen(bounds, first_token, window);
      tile_to = last_token;
    }
  }

  float maximum = kLowest;
  float total = 0.0;
  float sums[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) sums[i] = 0.0;
  for (int first = tile_from; first <= tile_to; first += int(kTile)) {
    load_keys(address(1), first, tile_to, key_head, key_heads);
    barrier();
    for (uint c = lane; c < kTile; c += kLanes) {
      const int key = first + int(c);
      float score = 0.0;
      for (uint d = 0; d < kWidth; ++d) score += query_tile[row * kPitch + d] * key_tile[c * kPitch + d];
      scores[row * kTile + c] = key >= seen_from && key <= seen_to ? score * push.factors[0] : kLowest;
    }
    barrier();
    load_keys(address(2), first, tile_to, key_head, key_heads);
    float highest = maximum;
    for (uint c = 0; c < kTile; ++c) highest = max(highest, scores[row * kTile + c]);
    barrier();
    for (uint c = lane; c < kTile; c += kLanes) {
      const float score = scores[row * kTile + c];
      scores[row * kTile + c] = score > kLowest ? exact_exp(score - highest) : 0.0;
    }
    barrier();
    const float factor = exact_exp(maximum - highest);
    maximum = highest;
    float added = 0.0;
    for (uint c = 0; c < kTile; ++c) added += scores[row * kTile + c];
    total = total * factor + added;
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      const uint d = min(lane + i * kLanes, kWidth - 1);
      float sum = 0.0;
      for (uint c = 0; c < kTile; ++c) sum += scores[row * kTile + c] * key_tile[c * kPitch + d];
      sums[i] = sums[i] * factor + sum;
    }
    barrier();
  }
  if (token >= int(push.sizes[0])) return;
  const float inverse = token < real ? 1.0 / total : 0.0;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    const uint d = lane + i * kLanes;
    if (d < kWidth) store(address(4), kType, (uint(token) * heads + head) * kWidth + d, sums[i] * inverse);
  }
  if (!kCached && lane == 0) {
    Floats(address(5)).v[uint(token) * heads + head] = token < real ? maximum + exact_log(total) : 0.0;
  }
}
