// Operands of products in eight bits, see rondo/devices/fp8.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fp8.cpp"
#include "rondo/devices/fp8.h"

#include <hwy/foreach_target.h>

#include <limits>

#include "kernels.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

/// The larger of `most` and a magnitude, as bits: those of what is not finite are the largest.
HWY_INLINE hn::Vec<Ints> larger(hn::Vec<Ints> most, Vector x) { return hn::Max(most, hn::BitCast(Ints(), hn::Abs(x))); }

/// The nearest code of x / scale times `scale`; `inverse` is 1 / scale.
template <typename Format>
HWY_INLINE Vector rounded(Vector x, Vector inverse, Vector scale) {
  const auto divided = hn::Mul(x, inverse);
  const auto magnitude = hn::Abs(divided);
  const auto power = hn::BitCast(Floats(), hn::And(hn::BitCast(Bits(), magnitude), hn::Set(Bits(), 0x7F800000U)));
  // Added to this, a number is left in units of its last bit, rounded to nearest even.
  const auto unit = hn::Mul(hn::Max(power, splat(Format::kLeast)), splat(Format::kUnits));
  const auto nearest = hn::Sub(hn::Add(magnitude, unit), unit);
  const auto number =
      hn::IfThenElse(hn::Lt(magnitude, splat(Format::kPast)), nearest, splat(std::numeric_limits<float>::quiet_NaN()));
  return hn::Mul(hn::CopySign(number, divided), scale);
}

/// kLeast: the least normal number; kUnits: 2^23 over 2^(bits of fraction); kPast: what is past the range.
struct E4m3 {
  static constexpr int kTop = kE4m3Top;
  static constexpr float kLeast = 0x1p-6F;
  static constexpr float kUnits = 0x1p20F;
  static constexpr float kPast = 0x1.d00002p8F;  // above 464
};
struct E5m2 {
  static constexpr int kTop = kE5m2Top;
  static constexpr float kLeast = 0x1p-14F;
  static constexpr float kUnits = 0x1p21F;
  static constexpr float kPast = 61440.0F;
};

HWY_INLINE float scale_of(std::int32_t most, int top) {
  float largest = 0;
  std::memcpy(&largest, &most, sizeof(largest));
  return fp8_scale(largest, top);
}

template <typename Format, typename T>
void round_rows(ThreadPool& pool, const T* x, Bf16* y, std::int64_t rows, std::int64_t columns) {
  const std::int64_t step = task_rows(columns);
  pool.parallel_for(divide_up(rows, step), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t end = HWY_MIN(rows, (task + 1) * step);
    for (std::int64_t at = task * step * columns; at < end * columns; at += columns) {
      auto most = hn::Zero(Ints());
      for_vectors(columns,
                  [&](std::int64_t i, auto extent) HWY_ATTR { most = larger(most, load(x + at + i, extent)); });
      const float scale = scale_of(hn::GetLane(hn::MaxOfLanes(Ints(), most)), Format::kTop);
      for_vectors(columns, [=](std::int64_t i, auto extent) HWY_ATTR {
        store(rounded<Format>(load(x + at + i, extent), splat(1.0F / scale), splat(scale)), y + at + i, extent);
      });
    }
  });
}

/// Columns of a task: a row's of them are read side by side.
constexpr std::int64_t kFp8Columns = 64;

template <typename Format, typename T>
void round_columns(ThreadPool& pool, const T* x, Bf16* y, std::int64_t rows, std::int64_t columns) {
  pool.parallel_for(divide_up(columns, kFp8Columns), [=](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t first = task * kFp8Columns;
    const std::int64_t width = HWY_MIN(kFp8Columns, columns - first);
    HWY_ALIGN std::int32_t most[kFp8Columns + hn::MaxLanes(Ints())] = {};
    for (std::int64_t row = 0; row < rows; ++row) {
      for_vectors(width, [&](std::int64_t i, auto extent) HWY_ATTR {
        hn::StoreU(larger(hn::LoadU(Ints(), most + i), load(x + row * columns + first + i, extent)), Ints(), most + i);
      });
    }
    HWY_ALIGN float scales[kFp8Columns + hn::MaxLanes(Floats())] = {};
    HWY_ALIGN float inverses[kFp8Columns + hn::MaxLanes(Floats())] = {};
    for (std::int64_t i = 0; i < width; ++i) {
      scales[i] = scale_of(most[i], Format::kTop);
      inverses[i] = 1.0F / scales[i];
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t at = row * columns + first;
      for_vectors(width, [&](std::int64_t i, auto extent) HWY_ATTR {
        store(rounded<Format>(load(x + at + i, extent), load(inverses + i), load(scales + i)), y + at + i, extent);
      });
    }
  });
}

void round_any(ThreadPool& pool, Storage storage, const void* x, std::uint16_t* y, std::int64_t rows,
               std::int64_t columns, EightBits format) {
  with_storage(storage, [&](auto type) {
    const auto* from = static_cast<const decltype(type)*>(x);
    if (format == EightBits::kColumnsE4m3) {
      round_columns<E4m3>(pool, from, y, rows, columns);
    } else if (format == EightBits::kRowsE5m2) {
      round_rows<E5m2>(pool, from, y, rows, columns);
    } else {
      round_rows<E4m3>(pool, from, y, rows, columns);
    }
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(round_any);

void round_to_eight_bits(ThreadPool& pool, Storage storage, const void* x, std::uint16_t* y, std::int64_t rows,
                         std::int64_t columns, EightBits format) {
  HWY_DYNAMIC_DISPATCH(round_any)(pool, storage, x, y, rows, columns, format);
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
