// dq of eight queries of one head, see attention_query_gradient.comp: from keys, values and what panel_stats.comp
// found, which lie in the panel.
//
// slots: bounds, dq. sizes: tokens, heads, key heads, window, places of k, of v, of the stats, of q and of do. factors:
// scale, cap. Workgroups: eights of queries, heads, slices.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention_panels.glsl"

void main() {
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint head = workgroup().y;
  const uint key_head = head / (heads / key_heads);
  const int window = int(push.sizes[3]);
  Ints bounds = Ints(address(0));
  const int real = real_tokens(bounds);
  const int first_token = int(workgroup().x * 8);
  const int token = first_token + int(gl_SubgroupInvocationID);
  const int last_token = min(first_token + 8, real) - 1;
  const uint row = uint(token) * heads + head;
  vec4 query[kFours];
  vec4 d_o[kFours];
  const int seen_from = first_seen(bounds, token, window);
  const int from = last_token >= first_token ? first_seen(bounds, first_token, window) : 0;
  const uint own = min(row, push.sizes[0] * heads - 1);
  if (kSlices == 1) fetch_own(own, query, d_o);
  const vec4 stats = texelFetch(panel, int(push.sizes[6] + own));
  vec4 sums[kFours];
  [[unroll]] for (uint four = 0; four < kFours; ++four) sums[four] = vec4(0.0);
  for (int key = from; key <= last_token; ++key) {
    vec4 key_row[kFours];
    vec4 value_row[kFours];
    const vec2 products = products_with(uint(key) * key_heads + key_head, own, query, d_o, key_row, value_row);
    const bool seen = key >= seen_from && key <= token && token < real;
    const vec2 of_score = score_of(products.x * push.factors[0]);
    float slope = seen ? exact_exp(of_score.x - stats.x) * (products.y - stats.y) * push.factors[0] : 0.0;
    if (kCapped) slope *= of_score.y;
    [[unroll]] for (uint four = 0; four < kFours; ++four) sums[four] += slope * key_row[four];
  }
  if (token < int(push.sizes[0])) store_row(address(1), row, sums, 1.0);
}
