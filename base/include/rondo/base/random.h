// Counter-based numbers and hashes, the same on every machine: whoever draws or hashes by these repeats it anywhere.
//
// Results are part of what files and seeds mean (models made by `init`, sample orders, dropout): they never change.
#pragma once

#include <cstdint>
#include <string_view>

namespace rondo {

/// The step of SplitMix64's state (Steele, Lea, Flood 2014): 2^64 over the golden ratio.
inline constexpr std::uint64_t kGolden64 = 0x9E3779B97F4A7C15ULL;

/// SplitMix64's finaliser: a bijection that spreads every bit; 0 stays 0.
constexpr std::uint64_t spread64(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

/// Output `index` (from 0) of the SplitMix64 generator that starts at `key`.
constexpr std::uint64_t draw64(std::uint64_t key, std::uint64_t index) {
  return spread64(key + (index + 1) * kGolden64);
}

/// Its first output.
constexpr std::uint64_t mix64(std::uint64_t x) { return draw64(x, 0); }

/// FNV-1a of 64 bits (Fowler, Noll, Vo).
constexpr std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

}  // namespace rondo
