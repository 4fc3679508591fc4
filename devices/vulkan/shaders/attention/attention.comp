// Causal attention of one tile of queries: keys go by tile by tile, with the running maximum, sum and output rescaled.
//
// slots: q, k, v, bounds, o, lse, positions. sizes: tokens, heads, key heads, window, rows of
// the cache. factors: scale, cap.
// Workgroups: tiles of queries, heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention.glsl"

shared vec4 query_tile[kTile * kPitch];
shared vec4 key_tile[kTile * kPitch];  // then the values'
shared vec4 scores[kTile * kRowFours];

const float kLowest = -1.0e30;

void main() {
  const uint row = invocation() / kLanes;
  const uint lane = invocation() % kLanes;
  const uint head = workgroup().y;
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint key_head = head / (heads / key_heads);
  const int window = int(push.sizes[3]);
  Ints bounds = Ints(address(3));
  const int real = real_tokens(bounds);
  const int token = int(workgroup().x * kTile + row);
  const int first_token = int(workgroup().x * kTile);
  const int last_token = min(first_token + int(kTile), real) - 1;

  int seen_from = 0x7FFFFFFF;
  int seen_to = -1;
  int tile_from = 0;
  int tile_to = -1;  // of all rows
  if (last_token >= first_token) {
    const uint64_t queries = address(0);
    vec4 held[kReads];
    [[unroll]] for (uint i = 0; i < kReads; ++i) {
      held[i] = read_of_tile(queries, i, first_token, last_token, head, heads);
    }
    [[unroll]] for (uint i = 0; i < kReads; ++i) query_tile[place_of_read(i)] = held[i];
    if (kCached) {
      Ints positions = Ints(address(6));
      tile_from = window == 0 ? 0 : max(0, positions.v[first_token] - window + 1);
      tile_to = min(positions.v[last_token], int(push.sizes[4]) - 1);
      if (token < real) {
        seen_to = min(positions.v[token], int(push.sizes[4]) - 1);
        seen_from = window == 0 ? 0 : max(0, seen_to - window + 1);
      }
    } else {
      tile_from = first_seen(bounds, first_token, window);
      tile_to = last_token;
      if (token < real) {
        seen_to = token;
        seen_from = first_seen(bounds, token, window);
      }
    }
  }

  float maximum = kLowest;
  float total = 0.0;
  vec4 sums[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) sums[i] = vec4(0.0);
  const uint64_t keys = address(1);
  const uint64_t values = address(2);
  for (int first = tile_from; first <= tile_to; first += int(kTile)) {
    vec4 held[kReads];
    [[unroll]] for (uint i = 0; i < kReads; ++i) {
      held[i] = read_of_tile(keys, i, first, tile_to, key_head, key_heads);
    }
    [[unroll]] for (uint i = 0; i < kReads; ++i) key_tile[place_of_read(i)] = held[i];
    barrier();
    // The values, while scores are made.
    [[unroll]] for (uint i = 0; i < kReads; ++i) {
      held[i] = read_of_tile(values, i, first, tile_to, key_head, key_heads);
    }
    float own[kColumns];
    [[unroll]] for (uint j = 0; j < kColumns; ++j) own[j] = 0.0;
    for (uint four = 0; four < kFours; four += kTogether) {
      [[unroll]] for (uint k = 0; k < kTogether; ++k) {
        const vec4 q = query_tile[row * kPitch + four + k];
        [[unroll]] for (uint j = 0; j < kColumns; ++j) {
          own[j] += dot(q, key_tile[min(lane + j * kLanes, kTile - 1) * kPitch + four + k]);
        }
      }
    }
    [[unroll]] for (uint j = 0; j < kColumns; ++j) {
      const uint c = lane + j * kLanes;
      const int key = first + int(c);
      own[j] = key >= seen_from && key <= seen_to ? score_of(own[j] * push.factors[0]).x : kLowest;
      if (c < kTile) scores[row * kRowFours + c / 4][c % 4] = own[j];
    }
    barrier();
    [[unroll]] for (uint i = 0; i < kReads; ++i) key_tile[place_of_read(i)] = held[i];
    float highest = maximum;
    [[unroll]] for (uint c = 0; c < kRowFours; ++c) {
      const vec4 four = scores[row * kRowFours + c];
      [[unroll]] for (uint j = 0; j < kOfFour; ++j) highest = max(highest, four[j]);
    }
    barrier();
    [[unroll]] for (uint j = 0; j < kColumns; ++j) {
      const uint c = lane + j * kLanes;
      if (c < kTile) scores[row * kRowFours + c / 4][c % 4] = own[j] > kLowest ? exact_exp(own[j] - highest) : 0.0;
    }
    barrier();
    const float factor = exact_exp(maximum - highest);
    maximum = highest;
    float added = 0.0;
    [[unroll]] for (uint i = 0; i < kEach; ++i) sums[i] *= factor;
    [[unroll]] for (uint c = 0; c < kRowFours; ++c) {
      const vec4 p = scores[row * kRowFours + c];
      [[unroll]] for (uint j = 0; j < kOfFour; ++j) {
        added += p[j];
        [[unroll]] for (uint i = 0; i < kEach; ++i) {
          sums[i] += p[j] * key_tile[(4 * c + j) * kPitch + min(lane + i * kLanes, kFours - 1)];
        }
      }
    }
    total = total * factor + added;
    barrier();
  }
  if (token >= int(push.sizes[0])) return;
  const uint query = uint(token) * heads + head;
  const uint64_t to = address(4);
  const float inverse = token < real ? 1.0 / total : 0.0;
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    const uint four = lane + i * kLanes;
    if (four < kFours) store_channels(to, query, four, sums[i] * inverse);
  }
  if (lane == 0) {
    Floats(address(5)).v[query] = token < real ? maximum + exact_log(total) : 0.0;
  }
}
