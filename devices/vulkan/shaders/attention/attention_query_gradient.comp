// dq of one tile of queries: with p = e^(score - lse) and ds = p (do . v - delta), dq = scale * sum over keys of ds k.
//
// slots: q, k, v, lse, do, bounds, delta, dq. sizes: tokens, heads, key heads, window. factors: scale, cap.
// Workgroups: tiles of queries, heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention.glsl"

shared vec4 query_tile[kTile * kPitch];
shared vec4 output_tile[kTile * kPitch];  // do
shared vec4 key_tile[kTile * kPitch];
shared vec4 value_tile[kTile * kPitch];
shared vec4 slopes[kTile * kRowFours];

void main() {
  const uint row = invocation() / kLanes;
  const uint lane = invocation() % kLanes;
  const uint head = workgroup().y;
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint key_head = head / (heads / key_heads);
  const int window = int(push.sizes[3]);
  Ints bounds = Ints(address(5));
  const int real = real_tokens(bounds);
  const int first_token = int(workgroup().x * kTile);
  const int token = first_token + int(row);
  const int last_token = min(first_token + int(kTile), real) - 1;
  const uint query = uint(token) * heads + head;
  if (last_token < first_token) {  // padding
    if (token >= int(push.sizes[0])) return;
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      if (lane + i * kLanes < kFours) store_channels(address(7), query, lane + i * kLanes, vec4(0.0));
    }
    return;
  }
  const uint64_t keys = address(1);
  const uint64_t values = address(2);
  vec4 held[kReads];
  vec4 others[kReads];
  [[unroll]] for (uint i = 0; i < kReads; ++i) {
    held[i] = read_of_tile(address(0), i, first_token, last_token, head, heads);
    others[i] = read_of_tile(address(4), i, first_token, last_token, head, heads);
  }
  [[unroll]] for (uint i = 0; i < kReads; ++i) {
    query_tile[place_of_read(i)] = held[i];
    output_tile[place_of_read(i)] = others[i];
  }
  const int seen_from = first_seen(bounds, token, window);
  const float lse = token < real ? Floats(address(3)).v[query] : 0.0;
  const float delta = token < real ? Floats(address(6)).v[query] : 0.0;
  const int tile_from = first_seen(bounds, first_token, window);
  vec4 sums[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) sums[i] = vec4(0.0);
  for (int first = tile_from; first <= last_token; first += int(kTile)) {
    [[unroll]] for (uint i = 0; i < kReads; ++i) {
      held[i] = read_of_tile(keys, i, first, last_token, key_head, key_heads);
      others[i] = read_of_tile(values, i, first, last_token, key_head, key_heads);
    }
    [[unroll]] for (uint i = 0; i < kReads; ++i) {
      key_tile[place_of_read(i)] = held[i];
      value_tile[place_of_read(i)] = others[i];
    }
    barrier();
    float score[kColumns];
    float dp[kColumns];
    [[unroll]] for (uint j = 0; j < kColumns; ++j) {
      score[j] = 0.0;
      dp[j] = 0.0;
    }
    for (uint four = 0; four < kFours; four += kTogether) {
      [[unroll]] for (uint k = 0; k < kTogether; ++k) {
        const vec4 q = query_tile[row * kPitch + four + k];
        const vec4 d_o = output_tile[row * kPitch + four + k];
        [[unroll]] for (uint j = 0; j < kColumns; ++j) {
          const uint at = min(lane + j * kLanes, kTile - 1) * kPitch + four + k;
          score[j] += dot(q, key_tile[at]);
          dp[j] += dot(d_o, value_tile[at]);
        }
      }
    }
    [[unroll]] for (uint j = 0; j < kColumns; ++j) {
      const uint c = lane + j * kLanes;
      const int key = first + int(c);
      const bool seen = token < real && key >= seen_from && key <= token;
      if (c < kTile) {
        const vec2 of_score = score_of(score[j] * push.factors[0]);
        float slope = exact_exp(of_score.x - lse) * (dp[j] - delta) * push.factors[0];
        if (kCapped) slope *= of_score.y;
        slopes[row * kRowFours + c / 4][c % 4] = seen ? slope : 0.0;
      }
    }
    barrier();
    [[unroll]] for (uint c = 0; c < kRowFours; ++c) {
      const vec4 slope = slopes[row * kRowFours + c];
      [[unroll]] for (uint j = 0; j < kOfFour; ++j) {
        [[unroll]] for (uint i = 0; i < kEach; ++i) {
          sums[i] += slope[j] * key_tile[(4 * c + j) * kPitch + min(lane + i * kLanes, kFours - 1)];
        }
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
