// attention_query_gradient.comp by matrix units.
//
// slots: q, k, v, lse, do, bounds, delta, dq. sizes: tokens, heads, key heads, window. factors: scale, cap.
// Workgroups: tiles of queries, heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#define OPERANDS 2
#define WEIGHTS 1
#define TENSORS 4
#define SCALES 8
#include "attention_units.glsl"

void main() {
  const uint head = workgroup().y;
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint key_head = head / (heads / key_heads);
  const int window = int(push.sizes[3]);
  Ints bounds = Ints(address(5));
  const int real = real_tokens(bounds);
  const int first_token = int(workgroup().x * kRows);
  const int last_token = min(first_token + int(kRows), real) - 1;
  if (last_token < first_token) {  // padding
    write_zeros(address(7), first_token, head, heads);
    return;
  }
  find_scales();
  const float scores_by = score_scale();
  const float slopes_by = slope_scale();
  const uint64_t keys = address(1);
  const uint64_t values = address(2);
  stage(rows_of(address(0), first_token, last_token, head, heads), kRows, 0, exponents.x);
  stage(rows_of(address(4), first_token, last_token, head, heads), kRows, kRows, exponents.w);
  const uint row = own_row();
  const int token = first_token + int(row);
  const int seen_from = first_seen(bounds, token, window);
  const uint query = uint(min(token, last_token)) * heads + head;
  const float lse = Floats(address(3)).v[query];
  const float delta = scaled_delta(Floats(address(6)).v[query]);
  Sums sums[kSums];
  [[unroll]] for (uint i = 0; i < kSums; ++i) sums[i] = Sums(0.0);
  int first = first_seen(bounds, first_token, window);
  uvec4 held_keys[kReads];
  uvec4 held_values[kReads];
  fetch_passing(rows_of(keys, first, last_token, key_head, key_heads), held_keys);
  fetch_passing(rows_of(values, first, last_token, key_head, key_heads), held_values);
  for (; first <= last_token; first += int(kPassing)) {
    barrier();
    put_passing(rows_of(keys, first, last_token, key_head, key_heads), held_keys, kFirstPassing, exponents.y);
    put_passing(rows_of(values, first, last_token, key_head, key_heads), held_values, kFirstPassing + kPassing,
                exponents.z);
    barrier();
    const int next = min(first + int(kPassing), last_token);
    fetch_passing(rows_of(keys, next, last_token, key_head, key_heads), held_keys);
    fetch_passing(rows_of(values, next, last_token, key_head, key_heads), held_values);
    make_scores();
    barrier();
    [[unroll]] for (uint eight = 0; row < kRows && eight < kColumns / 8; ++eight) {
      float slopes[8];
      float dp[8];
      get_scores(0, row, eight, slopes);
      get_scores(1, row, eight, dp);
      [[unroll]] for (uint c = 0; c < 8; ++c) {
        const int key = first + int(first_column() + 8 * eight + c);
        const vec2 score = score_of(slopes[c] * scores_by);
        const float weight = exp(score.x - lse);
        slopes[c] = key >= seen_from && key <= token ? weight * (dp[c] - delta) * slopes_by : 0.0;
        if (kCapped) slopes[c] *= score.y;
      }
      put_weights(0, row, eight, slopes);
    }
    barrier();
    add_weighted(sums, 0, kFirstPassing);
  }
  for (uint row = invocation(); row < kRows; row += gl_WorkGroupSize.x) {
    by_row[row] = slope_sum_scale();
  }
  write_rows(sums, address(7), first_token, head, heads, kSlopeBits - exponents.y - exponents.z - exponents.w);
}
