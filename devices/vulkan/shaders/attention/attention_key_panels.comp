// dk and dv of eight keys, see attention_key_gradient.comp: over the query heads that share the key head and the
// queries that see any of the eight, in rising order; queries, do and what panel_stats.comp found lie in the panel.
//
// slots: bounds, dk, dv. sizes: tokens, heads, key heads, window, places of q, of do, of the stats, of k and of v.
// factors: scale, cap. Workgroups: eights of keys, key heads, slices.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention_panels.glsl"

void main() {
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint key_head = workgroup().y;
  const uint group = heads / key_heads;
  const int window = int(push.sizes[3]);
  Ints bounds = Ints(address(0));
  const int real = real_tokens(bounds);
  const int first_key = int(workgroup().x * 8);
  const int key = first_key + int(gl_SubgroupInvocationID);
  const int last_key = min(first_key + 8, real) - 1;
  const uint own = uint(key) * key_heads + key_head;
  vec4 key_row[kFours];
  vec4 value_row[kFours];
  const uint fetched = min(own, push.sizes[0] * key_heads - 1);
  if (kSlices == 1) fetch_own(fetched, key_row, value_row);
  int last_token = -1;
  if (last_key >= first_key) {
    last_token = bounds.v[2 + sequence_of(bounds, last_key)] - 1;
    if (window != 0) last_token = min(last_token, last_key + window - 1);
  }
  vec4 key_sums[kFours];
  vec4 value_sums[kFours];
  [[unroll]] for (uint four = 0; four < kFours; ++four) {
    key_sums[four] = vec4(0.0);
    value_sums[four] = vec4(0.0);
  }
  for (uint head = key_head * group; head < (key_head + 1) * group; ++head) {
    for (int token = first_key; token <= last_token; ++token) {
      const uint row = uint(token) * heads + head;
      const vec4 stats = texelFetch(panel, int(push.sizes[6] + row));
      vec4 query[kFours];
      vec4 d_o[kFours];
      const vec2 products = products_with(row, fetched, key_row, value_row, query, d_o);
      const bool seen = key >= int(stats.z) && key <= token && key < real;
      const vec2 of_score = score_of(products.x * push.factors[0]);
      const float p = seen ? exact_exp(of_score.x - stats.x) : 0.0;
      float slope = seen ? p * (products.y - stats.y) * push.factors[0] : 0.0;
      if (kCapped) slope *= of_score.y;
      [[unroll]] for (uint four = 0; four < kFours; ++four) {
        key_sums[four] += slope * query[four];
        value_sums[four] += p * d_o[four];
      }
    }
  }
  if (key >= int(push.sizes[0])) return;
  store_row(address(1), own, key_sums, 1.0);
  store_row(address(2), own, value_sums, 1.0);
}
