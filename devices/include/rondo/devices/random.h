// Counter-based random numbers: a value follows from its keys alone, so that any device, in any order, draws the same.
#pragma once

#include <cstdint>

namespace rondo::devices {

/// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection that spreads every bit.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

/// One key out of two; not commutative.
constexpr std::uint64_t combine_keys(std::uint64_t a, std::uint64_t b) { return mix64(mix64(a) ^ b); }

/// Uniform in [0, 1) with 24 bits.
constexpr float uniform_float(std::uint64_t key) { return static_cast<float>(mix64(key) >> 40U) * 0x1.0p-24F; }

/// The dropout decision of OpKind::kDropout: keep channel `channel` of a token with key `key`.
constexpr bool dropout_keeps(std::uint64_t key, std::uint32_t layer, std::uint32_t site, std::uint64_t channel,
                             float probability) {
  const std::uint64_t place = (static_cast<std::uint64_t>(layer) << 32U) | site;
  return uniform_float(combine_keys(combine_keys(key, place), channel)) >= probability;
}

}  // namespace rondo::devices
