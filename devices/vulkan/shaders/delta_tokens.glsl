// How the kernels of delta_walk.glsl come by what many invocations need of the tokens at hand: through shared memory.
shared vec4 keys[kMostSize * 4];  // by channel, then token
shared vec4 queries[kMostSize * 4];

uint place_in_workgroup() { return invocation(); }

vec4 load_channels(uint64_t from, uint row, uint four) {
  const uint first = row * size() + 4 * four;
  if (size() % 4 == 0) return widened_raw(kType, 4, load_raw(from, kType, 4, first));
  vec4 value = vec4(0.0);
  for (uint j = 0; j < min(4, size() - 4 * four); ++j) value[j] = load(from, kType, first + j);
  return value;
}

/// Keys and queries of `count` tokens, for all behind the next barrier; those missing are zeros. `q`, `k`: slots.
void read_tokens(uint q, uint k, int token, int count, Part part) {
  const uint64_t all_queries = address(q);
  const uint64_t all_keys = address(k);
  const bool there = int(part.lane) < count;
  const uint row = (uint(token) + min(part.lane, uint(count) - 1)) * push.sizes[2] + part.key_head;
  for (uint four = part.quarter; four < whole_size() / 4; four += 4) {
    const vec4 key = there ? load_channels(all_keys, row, four) : vec4(0.0);
    const vec4 query = there ? load_channels(all_queries, row, four) : vec4(0.0);
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      keys[(4 * four + j) * 4 + part.lane / 4][part.lane % 4] = key[j];
      queries[(4 * four + j) * 4 + part.lane / 4][part.lane % 4] = query[j];
    }
  }
}

/// Channels `pair` and `pair` + 1; `pair` is even.
Channel[2] keys_of(uint pair, Part part) {
  Channel channels[2];
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    const uint at = (pair + i) * 4;
    channels[i] = Channel(keys[at + part.quarter], keys[at + part.lane / 4][part.lane % 4]);
  }
  return channels;
}
Channel[2] queries_of(uint pair, Part part) {
  Channel channels[2];
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    const uint at = (pair + i) * 4;
    channels[i] = Channel(queries[at + part.quarter], queries[at + part.lane / 4][part.lane % 4]);
  }
  return channels;
}

vec4[4] all_gates() { return gates; }

/// Of the scores by key and by query, the four rows of `quarter` in the part's columns.
vec4[4] key_scores_of(uint quarter, Part part) {
  const uint at = 16 * quarter + part.quarter;
  return vec4[4](key_scores[at], key_scores[at + 4], key_scores[at + 8], key_scores[at + 12]);
}
vec4[4] query_scores_of(uint quarter, Part part) {
  const uint at = 16 * quarter + part.quarter;
  return vec4[4](query_scores[at], query_scores[at + 4], query_scores[at + 8], query_scores[at + 12]);
}

/// The state times `keep`, with the products of keys, and where `with_queries` of queries, with those of their tokens.
void add_to_state(float keep, vec4 of_keys[4], bool with_queries, vec4 of_queries[4], Part part) {
  for (uint d = part.quarter; d < size(); d += 4) {
    float s = keep * state[d * kColumns + part.lane];
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      s += dot(keys[d * 4 + j], of_keys[j]) + (with_queries ? dot(queries[d * 4 + j], of_queries[j]) : 0.0);
    }
    state[d * kColumns + part.lane] = s;
  }
}
