// attention.comp by matrix units. Weights are e^(score - maximum) for a maximum that may be up to kSlack less than the
// largest score so far: sums are scaled anew only where one grows by more, which is seldom. They are divided by what
// their weights, rounded, come to.
//
// slots: q, k, v, bounds, o, lse. sizes: tokens, heads, key heads, window. factors: scale, cap.
// Workgroups: tiles of queries, heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#define OPERANDS 1
#define WEIGHTS 1
#define TENSORS 3
#define SCALES 6
#include "attention_units.glsl"

const float kLowest = -1.0e30;
const float kSlack = 8.0;

shared uint grown;  // whether sums of any row are to be scaled

void main() {
  const uint head = workgroup().y;
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint key_head = head / (heads / key_heads);
  const int window = int(push.sizes[3]);
  Ints bounds = Ints(address(3));
  const int real = real_tokens(bounds);
  const int first_token = int(workgroup().x * kRows);
  const int last_token = min(first_token + int(kRows), real) - 1;
  const uint64_t all_lse = address(5);
  if (last_token < first_token) {  // padding
    write_zeros(address(4), first_token, head, heads);
    for (uint row = invocation(); row < kRows; row += gl_WorkGroupSize.x) {
      const uint token = uint(first_token) + row;
      if (token < push.sizes[0]) Floats(all_lse).v[token * heads + head] = 0.0;
    }
    return;
  }
  find_scales();
  const float scores_by = score_scale();
  const uint64_t keys = address(1);
  const uint64_t values = address(2);
  stage(rows_of(address(0), first_token, last_token, head, heads), kRows, 0, exponents.x);
  const uint row = own_row();
  const bool has_row = row < kRows;
  const int token = first_token + int(row);
  const int seen_from = first_seen(bounds, token, window);
  float maximum = kLowest;
  float total = 0.0;    // of the invocation's columns
  float rounded = 0.0;  // the same, of weights as they are multiplied
  Sums sums[kSums];
  [[unroll]] for (uint i = 0; i < kSums; ++i) sums[i] = Sums(0.0);
  int first = first_seen(bounds, first_token, window);
  uvec4 held[kReads];
  fetch_passing(rows_of(keys, first, last_token, key_head, key_heads), held);
  for (; first <= last_token; first += int(kPassing)) {
    barrier();
    put_passing(rows_of(keys, first, last_token, key_head, key_heads), held, kFirstPassing, exponents.y);
    if (invocation() == 0) grown = 0;
    barrier();
    const Rows passing = rows_of(values, first, last_token, key_head, key_heads);
    fetch_passing(passing, held);
    make_scores();
    barrier();
    put_passing(passing, held, kFirstPassing, exponents.z);
    fetch_passing(rows_of(keys, min(first + int(kPassing), last_token), last_token, key_head, key_heads), held);
    if (has_row) {
      float highest = kLowest;
      for (uint eight = 0; eight < kColumns / 8; ++eight) {
        float own[8];
        get_scores(0, row, eight, own);
        [[unroll]] for (uint c = 0; c < 8; ++c) {
          const int key = first + int(first_column() + 8 * eight + c);
          highest = max(highest, key >= seen_from && key <= token ? score_of(own[c] * scores_by).x : kLowest);
        }
      }
      highest = largest_of_row(highest);
      float factor = 1.0;
      if (highest > maximum + kSlack) {
        factor = exp(maximum - highest);
        if (maximum > kLowest) atomicOr(grown, 1);
        maximum = highest;
        total *= factor;
        rounded *= factor;
      }
      if (first_column() == 0) by_row[row] = factor;
      for (uint eight = 0; eight < kColumns / 8; ++eight) {
        float own[8];
        get_scores(0, row, eight, own);
        [[unroll]] for (uint c = 0; c < 8; ++c) {
          const int key = first + int(first_column() + 8 * eight + c);
          own[c] = key >= seen_from && key <= token ? exp(score_of(own[c] * scores_by).x - maximum) : 0.0;
          total += own[c];
        }
        rounded += put_weights(0, row, eight, own);
      }
    }
    barrier();
    if (grown != 0) multiply_rows(sums);
    add_weighted(sums, 0, kFirstPassing);
  }
  if (has_row) {
    total = total_of_row(total);
    rounded = total_of_row(rounded);
    if (first_column() == 0) {
      by_row[row] = token < real ? 1.0 / rounded : 0.0;
      if (token < int(push.sizes[0])) {
        Floats(all_lse).v[uint(token) * heads + head] = token < real ? maximum + exact_log(total) : 0.0;
      }
    }
  }
  write_rows(sums, address(4), first_token, head, heads, -exponents.z);
}
