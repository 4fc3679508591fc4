// As delta_tokens.glsl, for processors that pose as cards, with subgroups of eight, where a read of shared memory costs
// what one of any memory does, once for each invocation: what all invocations of a subgroup need they read together,
// each its part, and hand round; keys and queries where they lie, two channels as one word.
layout(constant_id = 1) const uint kStep = 1;  // 2: D is even

// What an invocation reads of the tokens at hand.
uint64_t tensors[2];  // queries, keys
uvec2 rows;           // of keys and queries
bvec2 there;          // there are such

uint place_in_workgroup() { return invocation_by_subgroups(); }

void read_tokens(int token, int count, Part part) {
  tensors = uint64_t[2](address(kQueries), address(kKeys));
  const uvec2 tokens = gl_SubgroupInvocationID + uvec2(0, 8);
  there = lessThan(tokens, uvec2(count));
  rows = (uint(token) + min(tokens, uvec2(count - 1))) * push.sizes[2] + part.key_head;
}

/// Of sixteen numbers, the first eight of which the subgroup's invocations hold as x and the others as y, those from 4
/// `four` on; `four` is the same for the whole subgroup.
vec4 hand_round(vec2 numbers, uint four) {
  const float from = four < 2 ? numbers.x : numbers.y;
  vec4 value;
  [[unroll]] for (uint i = 0; i < 4; ++i) value[i] = subgroupShuffle(from, four % 2 * 4 + i);
  return value;
}
vec4[4] hand_all_round(vec2 numbers) {
  vec4 values[4];
  [[unroll]] for (uint i = 0; i < 4; ++i) values[i] = hand_round(numbers, i);
  return values;
}

/// Channels `pair` and `pair` + 1, as columns, of the two tokens.
mat2 load_pair(uint of, uint pair) {
  const uint64_t from = tensors[of];
  mat2 value;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    const uint first = rows[i] * size() + pair;
    vec2 channels = load_some(from, kType, kStep, first);
    if (kStep == 1 && pair + 1 < size()) channels.y = load(from, kType, first + 1);
    value[0][i] = there[i] ? channels.x : 0.0;
    value[1][i] = there[i] ? channels.y : 0.0;
  }
  return value;
}
Channel[2] channels_of(uint of, uint pair, Part part) {
  const mat2 numbers = load_pair(of, pair);
  Channel channels[2];
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    channels[i] = Channel(hand_round(numbers[i], part.quarter), part.lane < 8 ? numbers[i].x : numbers[i].y);
  }
  return channels;
}

vec4[4] all_gates() {
  const uint i = gl_SubgroupInvocationID;
  return hand_all_round(vec2(gates[i / 4][i % 4], gates[2 + i / 4][i % 4]));
}

vec4[4] scores_of(uint of, uint quarter, Part part) {
  const uint i = gl_SubgroupInvocationID;
  const uint at = score_place(of, (4 * quarter + i / 4) * 4 + part.quarter);
  return hand_all_round(vec2(scores[at][i % 4], scores[at + 8][i % 4]));
}

void add_to_state(float keep, vec4 of_keys[4], bool with_queries, vec4 of_queries[4], Part part) {
  for (uint pair = 2 * part.quarter; pair < size(); pair += 8) {
    const mat2 key = load_pair(kKeys, pair);
    const mat2 query = with_queries ? load_pair(kQueries, pair) : mat2(0.0);
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      float s = keep * state[(pair + i) * kColumns + part.lane];
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        s +=
            dot(hand_round(key[i], j), of_keys[j]) + (with_queries ? dot(hand_round(query[i], j), of_queries[j]) : 0.0);
      }
      state[(pair + i) * kColumns + part.lane] = s;
    }
  }
}
