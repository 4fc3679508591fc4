// The sequences of a microbatch: bounds hold their number n, the first token of each, and the number of real tokens.
#include "search.glsl"

int real_tokens(Ints bounds) { return bounds.v[1 + bounds.v[0]]; }

/// The sequence that holds `token`, which is a real one: the last that begins at or before it.
int sequence_of(Ints bounds, int token) { return last_at_most(bounds, 1, bounds.v[0], token); }

/// The first key that the query `token` sees; past all keys for padding. `window` 0: none.
int first_seen(Ints bounds, int token, int window) {
  if (token >= real_tokens(bounds)) return 0x7FFFFFFF;
  const int begin = bounds.v[1 + sequence_of(bounds, token)];
  return window == 0 ? begin : max(begin, token - window + 1);
}
