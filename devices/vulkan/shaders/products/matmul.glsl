// What the products by tiles share: the operands, rows that are those of a list, and where results go.
//
// slots: A, B, out, bias, addend, rows (the list of kernel targets.comp).
// sizes: M, N, K, stride of A, stride of B, stride of out, chunk of K, first of the rows, most rows.
// factors: alpha.
layout(constant_id = 0) const uint kTypeA = 0;
layout(constant_id = 1) const uint kTypeB = 0;
layout(constant_id = 2) const uint kTypeOut = 0;
layout(constant_id = 3) const uint kTypeBias = 0;
layout(constant_id = 4) const uint kTypeAddend = 0;
layout(constant_id = 5) const bool kTransposedA = false;  // A(m, k) lies at k * stride + m
layout(constant_id = 6) const bool kTransposedB = false;  // B(k, n) lies at n * stride + k
layout(constant_id = 7) const bool kBias = false;
layout(constant_id = 8) const bool kAddend = false;
layout(constant_id = 9) const bool kAccumulate = false;
layout(constant_id = 10) const uint kListed = 0;  // which rows are those of the list: of A (1), of out (2), of B (3)

uint listed(uint i) { return uint(Ints(address(5)).v[1 + push.sizes[7] + i]); }

/// Where the elements lie in their tensors.
uint place_in_a(uint m, uint k) {
  const uint row = kListed == 1 ? listed(m) : m;
  return kTransposedA ? k * push.sizes[3] + row : row * push.sizes[3] + k;
}
uint place_in_b(uint k, uint n) {
  const uint row = kListed == 3 ? listed(k) : k;
  return kTransposedB ? n * push.sizes[4] + row : row * push.sizes[4] + n;
}

/// The tiles of a turn, of `tile` inner elements each. Where they begin in memory is one for all invocations, so that a
/// scalar unit can keep it; how far behind it they read is the same in every turn, so that none has to work it out: by
/// 32 bits, in which a tile lies, and a listed operand whole.
struct Turn {
  uint64_t a, b;
  uint first_k;     // of what is read
  uint begin, end;  // of what counts, from there on
};
Turn turn_at(uint64_t a, uint64_t b, uint m, uint n, uint k, uint depth, uint tile) {
  // No tile ends later than its operand: the last begins with what was multiplied before and does not count again.
  const uint held = push.sizes[2];  // a list may end before
  const uint from = held < tile ? 0 : min(k, held - tile);
  const uint64_t row = kListed == 1 ? 0 : m;
  const uint64_t inner = kListed == 3 ? 0 : from;
  const uint64_t place_a = kTransposedA ? from * uint64_t(push.sizes[3]) + m : row * push.sizes[3] + from;
  const uint64_t place_b = kTransposedB ? n * uint64_t(push.sizes[4]) + from : inner * push.sizes[4] + n;
  return Turn(a + place_a * size_of(kTypeA), b + place_b * size_of(kTypeB), from, k - from, depth - from);
}
/// Where an invocation reads, `step` elements of `extent`: those that are not there are taken for the last.
uint inside(uint place, uint extent, uint step) { return min(place, extent - step); }
bool counts(Turn turn, uint k) { return k >= turn.begin && k < turn.end; }
bool all_count(Turn turn, uint tile) { return turn.begin == 0 && turn.end >= tile; }

/// Bytes from a tile's beginning to its row `m` and inner element `k`, or its column `n`. Lists are of A's rows, so
/// that it is not transposed, and of B's inner elements likewise: then this is another in every turn.
uint behind_begin_of_a(uint first_m, uint m, uint k) {
  const uint row = kListed == 1 ? listed(first_m + m) : m;
  return (kTransposedA ? k * push.sizes[3] + m : row * push.sizes[3] + k) * size_of(kTypeA);
}
uint behind_begin_of_b(Turn turn, uint k, uint n) {
  const uint row = kListed == 3 ? listed(turn.first_k + min(k, turn.end - 1)) : k;
  return (kTransposedB ? n * push.sizes[4] + k : row * push.sizes[4] + n) * size_of(kTypeB);
}

/// The rows and the inner extent, one of which may end with the list.
void find_extents(out uint rows, out uint depth) {
  rows = push.sizes[0];
  depth = push.sizes[2];
  if (kListed == 0) return;
  const uint there = present(address(5), push.sizes[7], push.sizes[8]);
  if (kListed == 3) {
    depth = there;
  } else {
    rows = there;
  }
}

/// Where results go and what is added to them.
struct Results {
  uint64_t to, bias, addend;
};
Results find_results() { return Results(address(2), kBias ? address(3) : 0ul, kAddend ? address(4) : 0ul); }

/// The result's element from its sum over a chunk of K.
void put(Results results, uint m, uint n, uint rows, float sum) {
  if (m >= rows || n >= push.sizes[1]) return;
  const uint at = (kListed == 2 ? listed(m) : m) * push.sizes[5] + n;
  float value = push.factors[0] * sum;
  if (kBias) value += load(results.bias, kTypeBias, n);
  if (kAddend) value += load(results.addend, kTypeAddend, at);
  if (kAccumulate) value += load(results.to, kTypeOut, at);
  store(results.to, kTypeOut, at, value);
}

/// The same for four elements from column `n` on, a multiple of four, as the number of columns is.
void put_four(Results results, uint m, uint n, uint rows, vec4 sums) {
  if (m >= rows || n >= push.sizes[1]) return;
  const uint at = (kListed == 2 ? listed(m) : m) * push.sizes[5] + n;
  vec4 value = push.factors[0] * sums;
  if (kBias) value += widened_raw(kTypeBias, 4, load_raw(results.bias, kTypeBias, 4, n));
  if (kAddend) value += widened_raw(kTypeAddend, 4, load_raw(results.addend, kTypeAddend, 4, at));
  if (kAccumulate) value += widened_raw(kTypeOut, 4, load_raw(results.to, kTypeOut, 4, at));
  store_raw(results.to, kTypeOut, at, value);
}
