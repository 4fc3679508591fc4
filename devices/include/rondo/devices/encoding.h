// Encodings of frozen weights, and of what passes between layers: how their bytes lie, and how numbers become codes.
//
// Elements are taken row by row, in blocks of 64; the last block may be short. Sections begin at multiples of 64 bytes.
//
//   kInt8 = codes int8[n]          scales fp32[B]                                     B = ceil(n / 64)
//   kNf4  = codes uint4[n]         block_codes uint8[B]      block_scales fp32[S]     offset fp32     S = ceil(B / 256)
//   kMxfp4 = codes uint4[n]        scales uint8[ceil(n / 32)]
//   kHadamard8 = codes int8[64 B]  scales fp32[B]
//   kHadamard4 = codes int4[64 B]  scales fp32[B]                                     two's complement
//
// kInt8: element = code * scale, scale = largest magnitude of the block / 127.
// kNf4: element = kNf4Values[code] * a with a, the block's largest magnitude, encoded once more: a = offset +
// dynamic_map()[block_code] * block_scale. offset is the mean of all a; block_scale the largest |a - offset| of 256
// blocks. The first element of a byte is in its upper half.
// kMxfp4, of blocks of 32: element = from_mxfp4(code, scale). The exponent of a block's largest magnitude, less 2, is
// that of its scale, and a number takes the nearest code, ties to the even one: so what was in MXFP4 before comes back
// as it was, from scales of 2^-125 on. As published, the first element of a byte is in its lower half. kHadamard8,
// kHadamard4: the codes are those of the block's Walsh-Hadamard transform c[k] = sum over i of
// (-1)^popcount(i & k) x[i], which spreads an outlier over its whole block; L = 127 or 7, m the largest |c|:
// code[k] = c[k] * (L / m) to the nearest whole number, ties to even; scale = m * fp32(1 / (64 L));
// element i = scale * (sum over k of (-1)^popcount(i & k) code[k]), whose sum is exact.
// The transform adds and subtracts pairs that lie 8, 16, 32, 1, 2 and 4 apart, in this order. A block with m <
// kLeastHadamard is zero; one with a number that is not finite, or whose sums are not, expands to NaN.
// All of this arithmetic is in fp32, each operation rounded.
// Source: Dettmers et al., QLoRA (arXiv 2305.14314), section 3 and appendix E; the dynamic map: Dettmers et al., 8-bit
// optimizers via block-wise quantization (arXiv 2110.02861), as bitsandbytes builds it. A Hadamard transform before
// quantization: Xi et al., Training Transformers with 4-bit Integers (arXiv 2306.11987).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rondo/devices/tensor.h"

namespace rondo::devices {

/// Quantiles of a normal distribution, scaled to [-1, 1], with an exact zero.
inline constexpr std::array<float, 16> kNf4Values = {
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F,
};

/// 256 numbers in rising order: for each decade 10^(i - 6), i = 0 ... 6, the middles of 2^i equal parts of [0.1, 1]
/// times that decade, with both signs; zero; one.
const std::array<float, 256>& dynamic_map();

/// Largest code of a Hadamard encoding.
constexpr float hadamard_limit(Encoding encoding) { return encoding == Encoding::kHadamard8 ? 127.0F : 7.0F; }
/// A block's scale, as a share of its largest sum.
constexpr float hadamard_share(Encoding encoding) {
  return 1.0F / (static_cast<float>(kEncodedBlock) * hadamard_limit(encoding));
}
inline constexpr float kLeastHadamard = 0x1.0p-100F;
/// Distances of the pairs that the transform adds and subtracts, in their order.
inline constexpr std::array<int, 6> kHadamardStrides = {8, 16, 32, 1, 2, 4};

/// Offsets of the sections within an encoded tensor.
struct EncodedLayout {
  EncodedLayout(Encoding encoding, std::int64_t elements);
  std::int64_t blocks = 0;
  Bytes codes = 0;
  Bytes scales = 0;        // kInt8, kMxfp4, kHadamard8, kHadamard4
  Bytes block_codes = 0;   // kNf4
  Bytes block_scales = 0;  // kNf4
  Bytes offset = 0;        // kNf4
  Bytes size = 0;          // encoded_bytes()
};

/// Element i of an encoded tensor.
float decoded_element(Encoding encoding, const EncodedLayout& layout, const std::byte* encoded, std::int64_t i);

/// Gives element i the code whose number is nearest to x, by the scale that its block has got already, and returns that
/// number. Elements 2 k and 2 k + 1 of kNf4 share a byte. REQUIRES: kInt8 or kNf4.
float choose_code(Encoding encoding, const EncodedLayout& layout, std::byte* encoded, std::int64_t i, float x);

/// Encodes a tensor that arrives in parts, in order.
class BlockEncoder {
 public:
  /// `out`: encoded_bytes(encoding, elements) of them; outlives the encoder. REQUIRES: `encoding` is not kPlain.
  BlockEncoder(Encoding encoding, std::int64_t elements, std::span<std::byte> out);
  /// All parts but the last are whole blocks. REQUIRES: finite numbers, but for the Hadamard encodings.
  void append(std::span<const float> values);
  /// After the last part.
  void finish();

 private:
  void append_int8(std::span<const float> block);
  void append_nf4(std::span<const float> block);
  void append_mxfp4(std::span<const float> block);
  /// The codes of elements i and i + 1 of the block at hand.
  void put_pair(std::size_t i, unsigned pair);
  void append_hadamard(std::span<const float> block);

  const Encoding encoding_;
  const EncodedLayout layout_;
  const std::span<std::byte> out_;
  std::int64_t next_block_ = 0;
  std::vector<float> magnitudes_;  // kNf4, by block
};

}  // namespace rondo::devices
