// How the kernels of delta_walk.glsl come by what many invocations need of the tokens at hand: through shared memory.
shared vec4 tokens[2 * kMostSize * 4];  // queries, then keys; each by channel, then token

uint place_in_workgroup() { return invocation(); }

vec4 load_channels(uint64_t from, uint row, uint four) {
  const uint first = row * size() + 4 * four;
  if (size() % 4 == 0) return widened_raw(kType, 4, load_raw(from, kType, 4, first));
  vec4 value = vec4(0.0);
  for (uint j = 0; j < min(4, size() - 4 * four); ++j) value[j] = load(from, kType, first + j);
  return value;
}

/// Of queries or keys, where a channel begins.
uint channel_place(uint of, uint channel) { return (of * kMostSize + channel) * 4; }

/// Keys and queries of `count` tokens, for all behind the next barrier; those missing are zeros.
void read_tokens(int token, int count, Part part) {
  const uint64_t all_queries = address(kQueries);
  const uint64_t all_keys = address(kKeys);
  const bool there = int(part.lane) < count;
  const uint row = (uint(token) + min(part.lane, uint(count) - 1)) * push.sizes[2] + part.key_head;
  for (uint four = part.quarter; four < whole_size() / 4; four += 4) {
    const vec4 key = there ? load_channels(all_keys, row, four) : vec4(0.0);
    const vec4 query = there ? load_channels(all_queries, row, four) : vec4(0.0);
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      tokens[channel_place(kKeys, 4 * four + j) + part.lane / 4][part.lane % 4] = key[j];
      tokens[channel_place(kQueries, 4 * four + j) + part.lane / 4][part.lane % 4] = query[j];
    }
  }
}

/// Channels `pair` and `pair` + 1 of keys or queries; `pair` is even.
Channel[2] channels_of(uint of, uint pair, Part part) {
  Channel channels[2];
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    const uint at = channel_place(of, pair + i);
    channels[i] = Channel(tokens[at + part.quarter], tokens[at + part.lane / 4][part.lane % 4]);
  }
  return channels;
}

vec4[4] all_gates() { return gates; }

/// Of the scores by key or by query, the four rows of `quarter` in the part's columns.
vec4[4] scores_of(uint of, uint quarter, Part part) {
  const uint at = score_place(of, 16 * quarter + part.quarter);
  return vec4[4](scores[at], scores[at + 4], scores[at + 8], scores[at + 12]);
}

/// The state times `keep`, with the products of keys, and where `with_queries` of queries, with those of their tokens.
void add_to_state(float keep, vec4 of_keys[4], bool with_queries, vec4 of_queries[4], Part part) {
  for (uint d = part.quarter; d < size(); d += 4) {
    float s = keep * state[d * kColumns + part.lane];
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      s += dot(tokens[channel_place(kKeys, d) + j], of_keys[j]) +
           (with_queries ? dot(tokens[channel_place(kQueries, d) + j], of_queries[j]) : 0.0);
    }
    state[d * kColumns + part.lane] = s;
  }
}
