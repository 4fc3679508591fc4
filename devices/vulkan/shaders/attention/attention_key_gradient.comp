// dk and dv of one tile of keys: over the query heads that share the key head, and over the queries that see the tile,
// in rising order: dv = sum of p do, dk = scale * sum of ds q.
//
// slots: q, k, v, lse, do, bounds, delta, dk, dv. sizes: tokens, heads, key heads, window. factors: scale, cap.
// Workgroups: tiles of keys, key heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention.glsl"

shared vec4 key_tile[kTile * kPitch];
shared vec4 value_tile[kTile * kPitch];
shared vec4 query_tile[kTile * kPitch];
shared vec4 output_tile[kTile * kPitch];  // do
shared vec4 chances[kTile * kRowFours];   // by key, then query
shared vec4 slopes[kTile * kRowFours];

void main() {
  const uint row = invocation() / kLanes;
  const uint lane = invocation() % kLanes;
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint key_head = workgroup().y;
  const uint group = heads / key_heads;
  const int window = int(push.sizes[3]);
  Ints bounds = Ints(address(5));
  const int real = real_tokens(bounds);
  const int first_key = int(workgroup().x * kTile);
  const int key = first_key + int(row);
  const int last_key = min(first_key + int(kTile), real) - 1;
  const uint own = uint(key) * key_heads + key_head;
  vec4 held[kReads];
  vec4 others[kReads];
  int last_token = -1;
  int last_seer = -1;  // of the key, in its own sequence
  if (last_key >= first_key) {
    [[unroll]] for (uint i = 0; i < kReads; ++i) {
      held[i] = read_of_tile(address(1), i, first_key, last_key, key_head, key_heads);
      others[i] = read_of_tile(address(2), i, first_key, last_key, key_head, key_heads);
    }
    [[unroll]] for (uint i = 0; i < kReads; ++i) {
      key_tile[place_of_read(i)] = held[i];
      value_tile[place_of_read(i)] = others[i];
    }
    last_token = bounds.v[2 + sequence_of(bounds, last_key)] - 1;
    if (key < real) last_seer = bounds.v[2 + sequence_of(bounds, key)] - 1;
    if (window != 0) {
      last_token = min(last_token, last_key + window - 1);
      last_seer = min(last_seer, key + window - 1);
    }
  }
  const uint64_t queries = address(0);
  const uint64_t outputs = address(4);
  const uint64_t all_lse = address(3);
  const uint64_t all_delta = address(6);
  vec4 key_sums[kEach];
  vec4 value_sums[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    key_sums[i] = vec4(0.0);
    value_sums[i] = vec4(0.0);
  }
  for (uint head = key_head * group; head < (key_head + 1) * group; ++head) {
    for (int first = first_key; first <= last_token; first += int(kTile)) {
      [[unroll]] for (uint i = 0; i < kReads; ++i) {
        held[i] = read_of_tile(queries, i, first, last_token, head, heads);
        others[i] = read_of_tile(outputs, i, first, last_token, head, heads);
      }
      float lse[kColumns];
      float delta[kColumns];
      [[unroll]] for (uint j = 0; j < kColumns; ++j) {
        const uint query = uint(min(first + int(lane + j * kLanes), last_token)) * heads + head;
        lse[j] = Floats(all_lse).v[query];
        delta[j] = Floats(all_delta).v[query];
      }
      [[unroll]] for (uint i = 0; i < kReads; ++i) {
        query_tile[place_of_read(i)] = held[i];
        output_tile[place_of_read(i)] = others[i];
      }
      barrier();
      float score[kColumns];
      float dp[kColumns];
      [[unroll]] for (uint j = 0; j < kColumns; ++j) {
        score[j] = 0.0;
        dp[j] = 0.0;
      }
      for (uint four = 0; four < kFours; four += kTogether) {
        [[unroll]] for (uint i = 0; i < kTogether; ++i) {
          const vec4 k = key_tile[row * kPitch + four + i];
          const vec4 v = value_tile[row * kPitch + four + i];
          [[unroll]] for (uint j = 0; j < kColumns; ++j) {
            const uint at = min(lane + j * kLanes, kTile - 1) * kPitch + four + i;
            score[j] += dot(query_tile[at], k);
            dp[j] += dot(output_tile[at], v);
          }
        }
      }
      [[unroll]] for (uint j = 0; j < kColumns; ++j) {
        const uint c = lane + j * kLanes;
        const int token = first + int(c);
        if (c < kTile) {
          const bool seen = token >= key && token <= last_seer;
          const vec2 of_score = score_of(score[j] * push.factors[0]);
          const float p = seen ? exact_exp(of_score.x - lse[j]) : 0.0;
          float slope = p * (dp[j] - delta[j]) * push.factors[0];
          if (kCapped) slope *= of_score.y;
          chances[row * kRowFours + c / 4][c % 4] = p;
          slopes[row * kRowFours + c / 4][c % 4] = seen ? slope : 0.0;
        }
      }
      barrier();
      [[unroll]] for (uint c = 0; c < kRowFours; ++c) {
        const vec4 p = chances[row * kRowFours + c];
        const vec4 slope = slopes[row * kRowFours + c];
        [[unroll]] for (uint j = 0; j < kOfFour; ++j) {
          [[unroll]] for (uint i = 0; i < kEach; ++i) {
            const uint at = (4 * c + j) * kPitch + min(lane + i * kLanes, kFours - 1);
            key_sums[i] += slope[j] * query_tile[at];
            value_sums[i] += p[j] * output_tile[at];
          }
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
