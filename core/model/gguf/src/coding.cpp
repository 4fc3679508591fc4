// The table of codings, the plain ones, and those with one scale to a block of 32.
//
//   q8_0 = d:f16 q:i8[32]                              d q
//   q4_0 = d:f16 q:u4[32]                              d (q - 8)        low halves of the bytes first, then high ones
//   q4_1 = d:f16 m:f16 q:u4[32]                        d q + m
//   q5_0 = d:f16 high:u1[32] q:u4[32]                  d (q - 16)       q with its fifth bit from `high`
//   q5_1 = d:f16 m:f16 high:u1[32] q:u4[32]            d q + m
//   mxfp4 = e:u8 q:u4[32]                              2^(e - 127) times an E2M1
#include "coding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "coding_k.h"
#include "load_number.h"

namespace rondo::gguf {
namespace {

constexpr std::size_t kSmallBlock = 32;
constexpr std::size_t kHalfBlock = kSmallBlock / 2;

void decode_f32(const std::byte* blocks, std::size_t count, float* out) {
  std::memcpy(out, blocks, count * sizeof(float));
}

void decode_f16(const std::byte* blocks, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = load_half(blocks + 2 * i);
}

void decode_bf16(const std::byte* blocks, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = from_bfloat16(load_number<std::uint16_t>(blocks + 2 * i));
  }
}

void decode_q8_0(const std::byte* blocks, std::size_t count, float* out) {
  constexpr std::size_t kBytes = 34;
  for (std::size_t b = 0; b < count; ++b, blocks += kBytes) {
    const float d = load_half(blocks);
    for (std::size_t i = 0; i < kSmallBlock; ++i) {
      *out++ = static_cast<float>(load_number<std::int8_t>(blocks + 2 + i)) * d;
    }
  }
}

/// q4_0 to q5_1: `kMinimum`: numbers count from m, else from -`kZero`; `kFifth`: there are fifth bits.
template <bool kMinimum, bool kFifth>
void decode_halves(const std::byte* blocks, std::size_t count, float* out) {
  constexpr std::size_t kHead = 2 + (kMinimum ? 2 : 0);
  constexpr std::size_t kCodes = kHead + (kFifth ? 4 : 0);
  constexpr int kZero = kFifth ? 16 : 8;
  for (std::size_t b = 0; b < count; ++b, blocks += kCodes + kHalfBlock) {
    const float d = load_half(blocks);
    const float m = kMinimum ? load_half(blocks + 2) : 0.0F;
    const std::uint32_t high = kFifth ? load_number<std::uint32_t>(blocks + kHead) : 0;
    for (std::size_t i = 0; i < kSmallBlock; ++i) {
      const auto pair = std::to_integer<unsigned>(blocks[kCodes + i % kHalfBlock]);
      const unsigned code = (i < kHalfBlock ? pair & 15U : pair >> 4U) | (high >> i & 1U) << 4U;
      if constexpr (kMinimum) {
        *out++ = d * static_cast<float>(code) + m;
      } else {
        *out++ = d * static_cast<float>(static_cast<int>(code) - kZero);
      }
    }
  }
}

void decode_mxfp4(const std::byte* blocks, std::size_t count, float* out) {
  for (std::size_t b = 0; b < count; ++b, blocks += 1 + kHalfBlock) {
    const auto scale = std::to_integer<unsigned>(blocks[0]);
    for (std::size_t i = 0; i < kSmallBlock; ++i) {
      const auto pair = std::to_integer<unsigned>(blocks[1 + i % kHalfBlock]);
      *out++ = from_mxfp4(i < kHalfBlock ? pair & 15U : pair >> 4U, scale) + 0.0F;  // a zero here has no sign
    }
  }
}

constexpr std::array<Coding, 14> kCodings = {{
    {0, "f32", 1, 4, decode_f32},
    {1, "f16", 1, 2, decode_f16},
    {30, "bf16", 1, 2, decode_bf16},
    {8, "q8_0", kSmallBlock, 34, decode_q8_0},
    {2, "q4_0", kSmallBlock, 18, decode_halves<false, false>},
    {3, "q4_1", kSmallBlock, 20, decode_halves<true, false>},
    {6, "q5_0", kSmallBlock, 22, decode_halves<false, true>},
    {7, "q5_1", kSmallBlock, 24, decode_halves<true, true>},
    {10, "q2_k", kLargeBlock, 84, decode_q2_k},
    {11, "q3_k", kLargeBlock, 110, decode_q3_k},
    {12, "q4_k", kLargeBlock, 144, decode_q4_k},
    {13, "q5_k", kLargeBlock, 176, decode_q5_k},
    {14, "q6_k", kLargeBlock, 210, decode_q6_k},
    {39, "mxfp4", kSmallBlock, 17, decode_mxfp4},
}};

/// Types that files hold and that are not read.
constexpr std::array<std::pair<std::uint32_t, std::string_view>, 13> kUnread = {{{9, "q8_1"},
                                                                                 {15, "q8_k"},
                                                                                 {16, "iq2_xxs"},
                                                                                 {17, "iq2_xs"},
                                                                                 {18, "iq3_xxs"},
                                                                                 {19, "iq1_s"},
                                                                                 {20, "iq4_nl"},
                                                                                 {21, "iq3_s"},
                                                                                 {22, "iq2_s"},
                                                                                 {23, "iq4_xs"},
                                                                                 {29, "iq1_m"},
                                                                                 {34, "tq1_0"},
                                                                                 {35, "tq2_0"}}};

}  // namespace

const Coding* find_coding(std::uint32_t type) {
  const auto* found = std::find_if(kCodings.begin(), kCodings.end(), [&](const Coding& c) { return c.type == type; });
  return found == kCodings.end() ? nullptr : found;
}

std::string type_in_words(std::uint32_t type) {
  if (const Coding* coding = find_coding(type)) return std::string(coding->name);
  for (const auto& [number, name] : kUnread) {
    if (number == type) return fmt::format("type {} ({})", type, name);
  }
  return fmt::format("type {}", type);
}

std::string readable_types() {
  std::string names;
  for (const Coding& coding : kCodings) names += fmt::format("{}{}", names.empty() ? "" : ", ", coding.name);
  return names;
}

void split_mxfp4(std::span<const std::byte> blocks, std::span<std::byte> codes, std::span<std::byte> scales) {
  for (std::size_t b = 0; b < scales.size(); ++b) {
    const std::span<const std::byte> block = blocks.subspan(b * (1 + kHalfBlock), 1 + kHalfBlock);
    scales[b] = block[0];
    // A byte has the codes of i and i + 16.
    for (std::size_t i = 0; i < kHalfBlock; i += 2) {
      const std::byte first = block[1 + i];
      const std::byte second = block[2 + i];
      const std::byte low{15};
      codes[b * kHalfBlock + i / 2] = (first & low) | (second & low) << 4U;
      codes[b * kHalfBlock + kHalfBlock / 2 + i / 2] = first >> 4U | (second & ~low);
    }
  }
}

void decode_stretch(const Coding& coding, std::span<const std::byte> data, std::uint64_t first, std::span<float> out) {
  const std::size_t width = coding.block_numbers;
  std::size_t done = 0;
  std::array<float, kLargeBlock> block{};
  while (done < out.size()) {
    const std::uint64_t index = (first + done) / width;
    const std::size_t inside = (first + done) % width;
    const std::size_t left = out.size() - done;
    const std::byte* at = data.data() + index * coding.block_bytes;
    if (inside == 0 && left >= width) {
      const std::size_t whole = left / width;
      coding.decode(at, whole, out.data() + done);
      done += whole * width;
      continue;
    }
    const std::size_t taken = std::min(width - inside, left);
    coding.decode(at, 1, block.data());
    std::copy_n(block.begin() + static_cast<std::ptrdiff_t>(inside), taken,
                out.begin() + static_cast<std::ptrdiff_t>(done));
    done += taken;
  }
}

}  // namespace rondo::gguf
