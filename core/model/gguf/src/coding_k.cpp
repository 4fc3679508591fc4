// The K codings. A block's numbers lie in runs of 16 (q2_k, q3_k, q6_k) or 32 (q4_k, q5_k), each with a scale s and, in
// some, a minimum m of a few bits; d and e are the block's own.
//
//   q2_k = (s:u4 m:u4)[16] q:u2[256] d:f16 e:f16                     (d s) q - (e m)
//   q3_k = h:u1[256] q:u2[256] s:u6[16] d:f16                        (d (s - 32)) (q - 4 unless h)
//   q4_k = d:f16 e:f16 (s:u6 m:u6)[8] q:u4[256]                      (d s) q - (e m)
//   q5_k = d:f16 e:f16 (s:u6 m:u6)[8] h:u1[256] q:u4[256]            (d s) (q + 16 h) - (e m)
//   q6_k = q:u4[256] h:u2[256] s:i8[16] d:f16                        (d s) (q + 16 h - 32)
//
// Codes of a few bits lie in planes: 32 bytes (64 of q6_k's q) hold the lowest bits of as many neighbouring numbers,
// their next bits those of the numbers after these, and so on.
#include "coding_k.h"

#include <array>
#include <cstdint>

#include "load_number.h"

namespace rondo::gguf {
namespace {

constexpr std::size_t kPlane = 32;

unsigned byte_at(const std::byte* data, std::size_t index) { return std::to_integer<unsigned>(data[index]); }

/// Two bits of number `i`, where each 32 bytes hold 128 numbers.
unsigned two_bits(const std::byte* data, std::size_t i) {
  const std::size_t plane = i / kPlane;
  return byte_at(data, plane / 4 * kPlane + i % kPlane) >> (2 * (plane % 4)) & 3U;
}

/// Four bits of number `i`, where each 32 bytes hold 64 numbers.
unsigned four_bits(const std::byte* data, std::size_t i) {
  const std::size_t plane = i / kPlane;
  return byte_at(data, plane / 2 * kPlane + i % kPlane) >> (4 * (plane % 2)) & 15U;
}

/// One bit of number `i`: all 256 lie in 32 bytes.
unsigned one_bit(const std::byte* data, std::size_t i) { return byte_at(data, i % kPlane) >> (i / kPlane) & 1U; }

struct SixBits {
  std::array<float, 8> scales;
  std::array<float, 8> minima;
};

/// Twelve bytes: four times s with two bits more, four times m likewise, then the low halves of the other four of both.
SixBits six_bits(const std::byte* data, float d, float e) {
  SixBits out{};
  for (std::size_t i = 0; i < 4; ++i) {
    const unsigned s = byte_at(data, i);
    const unsigned m = byte_at(data, i + 4);
    const unsigned both = byte_at(data, i + 8);
    out.scales[i] = d * static_cast<float>(s & 63U);
    out.minima[i] = e * static_cast<float>(m & 63U);
    out.scales[i + 4] = d * static_cast<float>((both & 15U) | (s >> 2U & 48U));
    out.minima[i + 4] = e * static_cast<float>(both >> 4U | (m >> 2U & 48U));
  }
  return out;
}

}  // namespace

void decode_q2_k(const std::byte* blocks, std::size_t count, float* out) {
  constexpr std::size_t kCodes = 16;
  constexpr std::size_t kEnd = kCodes + 64;
  for (std::size_t b = 0; b < count; ++b, blocks += kEnd + 4) {
    const float d = load_half(blocks + kEnd);
    const float e = load_half(blocks + kEnd + 2);
    for (std::size_t i = 0; i < kLargeBlock; ++i) {
      const unsigned pair = byte_at(blocks, i / 16);
      const float scale = d * static_cast<float>(pair & 15U);
      const float minimum = e * static_cast<float>(pair >> 4U);
      *out++ = scale * static_cast<float>(two_bits(blocks + kCodes, i)) - minimum;
    }
  }
}

void decode_q3_k(const std::byte* blocks, std::size_t count, float* out) {
  constexpr std::size_t kCodes = 32;
  constexpr std::size_t kScales = kCodes + 64;
  constexpr std::size_t kEnd = kScales + 12;
  for (std::size_t b = 0; b < count; ++b, blocks += kEnd + 2) {
    const float d = load_half(blocks + kEnd);
    for (std::size_t run = 0; run < 16; ++run) {
      // Eight bytes hold the low halves of s[0..7] and, above them, of s[8..15]; four the upper two bits of all.
      const unsigned low = byte_at(blocks, kScales + run % 8) >> (4 * (run / 8)) & 15U;
      const unsigned high = byte_at(blocks, kScales + 8 + run % 4) >> (2 * (run / 4)) & 3U;
      const float scale = d * static_cast<float>(static_cast<int>(low | high << 4U) - 32);
      for (std::size_t i = run * 16; i < run * 16 + 16; ++i) {
        const int code = static_cast<int>(two_bits(blocks + kCodes, i)) - (one_bit(blocks, i) != 0 ? 0 : 4);
        *out++ = scale * static_cast<float>(code);
      }
    }
  }
}

void decode_q4_k(const std::byte* blocks, std::size_t count, float* out) {
  constexpr std::size_t kCodes = 16;
  for (std::size_t b = 0; b < count; ++b, blocks += kCodes + 128) {
    const SixBits six = six_bits(blocks + 4, load_half(blocks), load_half(blocks + 2));
    for (std::size_t i = 0; i < kLargeBlock; ++i) {
      *out++ = six.scales[i / 32] * static_cast<float>(four_bits(blocks + kCodes, i)) - six.minima[i / 32];
    }
  }
}

void decode_q5_k(const std::byte* blocks, std::size_t count, float* out) {
  constexpr std::size_t kHigh = 16;
  constexpr std::size_t kCodes = kHigh + 32;
  for (std::size_t b = 0; b < count; ++b, blocks += kCodes + 128) {
    const SixBits six = six_bits(blocks + 4, load_half(blocks), load_half(blocks + 2));
    for (std::size_t i = 0; i < kLargeBlock; ++i) {
      const unsigned code = four_bits(blocks + kCodes, i) | one_bit(blocks + kHigh, i) << 4U;
      *out++ = six.scales[i / 32] * static_cast<float>(code) - six.minima[i / 32];
    }
  }
}

void decode_q6_k(const std::byte* blocks, std::size_t count, float* out) {
  constexpr std::size_t kHigh = 128;
  constexpr std::size_t kScales = kHigh + 64;
  constexpr std::size_t kEnd = kScales + 16;
  for (std::size_t b = 0; b < count; ++b, blocks += kEnd + 2) {
    const float d = load_half(blocks + kEnd);
    for (std::size_t i = 0; i < kLargeBlock; ++i) {
      const float scale = d * static_cast<float>(load_number<std::int8_t>(blocks + kScales + i / 16));
      const unsigned low = byte_at(blocks, i / 128 * 64 + i % 64) >> (4 * (i / 64 % 2)) & 15U;
      const unsigned code = low | two_bits(blocks + kHigh, i) << 4U;
      *out++ = scale * static_cast<float>(static_cast<int>(code) - 32);
    }
  }
}

}  // namespace rondo::gguf
