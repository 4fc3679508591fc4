// Byte counts with their unit in the name.
#pragma once

#include <cstdint>
#include <string>

namespace rondo {

using Bytes = std::uint64_t;

inline namespace literals {
constexpr Bytes operator""_KiB(unsigned long long n) { return n << 10U; }
constexpr Bytes operator""_MiB(unsigned long long n) { return n << 20U; }
constexpr Bytes operator""_GiB(unsigned long long n) { return n << 30U; }
}  // namespace literals

/// `n` rounded up to a multiple of `step` (> 0).
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t step) { return (n + step - 1) / step * step; }

/// "1.50 GiB", "512 B": for people, never for files.
std::string format_bytes(Bytes bytes);

}  // namespace rondo
