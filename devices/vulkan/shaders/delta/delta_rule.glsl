// The delta rule: o, and the state before every kDeltaChunk-th token; or from a state, which it leaves behind; or, for
// the gradient, the errors e of a range of tokens (delta_walk.glsl), from those states.
//
// slots: q, k, v, g, beta, bounds, o or errors fp32 [tokens of the range, H, width of values], states, positions.
// sizes: as in delta_walk.glsl, what is asked for. Ranges, and the parts of them, are of whole kDeltaChunk tokens; a
// sequence, or what the range has of it, is a workgroup's business if it begins in its part. The range before leaves
// the state of a sequence that goes on where its next checkpoint is.
#include "delta_walk.glsl"

const uint kForward = 0, kContinued = 1, kErrors = 2;

void walk(uint kind, int token, int count, Part part) {
  const vec4 values = read_values(address(2), token, count, part);
  const Products products = meet_tokens(token, count, true, part);
  [[unroll]] for (uint a = 0; a < 4; ++a) {
    // By the earlier token, for all later ones.
    const uint at = (4 * part.quarter + a) * 4 + part.lane / 4;
    scores[score_place(kKeys, at)][part.lane % 4] = products.keys[a] * betas[part.quarter][a];
    scores[score_place(kQueries, at)][part.lane % 4] = products.queries[a] * betas[part.quarter][a];
  }
  if (part.lane == 0) key_weights[part.quarter] = betas[part.quarter] * left[part.quarter] * key_factors[part.quarter];
  vec4 own = values;
  if (!kStateSpace) own -= kept[part.quarter] * key_factors[part.quarter] * products.known;
  vec4 o = kept[part.quarter] * query_factors[part.quarter] * products.seen;
  barrier();
  [[dont_unroll]] for (uint quarter = 0; quarter < 4; ++quarter) {
    const vec4 rows[4] = scores_of(kKeys, quarter, part);
    if (part.quarter == quarter) {
      [[unroll]] for (uint a = 0; a < 3; ++a) own -= rows[a] * own[a];
      handed[part.lane * 4 + quarter] = own;
    }
    barrier();
    const vec4 errors = handed[part.lane * 4 + quarter];
    const vec4 query_rows[4] = scores_of(kQueries, quarter, part);
    [[unroll]] for (uint a = 0; a < 4; ++a) {
      if (part.quarter > quarter) own -= rows[a] * errors[a];
      o += query_rows[a] * errors[a];
    }
  }
  if (kind == kErrors) {
    write_values(address(6), kFloat32, 0, token - int(push.sizes[5]), count, part, own);
  } else {
    write_values(address(6), kType, 0, token, count, part, o);
  }
  vec4 errors[4];
  [[unroll]] for (uint i = 0; i < 4; ++i) errors[i] = handed[part.lane * 4 + i] * key_weights[i];
  add_to_state(kept[3].w, errors, false, errors, part);
  barrier();
}

void main() {
  Part part;
  const int range_first = int(push.sizes[5]);
  const int first = range_first + int(find_part(part) * push.sizes[7]);
  const int range_end = int(push.sizes[6]);
  if (first >= range_end) return;
  const int end = min(first + int(push.sizes[7]), range_end);
  const uint kind = push.sizes[8];
  Ints bounds = Ints(address(5));
  const int real = real_tokens(bounds);
  const uint64_t states = address(7);
  const bool continued = kind == kContinued && real > 0 && Ints(address(8)).v[0] > 0;
  const bool whole = kind != kErrors;  // sequences
  int token = whole && first > range_first ? next_sequence(bounds, first) : min(first, real);
  const int stop = whole && end < range_end ? min(next_sequence(bounds, end), range_end) : min(end, real);
  int sequence_end = -1;
  while (token < stop) {
    if (sequence_end < 0 || token == sequence_end) {
      const ivec2 ends = ends_of_sequence(bounds, token);
      sequence_end = ends.y;
      const bool begins = token == ends.x && !continued;
      read_state(begins ? 0ul : states, 0, kind == kContinued ? 0 : uint(token / kChunk), part);
    }
    if (kind == kForward && token % kChunk == 0) write_state(states, 0, uint(token / kChunk), part);
    const int most = min(min(sequence_end, stop), (token / kChunk + 1) * kChunk) - token;
    const int count = min(most, int(kTokens));
    walk(kind, token, count, part);
    token += count;
  }
  if (kind == kContinued && real > first) write_state(states, 0, 0, part);
  if (kind == kForward && sequence_end > stop) write_state(states, 0, uint(stop / kChunk), part);  // goes on
  if (kind == kErrors) return;
  const int padding = max(first, real);
  write_nothing(address(6), padding, end, part);
  if (kind != kForward) return;
  for (int chunk = (padding + kChunk - 1) / kChunk; chunk * kChunk < end; ++chunk) {
    for (uint d = part.quarter; d < size() && part.inside; d += 4) {
      Floats(states).v[place_in(uint(chunk), part, d)] = 0.0;
    }
  }
}
