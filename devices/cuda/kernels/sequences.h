// BatchTensor::kBounds as kernels read it: n, the first token of each of the n sequences, the number of real tokens.
#pragma once

#include "block.h"

namespace rondo::devices::cuda {

struct Span {
  std::int32_t begin;
  std::int32_t end;  // begin == end: padding
};

RONDO_KERNEL std::int32_t real_tokens(const std::int32_t* bounds) { return bounds[1 + bounds[0]]; }

/// Number of the sequence that holds `token`, which is real.
RONDO_KERNEL std::int32_t sequence_number(const std::int32_t* bounds, std::int32_t token) {
  std::int32_t low = 0;  // the last sequence that begins at `token` or before it lies in [low, high)
  std::int32_t high = bounds[0];
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    if (bounds[1 + middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// The sequence that holds `token`.
RONDO_KERNEL Span sequence_at(const std::int32_t* bounds, std::int32_t token) {
  if (token >= real_tokens(bounds)) return {token, token};
  const std::int32_t number = sequence_number(bounds, token);
  return {bounds[1 + number], bounds[2 + number]};
}

/// First of the keys that a query at `token` sees; the last is itself.
RONDO_KERNEL std::int32_t first_key(const Span& sequence, std::int32_t token, std::int32_t window) {
  const std::int32_t from = token - window + 1;
  return window > 0 && from > sequence.begin ? from : sequence.begin;
}

}  // namespace rondo::devices::cuda
