// The sequences of a microbatch: bounds hold their number n, the first token of each, and the number of real tokens.

int real_tokens(Ints bounds) { return bounds.v[1 + bounds.v[0]]; }

/// The sequence that holds `token`, which is a real one: the last that begins at or before it.
int sequence_of(Ints bounds, int token) {
  int low = 0;
  int high = bounds.v[0] - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (bounds.v[1 + middle] <= token) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// The first key that the query `token` sees; past all keys for padding. `window` 0: none.
int first_seen(Ints bounds, int token, int window) {
  if (token >= real_tokens(bounds)) return 0x7FFFFFFF;
  const int begin = bounds.v[1 + sequence_of(bounds, token)];
  return window == 0 ? begin : max(begin, token - window + 1);
}
