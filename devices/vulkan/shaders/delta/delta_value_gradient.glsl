// The gradient of the delta rule along the state, from the last token of a range to the first: with L that of the state
// behind some tokens (delta_walk.glsl),
//   r_i = exp(G - G_i) L^T u_i + sum over t >= i of exp(G_t - G_i) (s_t . u_i) do_t
//         - sum over t > i of beta_t exp(G_t - G_i) (u_t . u_i) r_t
//   dv_i = beta_i r_i
//   L before them = exp(G) L + sum of exp(G_i) (s_i do_i^T - beta_i u_i r_i^T)
// Nothing of the state itself is in it. Of a state space what is taken off r and L is not there.
//
// slots: q, k, do, g, beta, bounds, dv, scratch. sizes: as in delta_walk.glsl, places that there are for L, and of the
// scratch where r, L and the factors of keys and queries are (delta_key_gradient.comp). A sequence is a workgroup's
// business if what the range has of it begins in its part.
#include "delta_walk.glsl"

shared vec4 slopes[kColumns * 4];  // as `handed`
shared vec4 query_weights[4];      // as `key_weights`

void walk_back(int token, int count, Part part) {
  const int place = token - int(push.sizes[5]);  // in the range
  handed[part.lane * 4 + part.quarter] = read_values(address(2), token, count, part);
  const Products products = meet_tokens(token, count, false, part);
  const uint64_t scratch = address(7);
  if (part.group == 0 && part.head % (push.sizes[1] / push.sizes[2]) == 0 && part.quarter == 0 &&
      int(part.lane) < count) {
    const uint at = push.sizes[11] + ((uint(place) + part.lane) * push.sizes[2] + part.key_head) * 2;
    Floats(scratch).v[at] = key_factors[part.lane / 4][part.lane % 4];
    Floats(scratch).v[at + 1] = query_factors[part.lane / 4][part.lane % 4];
  }
  const uint at = part.lane * 4 + part.quarter;
  scores[score_place(kKeys, at)] = products.keys * betas[part.lane / 4][part.lane % 4];
  scores[score_place(kQueries, at)] = products.queries;
  if (part.lane == 0) {
    key_weights[part.quarter] =
        kStateSpace ? vec4(0.0) : kept[part.quarter] * key_factors[part.quarter] * betas[part.quarter];
    query_weights[part.quarter] = kept[part.quarter] * query_factors[part.quarter];
  }
  barrier();
  vec4 own = left[part.quarter] * key_factors[part.quarter] * products.known;
  [[dont_unroll]] for (uint back = 0; back < 4; ++back) {
    const uint quarter = 3 - back;
    const vec4 d_o = handed[part.lane * 4 + quarter];
    const vec4 query_rows[4] = scores_of(kQueries, quarter, part);
    const vec4 rows[4] = scores_of(kKeys, quarter, part);
    [[unroll]] for (uint a = 0; a < 4; ++a) own += query_rows[a] * d_o[a];
    if (part.quarter == quarter) {
      [[unroll]] for (uint a = 3; a > 0; --a) own -= rows[a] * own[a];
      slopes[part.lane * 4 + quarter] = own;
    }
    barrier();
    const vec4 slope = slopes[part.lane * 4 + quarter];
    [[unroll]] for (uint a = 0; a < 4; ++a) {
      if (part.quarter < quarter) own -= rows[a] * slope[a];
    }
  }
  write_values(scratch, kFloat32, push.sizes[9], place, count, part, own);
  write_values(address(6), kType, 0, token, count, part, own * betas[part.quarter]);
  vec4 outputs[4];
  vec4 written[4];
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    outputs[i] = handed[part.lane * 4 + i] * query_weights[i];
    written[i] = -slopes[part.lane * 4 + i] * key_weights[i];
  }
  add_to_state(kept[3].w, written, true, outputs, part);
  barrier();
}

void main() {
  Part part;
  const int range_first = int(push.sizes[5]);
  const int first = range_first + int(find_part(part) * push.sizes[7]);
  const int range_end = int(push.sizes[6]);
  if (first >= range_end) return;
  const int end = min(first + int(push.sizes[7]), range_end);
  Ints bounds = Ints(address(5));
  const int real = real_tokens(bounds);
  const uint64_t scratch = address(7);
  const int begin = first == range_first ? min(first, real) : min(next_sequence(bounds, first), range_end);
  int stop = end == range_end ? min(end, real) : min(next_sequence(bounds, end), range_end);
  int sequence_first = -1;
  while (stop > begin) {
    if (sequence_first < 0 || stop == sequence_first) {
      const ivec2 ends = ends_of_sequence(bounds, stop - 1);
      sequence_first = max(ends.x, begin);
      read_state(ends.y > stop ? scratch : 0ul, push.sizes[10], uint(stop / kChunk) % push.sizes[8], part);
    }
    const int chunk = max(sequence_first, (stop - 1) / kChunk * kChunk);
    const int token = chunk + (stop - 1 - chunk) / int(kTokens) * int(kTokens);
    walk_back(token, stop - token, part);
    stop = token;
    if (token % kChunk == 0) write_state(scratch, push.sizes[10], uint(token / kChunk) % push.sizes[8], part);
  }
  write_nothing(address(6), max(first, real), end, part);
}
