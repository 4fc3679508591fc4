// Encoded weights to fp32, bf16 or fp16. int8: widened and scaled. NF4: a block has but 16 different values; they are
// worked out once a block and looked up byte by byte with shuffles.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/expand.cpp"
#include <hwy/foreach_target.h>

#include "kernels.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"
#include "rondo/base/float16.h"
#include "rondo/devices/encoding.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

constexpr std::int64_t kTaskBlocks = kTaskElements / kEncodedBlock;
using Codes = hn::FixedTag<std::uint8_t, 16>;
using Table = hn::Vec<Codes>;

template <typename T>
void expand_int8_block(const std::int8_t* codes, float scale, T* y) {
  const hn::Rebind<std::int8_t, Floats> narrow;
  for_vectors(kEncodedBlock, [&](std::int64_t i, auto extent) HWY_ATTR {
    const auto wide = hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), hn::LoadU(narrow, codes + i)));
    store(hn::Mul(wide, splat(scale)), y + i, extent);
  });
}

/// Byte `which` of each of the 16 values of a block.
template <typename T>
HWY_INLINE Table byte_table(const T* values, std::size_t which) {
  HWY_ALIGN std::uint8_t bytes[16];
  for (std::size_t i = 0; i < 16; ++i) {
    std::uint8_t all[sizeof(T)];
    std::memcpy(all, values + i, sizeof(T));
    bytes[i] = all[which];
  }
  return hn::Load(Codes(), bytes);
}

/// The values of 16 codes, in order.
HWY_INLINE void look_up(const Table* tables, Table codes, std::uint16_t* y) {
  const Codes d;
  const auto low = hn::TableLookupBytes(tables[0], codes);
  const auto high = hn::TableLookupBytes(tables[1], codes);
  auto* bytes = reinterpret_cast<std::uint8_t*>(y);
  hn::StoreU(hn::InterleaveLower(d, low, high), d, bytes);
  hn::StoreU(hn::InterleaveUpper(d, low, high), d, bytes + 16);
}
HWY_INLINE void look_up(const Table* tables, Table codes, Fp16* y) {
  HWY_ALIGN std::uint16_t bits[16];
  look_up(tables, codes, bits);
  std::memcpy(y, bits, sizeof(bits));
}
HWY_INLINE void look_up(const Table* tables, Table codes, float* y) {
  HWY_ALIGN std::uint16_t low[16];
  HWY_ALIGN std::uint16_t high[16];
  look_up(tables, codes, low);
  look_up(tables + 2, codes, high);
  const hn::FixedTag<std::uint16_t, 8> d;
  auto* halves = reinterpret_cast<std::uint16_t*>(y);
  for (std::size_t i = 0; i < 16; i += 8) {
    const auto lower = hn::Load(d, low + i);
    const auto upper = hn::Load(d, high + i);
    hn::StoreU(hn::InterleaveLower(d, lower, upper), d, halves + 2 * i);
    hn::StoreU(hn::InterleaveUpper(d, lower, upper), d, halves + 2 * i + 8);
  }
}

/// `count` codes, whole 32, of 16 values times `scale`. kUpperFirst: the first of a byte is in its upper half.
template <bool kUpperFirst, typename T>
void expand_nibbles(const std::uint8_t* codes, std::int64_t count, const float* of_codes, float scale, T* y) {
  const Codes d;
  HWY_ALIGN T values[16];
  for_vectors(16, [&](std::int64_t i, auto extent)
                      HWY_ATTR { store(hn::Mul(load(of_codes + i, extent), splat(scale)), values + i, extent); });
  Table tables[sizeof(T)];
  for (std::size_t which = 0; which < sizeof(T); ++which) tables[which] = byte_table(values, which);
  for (std::int64_t i = 0; i < count; i += 32) {
    const auto pairs = hn::LoadU(d, codes + i / 2);
    const auto upper = hn::ShiftRight<4>(pairs);
    const auto lower = hn::And(pairs, hn::Set(d, std::uint8_t{15}));
    const auto first = kUpperFirst ? upper : lower;
    const auto second = kUpperFirst ? lower : upper;
    look_up(tables, hn::InterleaveLower(d, first, second), y + i);
    look_up(tables, hn::InterleaveUpper(d, first, second), y + i + 16);
  }
}

/// Runs `block(b, out)` for the blocks of n elements; a short last one goes through a buffer.
template <typename T, typename Block>
void for_blocks(ThreadPool& pool, T* y, std::int64_t n, const Block& block) {
  const std::int64_t blocks = divide_up(n, kEncodedBlock);
  pool.parallel_for(divide_up(blocks, kTaskBlocks), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t end = HWY_MIN(blocks, (task + 1) * kTaskBlocks);
    for (std::int64_t b = task * kTaskBlocks; b < end; ++b) {
      const std::int64_t left = n - b * kEncodedBlock;
      if (left >= kEncodedBlock) {
        block(b, y + b * kEncodedBlock);
      } else {
        HWY_ALIGN T buffer[kEncodedBlock];
        block(b, buffer);
        std::memcpy(y + b * kEncodedBlock, buffer, static_cast<std::size_t>(left) * sizeof(T));
      }
    }
  });
}

void expand_int8_typed(ThreadPool& pool, Storage storage, const std::byte* encoded, void* y, std::int64_t n) {
  const EncodedLayout layout(Encoding::kInt8, n);
  const auto* codes = reinterpret_cast<const std::int8_t*>(encoded + layout.codes);
  const auto* scales = reinterpret_cast<const float*>(encoded + layout.scales);
  with_storage(storage, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    for_blocks(pool, static_cast<T*>(y), n,
               [=](std::int64_t b, T* out) HWY_ATTR { expand_int8_block(codes + b * kEncodedBlock, scales[b], out); });
  });
}

void expand_nf4_typed(ThreadPool& pool, Storage storage, const std::byte* encoded, void* y, std::int64_t n) {
  const EncodedLayout layout(Encoding::kNf4, n);
  const auto* codes = reinterpret_cast<const std::uint8_t*>(encoded + layout.codes);
  const auto* block_codes = reinterpret_cast<const std::uint8_t*>(encoded + layout.block_codes);
  const auto* block_scales = reinterpret_cast<const float*>(encoded + layout.block_scales);
  const float offset = *reinterpret_cast<const float*>(encoded + layout.offset);
  const float* map = dynamic_map().data();
  with_storage(storage, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    for_blocks(pool, static_cast<T*>(y), n, [=](std::int64_t b, T* out) HWY_ATTR {
      const float scaled = map[block_codes[b]] * block_scales[b / kScaleBlock];
      expand_nibbles<true>(codes + b * kEncodedBlock / 2, kEncodedBlock, kNf4Values.data(), scaled + offset, out);
    });
  });
}

void expand_mxfp4_typed(ThreadPool& pool, Storage storage, const std::byte* encoded, void* y, std::int64_t n) {
  const EncodedLayout layout(Encoding::kMxfp4, n);
  const auto* codes = reinterpret_cast<const std::uint8_t*>(encoded + layout.codes);
  const auto* scales = reinterpret_cast<const std::uint8_t*>(encoded + layout.scales);
  with_storage(storage, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    for_blocks(pool, static_cast<T*>(y), n, [=](std::int64_t b, T* out) HWY_ATTR {
      for (std::int64_t i = 0; i < kEncodedBlock; i += kMxfp4Block) {
        const std::int64_t first = b * kEncodedBlock + i;
        if (first >= n) return;
        const float scale = mxfp4_scale(scales[first / kMxfp4Block]);
        expand_nibbles<false>(codes + first / 2, kMxfp4Block, kMxfp4Doubled.data(), scale, out + i);
      }
    });
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(expand_int8_typed);
HWY_EXPORT(expand_nf4_typed);
HWY_EXPORT(expand_mxfp4_typed);

void expand(ThreadPool& pool, Encoding encoding, Storage storage, const std::byte* encoded, void* y, std::int64_t n) {
  if (is_hadamard(encoding)) {
    expand_hadamard(pool, encoding, storage, encoded, y, n);
  } else if (encoding == Encoding::kInt8) {
    HWY_DYNAMIC_DISPATCH(expand_int8_typed)(pool, storage, encoded, y, n);
  } else if (encoding == Encoding::kMxfp4) {
    HWY_DYNAMIC_DISPATCH(expand_mxfp4_typed)(pool, storage, encoded, y, n);
  } else {
    HWY_DYNAMIC_DISPATCH(expand_nf4_typed)(pool, storage, encoded, y, n);
  }
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
