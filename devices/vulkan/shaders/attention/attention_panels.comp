// Causal attention of eight queries of one head, from keys and values in the panel: four keys at a time, with the
// running maximum, sum and output rescaled.
//
// slots: q, bounds, o, lse, positions. sizes: tokens, heads, key heads, window, places of k and of v, -, of q where
// heads are wide, -, rows of the cache. factors: scale, cap.
// Workgroups: eights of queries, heads, slices.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention_panels.glsl"

layout(constant_id = 2) const bool kCached = false;  // keys are a cache's rows, queries stand at `positions`

const uint kAtOnce = 4;

/// Channels of a query by fours. Of heads of one slice; others' are in the panel.
void load_query(uint64_t from, uint row, bool there, out vec4 channels[kFours]) {
  [[unroll]] for (uint four = 0; four < kFours; ++four) {
    vec4 value = vec4(0.0);
    if (kWidth % 4 == 0) {
      if (there) value = load_four(from, kType, row * kWidth + 4 * four);
    } else {
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (there && 4 * four + j < kWidth) value[j] = load(from, kType, row * kWidth + 4 * four + j);
      }
    }
    channels[four] = value;
  }
}
void main() {
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint head = workgroup().y;
  const uint key_head = head / (heads / key_heads);
  const int window = int(push.sizes[3]);
  Ints bounds = Ints(address(1));
  const int real = real_tokens(bounds);
  const int first_token = int(workgroup().x * 8);
  const int token = first_token + int(gl_SubgroupInvocationID);
  const int last_token = min(first_token + 8, real) - 1;
  const uint row = uint(token) * heads + head;
  vec4 query[kFours];
  if (kSlices == 1) load_query(address(0), row, token < real, query);
  int seen_to = token;
  int seen_from = 0;
  int from = 0;
  int to = last_token;  // of all eight
  if (kCached) {
    Ints positions = Ints(address(4));
    const int last = int(push.sizes[9]) - 1;
    if (last_token >= first_token) {
      seen_to = min(positions.v[min(token, last_token)], last);
      seen_from = window == 0 ? 0 : max(0, seen_to - window + 1);
      from = window == 0 ? 0 : max(0, positions.v[first_token] - window + 1);
      to = min(positions.v[last_token], last);
    }
  } else {
    seen_from = first_seen(bounds, token, window);
    if (last_token >= first_token) from = first_seen(bounds, first_token, window);
  }

  float maximum = kLowest;
  float total = 0.0;
  vec4 sums[kFours];
  [[unroll]] for (uint four = 0; four < kFours; ++four) sums[four] = vec4(0.0);
  for (int first = from; first <= to; first += int(kAtOnce)) {
    float scores[kAtOnce];
    [[unroll]] for (uint i = 0; i < kAtOnce; ++i) scores[i] = 0.0;
    for (uint slice = 0; slice < kSlices; ++slice) {
      if (kSlices > 1) fetch_row(push.sizes[7], min(row, push.sizes[0] * heads - 1), slice, query);
      [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
        vec4 channels[kFours];
        fetch_row(push.sizes[4], uint(min(first + int(i), to)) * key_heads + key_head, slice, channels);
        scores[i] += product(query, channels);
      }
    }
    float highest = maximum;
    [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
      const int key = first + int(i);
      const bool seen = key >= seen_from && key <= seen_to && token < real;
      scores[i] = seen ? score_of(scores[i] * push.factors[0]).x : kLowest;
      highest = max(highest, scores[i]);
    }
    const float factor = exact_exp(maximum - highest);
    maximum = highest;
    total *= factor;
    [[unroll]] for (uint four = 0; four < kFours; ++four) sums[four] *= factor;
    [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
      vec4 channels[kFours];
      fetch_row(push.sizes[5], uint(min(first + int(i), to)) * key_heads + key_head, own_slice(), channels);
      const float p = scores[i] > kLowest ? exact_exp(scores[i] - highest) : 0.0;
      total += p;
      [[unroll]] for (uint four = 0; four < kFours; ++four) sums[four] += p * channels[four];
    }
  }
  if (token >= int(push.sizes[0])) return;
  store_row(address(2), row, sums, token < real ? 1.0 / total : 0.0);
  if (own_slice() == 0) Floats(address(3)).v[row] = token < real ? maximum + exact_log(total) : 0.0;
}
