// attention_key_gradient.comp by matrix units.
//
// slots: q, k, v, lse, do, bounds, delta, dk, dv. sizes: tokens, heads, key heads, window. factors: scale, cap.
// Workgroups: tiles of keys, key heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#define OPERANDS 2
#define WEIGHTS 2
#define TENSORS 4
#define SCALES 9
#include "attention_units.glsl"

shared vec2 known[kPassing];  // lse and delta of the queries that pass

void main() {
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint key_head = workgroup().y;
  const uint group = heads / key_heads;
  const int window = int(push.sizes[3]);
  Ints bounds = Ints(address(5));
  const int real = real_tokens(bounds);
  const int first_key = int(workgroup().x * kRows);
  const int last_key = min(first_key + int(kRows), real) - 1;
  if (last_key < first_key) {  // padding
    write_zeros(address(7), first_key, key_head, key_heads);
    write_zeros(address(8), first_key, key_head, key_heads);
    return;
  }
  find_scales();
  const float scores_by = score_scale();
  const float slopes_by = slope_scale();
  stage(rows_of(address(1), first_key, last_key, key_head, key_heads), kRows, 0, exponents.y);
  stage(rows_of(address(2), first_key, last_key, key_head, key_heads), kRows, kRows, exponents.z);
  int last_token = bounds.v[2 + sequence_of(bounds, last_key)] - 1;
  if (window != 0) last_token = min(last_token, last_key + window - 1);
  const uint row = own_row();
  const int key = first_key + int(row);
  int last_seer = key < real ? bounds.v[2 + sequence_of(bounds, key)] - 1 : -1;  // of the key, in its own sequence
  if (window != 0) last_seer = min(last_seer, key + window - 1);
  const uint64_t queries = address(0);
  const uint64_t outputs = address(4);
  const uint64_t all_lse = address(3);
  const uint64_t all_delta = address(6);
  Sums key_sums[kSums];
  Sums value_sums[kSums];
  [[unroll]] for (uint i = 0; i < kSums; ++i) {
    key_sums[i] = Sums(0.0);
    value_sums[i] = Sums(0.0);
  }
  for (uint head = key_head * group; head < (key_head + 1) * group; ++head) {
    uvec4 held_queries[kReads];
    uvec4 held_outputs[kReads];
    fetch_passing(rows_of(queries, first_key, last_token, head, heads), held_queries);
    fetch_passing(rows_of(outputs, first_key, last_token, head, heads), held_outputs);
    for (int first = first_key; first <= last_token; first += int(kPassing)) {
      barrier();
      put_passing(rows_of(queries, first, last_token, head, heads), held_queries, kFirstPassing, exponents.x);
      put_passing(rows_of(outputs, first, last_token, head, heads), held_outputs, kFirstPassing + kPassing,
                  exponents.w);
      for (uint n = invocation(); n < kPassing; n += gl_WorkGroupSize.x) {
        const uint query = uint(min(first + int(n), last_token)) * heads + head;
        known[n] = vec2(Floats(all_lse).v[query], scaled_delta(Floats(all_delta).v[query]));
      }
      barrier();
      const int next = min(first + int(kPassing), last_token);
      fetch_passing(rows_of(queries, next, last_token, head, heads), held_queries);
      fetch_passing(rows_of(outputs, next, last_token, head, heads), held_outputs);
      make_scores();
      barrier();
      [[unroll]] for (uint eight = 0; row < kRows && eight < kColumns / 8; ++eight) {
        float weights_of_key[8];
        float slopes[8];
        get_scores(0, row, eight, weights_of_key);
        get_scores(1, row, eight, slopes);
        [[unroll]] for (uint c = 0; c < 8; ++c) {
          const uint column = first_column() + 8 * eight + c;
          const int token = first + int(column);
          const bool seen = token >= key && token <= last_seer;
          const vec2 score = score_of(weights_of_key[c] * scores_by);
          const float weight = seen ? exp(score.x - known[column].x) : 0.0;
          weights_of_key[c] = weight;
          slopes[c] = seen ? weight * (slopes[c] - known[column].y) * slopes_by : 0.0;
          if (kCapped) slopes[c] *= score.y;
        }
        put_weights(0, row, eight, weights_of_key);
        put_weights(1, row, eight, slopes);
      }
      barrier();
      add_weighted(value_sums, 0, kFirstPassing + kPassing);
      add_weighted(key_sums, 1, kFirstPassing);
    }
  }
  for (uint row = invocation(); row < kRows; row += gl_WorkGroupSize.x) by_row[row] = 1.0;
  write_rows(value_sums, address(8), first_key, key_head, key_heads, -exponents.w);
  barrier();
  for (uint row = invocation(); row < kRows; row += gl_WorkGroupSize.x) {
    by_row[row] = slope_sum_scale();
  }
  write_rows(key_sums, address(7), first_key, key_head, key_heads,
             kSlopeBits - exponents.x - exponents.z - exponents.w);
}
