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

/// The dropout decision of OpKind::kDropout: keep channel `channel` of a token with key `key`.
constexpr bool dropout_keeps(std::uint64_t key, std::uint32_t layer, std::uint32_t site, std::uint64_t channel,
                             float probability) {
  const std::uint64_t place = (static_cast<std::uint64_t>(layer) << 32U) | site;
  return uniform_float(combine_keys(combine_keys(key, place), channel)) >= probability;
}

}  // namespace rondo::devices
