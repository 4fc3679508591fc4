// Counter-based random numbers: a value follows from its keys alone, so that any device, in any order, draws the same.
#pragma once

#include <cstdint>

#include "rondo/base/random.h"

namespace rondo::devices {

using rondo::mix64;

/// One key out of two; not commutative.
constexpr std::uint64_t combine_keys(std::uint64_t a, std::uint64_t b) { return mix64(mix64(a) ^ b); }

/// Uniform in [0, 1) with 24 bits.
constexpr float uniform_float(std::uint64_t key) { return static_cast<float>(mix64(key) >> 40U) * 0x1.0p-24F; }

/// One key out of a layer and a site within it.
constexpr std::uint64_t place_key(std::uint32_t layer, std::uint32_t site) {
  return (static_cast<std::uint64_t>(layer) << 32U) | site;
}

/// The dropout decision of OpKind::kDropout: keep channel `channel` of a token with key `key`.
constexpr bool dropout_keeps(std::uint64_t key, std::uint32_t layer, std::uint32_t site, std::uint64_t channel,
                             float probability) {
  return uniform_float(combine_keys(combine_keys(key, place_key(layer, site)), channel)) >= probability;
}

/// Uniform in [-1, 1), of OpKind::kNoise: for channel `channel` of a token with key `key`. 24 bits, none of them
/// rounded.
constexpr float signed_uniform(std::uint64_t key, std::uint32_t layer, std::uint32_t site, std::uint64_t channel) {
  return uniform_float(combine_keys(combine_keys(key, place_key(layer, site)), channel)) * 2.0F - 1.0F;
}

/// 1 / sqrt(n), n from 1 to 2^60, to 2^-23 of it and by whole numbers alone: the bits are the same on every device,
/// where roots and quotients of floating-point numbers need not be.
constexpr float inverse_root(std::uint64_t n) {
  std::uint32_t doublings = 0;
  for (; n < 1ULL << 60U; n <<= 2U) ++doublings;
  std::uint64_t root = 0;  // of n, rounded down
  for (std::uint64_t bit = 1ULL << 30U; bit != 0; bit >>= 1U) {
    if ((root | bit) * (root | bit) <= n) root |= bit;
  }
  const std::uint64_t quotient = ((1ULL << 62U) / root) >> 8U;  // 24 bits: nothing is rounded from here on
  return static_cast<float>(quotient) * static_cast<float>(1U << doublings) * 0x1p-54F;
}

}  // namespace rondo::devices
