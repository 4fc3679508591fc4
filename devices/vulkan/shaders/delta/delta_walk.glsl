// What the kernels share that go along a sequence with a state of the delta rule, or with its gradient: a workgroup one
// head and kColumns columns of its values, kTokens tokens at a time, which end where a sequence or an interval between
// checkpoints does. The state is in shared memory, each column the business of four invocations.
//
// With u the unit row of a key and s that of a query over sqrt(D), G the sum of g from the first of these tokens on:
//   e_i = v_i - exp(G_i) S^T u_i - sum over j < i of exp(G_i - G_j) (u_i . u_j) beta_j e_j
//   o_i = exp(G_i) S^T s_i + sum over j <= i of exp(G_i - G_j) (s_i . u_j) beta_j e_j
//   S behind them = exp(G) S + sum of exp(G - G_j) u_j (beta_j e_j)^T
// so that columns are independent of each other, and all but the triangle of e is a product of matrices. Sums of g are
// made anew for each pair: exponents are not differences of larger numbers. Of a state space u and s are the rows as
// they are, and e_i = v_i.
//
// sizes: tokens, heads, key heads, D, width of values, first token of the range and the one behind it, tokens of a
// workgroup's part of it, ... factors: 1 / sqrt(D).
// RONDO_EIGHTS: for processors that pose as cards, see delta_tokens_eights.glsl.
#include "common.glsl"
#include "sequences.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 2) const bool kStateSpace = false;

const uint kTokens = 16;
const uint kColumns = 16;
const uint kMostSize = 128;  // kMostDeltaSize
const int kChunk = 64;       // kDeltaChunk
// What tokens have of each: also the slots of the tensors.
const uint kQueries = 0, kKeys = 1;

shared float state[kMostSize * kColumns];
shared vec4 scores[2 * kTokens * 4];  // of queries, then of keys; each by token, then token
shared vec4 handed[kColumns * 4];     // by column, then token
shared vec4 gates[4];
shared vec4 betas[4];
shared vec4 key_factors[4];    // 1 / length
shared vec4 query_factors[4];  // 1 / (length sqrt(D))
shared vec4 kept[4];           // exp(G_i)
shared vec4 left[4];           // exp(G - G_i)
shared vec4 key_weights[4];    // of keys, in what the state gets

/// What a workgroup is at. An invocation has a column and a quarter of the tokens, or of the channels; where tokens
/// meet tokens it has the row `lane` and the columns of its quarter.
struct Part {
  uint lane;
  uint quarter;
  uint head;
  uint key_head;
  uint column;
  bool inside;  // there is such a column
  uint group;   // 0: this one's columns are the first ones
};

/// What an invocation takes of a channel's tokens: the four of its quarter, and that of its row.
struct Channel {
  vec4 four;
  float own;
};

/// In scores[], of queries or keys.
uint score_place(uint of, uint at) { return of * kTokens * 4 + at; }

uint size() { return push.sizes[3]; }
uint width() { return push.sizes[4]; }
/// With the channels that fill up the last four: they are zeros.
uint whole_size() { return (size() + 3) / 4 * 4; }

#ifdef RONDO_EIGHTS
#include "delta_tokens_eights.glsl"
#else
#include "delta_tokens.glsl"
#endif

/// Which part of the range is the workgroup's; past all of them there is nothing to do.
uint find_part(out Part part) {
  const uint groups = (width() + kColumns - 1) / kColumns;
  const uint place = group_place();
  part.lane = place_in_workgroup() % 16;
  part.quarter = place_in_workgroup() / 16;
  part.group = place % groups;
  part.head = place / groups % push.sizes[1];
  part.key_head = part.head / (push.sizes[1] / push.sizes[2]);
  part.column = part.group * kColumns + part.lane;
  part.inside = part.column < width();
  return place / groups / push.sizes[1];
}

/// The first token from `token` on that begins a sequence, or the first of padding.
int next_sequence(Ints bounds, int token) {
  const int real = real_tokens(bounds);
  if (token >= real) return real;
  const int sequence = sequence_of(bounds, token);
  return bounds.v[1 + sequence] == token ? token : bounds.v[2 + sequence];
}
ivec2 ends_of_sequence(Ints bounds, int token) {
  const int sequence = sequence_of(bounds, token);
  return ivec2(bounds.v[1 + sequence], bounds.v[2 + sequence]);
}

/// Where element [channel, column] of a head's state lies in a tensor of such, the row of heads being `row`.
uint place_in(uint row, Part part, uint channel) {
  return ((row * push.sizes[1] + part.head) * size() + channel) * width() + part.column;
}
/// An invocation's channels of the state, all columns of which it alone writes; from nowhere: zeros.
void read_state(uint64_t from, uint first, uint row, Part part) {
  for (uint d = part.quarter; d < whole_size(); d += 4) {
    const bool there = from != 0ul && part.inside && d < size();
    state[d * kColumns + part.lane] = there ? Floats(from).v[first + place_in(row, part, d)] : 0.0;
  }
}
void write_state(uint64_t to, uint first, uint row, Part part) {
  if (!part.inside) return;
  for (uint d = part.quarter; d < size(); d += 4) {
    Floats(to).v[first + place_in(row, part, d)] = state[d * kColumns + part.lane];
  }
}

/// Gates of `count` tokens; those missing are zeros.
void read_gates(int token, int count, Part part) {
  if (part.quarter != 0) return;
  const bool there = int(part.lane) < count;
  const uint gate = uint(token + int(part.lane)) * push.sizes[1] + part.head;
  gates[part.lane / 4][part.lane % 4] = there ? Floats(address(3)).v[gate] : 0.0;
  betas[part.lane / 4][part.lane % 4] = there ? Floats(address(4)).v[gate] : 0.0;
}

/// Four tokens of a column, from the quarter's first on.
vec4 read_values(uint64_t from, int token, int count, Part part) {
  vec4 value = vec4(0.0);
  [[unroll]] for (uint a = 0; a < 4; ++a) {
    const uint i = 4 * part.quarter + a;
    if (part.inside && int(i) < count) {
      value[a] = load(from, kType, ((uint(token) + i) * push.sizes[1] + part.head) * width() + part.column);
    }
  }
  return value;
}
void write_values(uint64_t to, uint dtype, uint first, int token, int count, Part part, vec4 value) {
  [[unroll]] for (uint a = 0; a < 4; ++a) {
    const uint i = 4 * part.quarter + a;
    if (part.inside && int(i) < count) {
      store(to, dtype, first + ((uint(token) + i) * push.sizes[1] + part.head) * width() + part.column, value[a]);
    }
  }
}
/// Of padding, a workgroup's part of it: zeros.
void write_nothing(uint64_t to, int first, int end, Part part) {
  for (int token = first + int(part.quarter); token < end; token += 4) {
    if (part.inside) store(to, kType, (uint(token) * push.sizes[1] + part.head) * width() + part.column, 0.0);
  }
}

/// exp(G_i - G_j) of a row of tokens i and the four j of a quarter, as far as j <= i; puts down kept[] and left[].
vec4 sum_gates(Part part) {
  vec4 decays = vec4(0.0);
  float sum = 0.0;
  const vec4 all[4] = all_gates();
  [[unroll]] for (uint back = 0; back < kTokens; ++back) {
    const uint j = kTokens - 1 - back;
    decays[j % 4] = j / 4 == part.quarter ? sum : decays[j % 4];
    sum += j <= part.lane ? all[j / 4][j % 4] : 0.0;
  }
  [[unroll]] for (uint a = 0; a < 4; ++a) decays[a] = exact_exp(decays[a]);
  if (part.quarter == 0) kept[part.lane / 4][part.lane % 4] = exact_exp(sum);
  if (part.lane == kTokens - 1) left[part.quarter] = decays;
  return decays;
}

/// What the tokens at hand come to: of a column the products of the state with the keys and queries of four tokens; of
/// a row's key and query those with the keys of a quarter, then scores.
struct Products {
  vec4 known;
  vec4 seen;
  vec4 keys;
  vec4 queries;
};

/// Lengths, of what a key's and a query's products with themselves are.
void find_factors(Part part, vec4 key_products, float query_square) {
  if (part.lane / 4 != part.quarter) return;
  const float key_square = key_products[part.lane % 4];
  key_factors[part.quarter][part.lane % 4] = kStateSpace ? 1.0 : exact_inverse_root(key_square + 1e-6);
  query_factors[part.quarter][part.lane % 4] =
      kStateSpace ? 1.0 : exact_inverse_root(query_square + 1e-6) * push.factors[0];
}

/// exp(G_i - G_j) u_i . u_j of i > j, and exp(G_i - G_j) s_i . u_j of i >= j, in the place of their products.
void find_scores(Part part, vec4 decays, inout Products products) {
  const float key_factor = key_factors[part.lane / 4][part.lane % 4];
  const float query_factor = query_factors[part.lane / 4][part.lane % 4];
  [[unroll]] for (uint a = 0; a < 4; ++a) {
    const uint j = 4 * part.quarter + a;
    const float factor = key_factors[part.quarter][a] * decays[a];
    products.keys[a] = j < part.lane && !kStateSpace ? products.keys[a] * key_factor * factor : 0.0;
    products.queries[a] = j <= part.lane ? products.queries[a] * query_factor * factor : 0.0;
  }
}

/// Reads `count` tokens and finds their products and scores, what is seen only where `seeing`; puts down factors,
/// kept[] and left[]. slots: q, k, -, g, beta.
Products meet_tokens(int token, int count, bool seeing, Part part) {
  read_tokens(token, count, part);
  read_gates(token, count, part);
  barrier();
  const vec4 decays = sum_gates(part);
  Products products = Products(vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
  float square = 0.0;
  for (uint pair = 0; pair < size(); pair += 2) {
    const Channel keys[2] = channels_of(kKeys, pair, part);
    const Channel queries[2] = channels_of(kQueries, pair, part);
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      const float s = state[(pair + i) * kColumns + part.lane];
      products.known += s * keys[i].four;
      if (seeing) products.seen += s * queries[i].four;
      products.keys += keys[i].own * keys[i].four;
      products.queries += queries[i].own * keys[i].four;
      square += queries[i].own * queries[i].own;
    }
  }
  find_factors(part, products.keys, square);
  barrier();
  find_scores(part, decays, products);
  return products;
}
