#include "checksum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace rondo::transfer {
namespace {

constexpr std::size_t kLanes = 4;
constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15ULL;

std::uint64_t step(std::uint64_t lane, std::uint64_t word) { return std::rotl((lane ^ word) * kOdd, 31); }

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::array<std::uint64_t, kLanes> lanes = {1, 2, 3, 4};
  std::array<std::uint64_t, kLanes> words{};
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), sizeof words);
    if (n < sizeof words) words.fill(0);
    std::memcpy(words.data(), bytes.data(), n);
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = step(lanes[i], words[i]);
    bytes = bytes.subspan(n);
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : lanes) sum = step(sum, lane);
  return sum;
}

}  // namespace rondo::transfer
