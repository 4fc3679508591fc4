// kHadamard8 and kHadamard4 (rondo/devices/encoding.h): blocks of 64 numbers to codes of their Walsh-Hadamard
// transform, and back. A block is sixteen vectors of four whatever the instruction set: the pairs of the transform are
// whole vectors for the longer strides, and neighbours within one for the two shortest.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hadamard.cpp"
#include <hwy/foreach_target.h>

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"
#include "rondo/devices/encoding.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

constexpr std::int64_t kTaskBlocks = kTaskElements / kEncodedBlock;
constexpr std::size_t kQuads = kEncodedBlock / 4;
using Quad = hn::FixedTag<float, 4>;
using QuadBits = hn::RebindToUnsigned<Quad>;
using QuadInts = hn::RebindToSigned<Quad>;

/// Bytes of a block's codes. `Code`: std::int8_t, or std::uint8_t for two of them a byte.
template <typename Code>
constexpr std::int64_t stride_of() {
  return std::is_signed_v<Code> ? kEncodedBlock : kEncodedBlock / 2;
}

/// Adds and subtracts the vectors that lie `distance` vectors apart.
template <std::size_t kDistance, typename V>
HWY_INLINE void across(V (&x)[kQuads]) {
  for (std::size_t i = 0; i < kQuads; ++i) {
    if ((i & kDistance) != 0) continue;
    const auto sum = hn::Add(x[i], x[i + kDistance]);
    x[i + kDistance] = hn::Sub(x[i], x[i + kDistance]);
    x[i] = sum;
  }
}

/// In the order of kHadamardStrides: what is added to what decides how sums are rounded.
HWY_INLINE void transform(hn::Vec<Quad> (&x)[kQuads]) {
  const Quad d;
  const QuadBits bits;
  across<2>(x);
  across<4>(x);
  across<8>(x);
  HWY_ALIGN static constexpr std::uint32_t kOdd[4] = {0, 0x80000000U, 0, 0x80000000U};
  HWY_ALIGN static constexpr std::uint32_t kUpper[4] = {0, 0, 0x80000000U, 0x80000000U};
  const auto odd = hn::BitCast(d, hn::Load(bits, kOdd));
  const auto upper = hn::BitCast(d, hn::Load(bits, kUpper));
  for (auto& v : x) v = hn::Add(hn::Shuffle2301(v), hn::Xor(v, odd));
  for (auto& v : x) v = hn::Add(hn::Shuffle1032(v), hn::Xor(v, upper));
  across<1>(x);
}

template <typename T>
HWY_INLINE void read_block(const T* from, hn::Vec<Quad> (&x)[kQuads]) {
  HWY_ALIGN float buffer[kEncodedBlock];
  for_vectors(kEncodedBlock,
              [&](std::int64_t i, auto extent) HWY_ATTR { store(load(from + i, extent), buffer + i, extent); });
  for (std::size_t i = 0; i < kQuads; ++i) x[i] = hn::Load(Quad(), buffer + 4 * i);
}

HWY_INLINE void put_codes(const hn::Vec<QuadInts> (&codes)[kQuads], std::int8_t* out) {
  const hn::Rebind<std::int8_t, Quad> narrow;
  for (std::size_t i = 0; i < kQuads; ++i) hn::StoreU(hn::DemoteTo(narrow, codes[i]), narrow, out + 4 * i);
}
/// Two codes a byte, the first in its upper half.
HWY_INLINE void put_codes(const hn::Vec<QuadInts> (&codes)[kQuads], std::uint8_t* out) {
  HWY_ALIGN std::int32_t wide[kEncodedBlock];
  for (std::size_t i = 0; i < kQuads; ++i) hn::Store(codes[i], QuadInts(), wide + 4 * i);
  for (std::size_t i = 0; i < kEncodedBlock / 2; ++i) {
    out[i] = static_cast<std::uint8_t>((wide[2 * i] & 15) << 4 | (wide[2 * i + 1] & 15));
  }
}

/// Returns the scale.
template <typename Code, typename T>
HWY_INLINE float encode_block(const T* from, Encoding encoding, Code* codes) {
  const Quad d;
  hn::Vec<Quad> x[kQuads];
  read_block(from, x);
  transform(x);
  // Bits of numbers without their signs are in the numbers' order, and what is not finite comes last.
  const QuadInts bits;
  auto most = hn::Zero(bits);
  for (const auto& v : x) most = hn::Max(most, hn::BitCast(bits, hn::Abs(v)));
  const auto m = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(bits, most)));
  if (!std::isfinite(m) || m < kLeastHadamard) {
    std::memset(codes, 0, static_cast<std::size_t>(stride_of<Code>()));
    return std::isfinite(m) ? 0.0F : std::numeric_limits<float>::quiet_NaN();
  }
  const auto inverse = hn::Set(d, hadamard_limit(encoding) / m);
  hn::Vec<QuadInts> whole[kQuads];
  for (std::size_t i = 0; i < kQuads; ++i) whole[i] = hn::NearestInt(hn::Mul(x[i], inverse));
  put_codes(whole, codes);
  return m * hadamard_share(encoding);
}

HWY_INLINE void get_codes(const std::int8_t* codes, hn::Vec<Quad> (&x)[kQuads]) {
  const hn::Rebind<std::int8_t, Quad> narrow;
  for (std::size_t i = 0; i < kQuads; ++i) {
    x[i] = hn::ConvertTo(Quad(), hn::PromoteTo(QuadInts(), hn::LoadU(narrow, codes + 4 * i)));
  }
}
HWY_INLINE void get_codes(const std::uint8_t* codes, hn::Vec<Quad> (&x)[kQuads]) {
  std::int8_t bytes[kEncodedBlock];
  for (std::size_t i = 0; i < kEncodedBlock / 2; ++i) {
    bytes[2 * i] = static_cast<std::int8_t>(static_cast<std::int8_t>(codes[i]) >> 4);
    bytes[2 * i + 1] = static_cast<std::int8_t>(static_cast<std::int8_t>(codes[i] << 4) >> 4);
  }
  get_codes(bytes, x);
}

template <typename Code, typename T>
HWY_INLINE void expand_block(const Code* codes, float scale, T* y) {
  hn::Vec<Quad> x[kQuads];
  get_codes(codes, x);
  transform(x);
  HWY_ALIGN float buffer[kEncodedBlock];
  for (std::size_t i = 0; i < kQuads; ++i) hn::Store(hn::Mul(x[i], hn::Set(Quad(), scale)), Quad(), buffer + 4 * i);
  for_vectors(kEncodedBlock,
              [&](std::int64_t i, auto extent) HWY_ATTR { store(load(buffer + i, extent), y + i, extent); });
}

/// block(b) for every block of n elements.
template <typename Block>
void for_whole_blocks(ThreadPool& pool, std::int64_t n, const Block& block) {
  const std::int64_t blocks = n / kEncodedBlock;
  pool.parallel_for(divide_up(blocks, kTaskBlocks), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t end = HWY_MIN(blocks, (task + 1) * kTaskBlocks);
    for (std::int64_t b = task * kTaskBlocks; b < end; ++b) block(b);
  });
}

template <typename Code>
void encode_as(ThreadPool& pool, Encoding encoding, Storage storage, const void* x, std::byte* encoded,
               std::int64_t n) {
  const EncodedLayout layout(encoding, n);
  auto* codes = reinterpret_cast<Code*>(encoded + layout.codes);
  auto* scales = reinterpret_cast<float*>(encoded + layout.scales);
  with_storage(storage, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const auto* from = static_cast<const T*>(x);
    for_whole_blocks(pool, n, [=](std::int64_t b) HWY_ATTR {
      scales[b] = encode_block(from + b * kEncodedBlock, encoding, codes + b * stride_of<Code>());
    });
  });
}

template <typename Code>
void expand_as(ThreadPool& pool, Encoding encoding, Storage storage, const std::byte* encoded, void* y,
               std::int64_t n) {
  const EncodedLayout layout(encoding, n);
  const auto* codes = reinterpret_cast<const Code*>(encoded + layout.codes);
  const auto* scales = reinterpret_cast<const float*>(encoded + layout.scales);
  with_storage(storage, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    auto* to = static_cast<T*>(y);
    for_whole_blocks(pool, n, [=](std::int64_t b) HWY_ATTR {
      expand_block(codes + b * stride_of<Code>(), scales[b], to + b * kEncodedBlock);
    });
  });
}

void encode_typed(ThreadPool& pool, Encoding encoding, Storage storage, const void* x, std::byte* encoded,
                  std::int64_t n) {
  if (encoding == Encoding::kHadamard8) {
    encode_as<std::int8_t>(pool, encoding, storage, x, encoded, n);
  } else {
    encode_as<std::uint8_t>(pool, encoding, storage, x, encoded, n);
  }
}

void expand_hadamard_typed(ThreadPool& pool, Encoding encoding, Storage storage, const std::byte* encoded, void* y,
                           std::int64_t n) {
  if (encoding == Encoding::kHadamard8) {
    expand_as<std::int8_t>(pool, encoding, storage, encoded, y, n);
  } else {
    expand_as<std::uint8_t>(pool, encoding, storage, encoded, y, n);
  }
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(encode_typed);
HWY_EXPORT(expand_hadamard_typed);

void encode(ThreadPool& pool, Encoding encoding, Storage storage, const void* x, std::byte* encoded, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(encode_typed)(pool, encoding, storage, x, encoded, n);
}
void expand_hadamard(ThreadPool& pool, Encoding encoding, Storage storage, const std::byte* encoded, void* y,
                     std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(expand_hadamard_typed)(pool, encoding, storage, encoded, y, n);
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
