// Causal attention of one tile of queries: keys go by tile by tile, with the running maximum, sum and output rescaled.
//
// slots: q, k, v, bounds, o, lse, positions. sizes: tokens, heads, key heads, window, rows of
// the cache. factors: scale.
// Workgroups: tiles of queries, heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention.glsl"

shared vec4 query_tile[kTile * kPitch];
shared vec4 key_tile[kTile * kPitch];  // then the values'
shared float scores[kTile * kTile];

const float kLowest = -1.0e30;

void load_keys(uint64_t from, int first, int last, uint head, uint heads) {
  for (uint i = gl_LocalInvocationIndex; i < kTile * kFours; i += 64) {
    const int key = first + int(i / kFours);
    const uint four = i % kFours;
    key_tile[i / kFours * kPitch + four] =
        key <= last ? load_channels(from, uint(key) * heads + head, four) : vec4(0.0);
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

  const uint query = uint(token) * heads + head;
  for (uint four = lane; four < kFours; four += kLanes) {
    query_tile[row * kPitch + four] = token < real ? load_channels(address(0), query, four) : vec4(0.0);
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
  vec4 sums[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) sums[i] = vec4(0.0);
  for (int first = tile_from; first <= tile_to; first += int(kTile)) {
    load_keys(address(1), first, tile_to, key_head, key_heads);
    barrier();
    float own[kColumns];
    [[unroll]] for (uint j = 0; j < kColumns; ++j) own[j] = 0.0;
    for (uint four = 0; four < kFours; ++four) {
      const vec4 q = query_tile[row * kPitch + four];
      [[unroll]] for (uint j = 0; j < kColumns; ++j) {
        own[j] += dot(q, key_tile[min(lane + j * kLanes, kTile - 1) * kPitch + four]);
      }
    }
    [[unroll]] for (uint j = 0; j < kColumns; ++j) {
      const uint c = lane + j * kLanes;
      const int key = first + int(c);
      if (c < kTile) scores[row * kTile + c] = key >= seen_from && key <= seen_to ? own[j] * push.factors[0] : kLowest;
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
    [[unroll]] for (uint i = 0; i < kEach; ++i) sums[i] *= factor;
    for (uint c = 0; c < kTile; ++c) {
      const float p = scores[row * kTile + c];
      [[unroll]] for (uint i = 0; i < kEach; ++i) {
        sums[i] += p * key_tile[c * kPitch + min(lane + i * kLanes, kFours - 1)];
      }
    }
    barrier();
  }
  if (token >= int(push.sizes[0])) return;
  const float inverse = token < real ? 1.0 / total : 0.0;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    const uint four = lane + i * kLanes;
    if (four < kFours) store_channels(address(4), query, four, sums[i] * inverse);
  }
  if (!kCached && lane == 0) {
    Floats(address(5)).v[query] = token < real ? maximum + exact_log(total) : 0.0;
  }
}
