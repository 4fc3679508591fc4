// Small matrix products on fp32 in scratch: panels of kPanel rows, tiles held in registers.
//
// Arrays of vectors stay in registers because every index is a constant; instruction sets without a compile-time vector
// size would need another form.
#if defined(RONDO_CPU_KERNELS_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_CPU_KERNELS_PRODUCT_INL_H_
#undef RONDO_CPU_KERNELS_PRODUCT_INL_H_
#else
#define RONDO_CPU_KERNELS_PRODUCT_INL_H_
#endif

#include <utility>

#include "kernels/attention_layout.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

/// Element (row, k) of the left factor stands at data[row * stride + k], transposed at data[k * stride + row].
template <bool kTransposed>
struct Left {
  const float* data;
  std::int64_t stride;
  HWY_INLINE const float* at(std::int64_t row, std::int64_t k) const {
    return kTransposed ? data + k * stride + row : data + row * stride + k;
  }
};

/// Rows of a row-major matrix.
template <typename T>
struct Rows {
  T* data;
  std::int64_t stride;
  HWY_INLINE T* row(std::int64_t i) const { return data + i * stride; }
};

// What a product does with what stands in its result.
enum class Into { kNothing, kSum, kScaledSum };

// Vectors of a tile: with kPanel rows the sums leave registers for a row of the right factor and one broadcast.
inline constexpr std::size_t kTileVectors = hn::MaxLanes(Floats()) >= 16 ? 4 : 2;

HWY_INLINE std::int64_t offset_of(std::size_t vector) { return static_cast<std::int64_t>(vector) * lanes(); }

template <std::size_t kVectors, std::size_t... kIndex>
HWY_INLINE void multiply_row(Vector a, const Vector (&b)[kVectors], Vector* sums, std::index_sequence<kIndex...>) {
  ((sums[kIndex] = hn::MulAdd(a, b[kIndex], sums[kIndex])), ...);
}

template <std::size_t kVectors, bool kTransposed, std::int64_t... kRow>
HWY_INLINE void multiply_step(const Left<kTransposed>& a, std::int64_t k, const Vector (&b)[kVectors],
                              Vector (&sums)[kPanel][kVectors], std::integer_sequence<std::int64_t, kRow...>) {
  (multiply_row<kVectors>(splat(*a.at(kRow, k)), b, sums[kRow], std::make_index_sequence<kVectors>{}), ...);
}

template <std::size_t kVectors, Into kInto>
HWY_INLINE void begin_tile(const Rows<float>& c, const float* scale, Vector (&sums)[kPanel][kVectors]) {
#pragma GCC unroll 6
  for (int row = 0; row < kPanel; ++row) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kVectors; ++i) {
      if constexpr (kInto == Into::kNothing) {
        sums[row][i] = zero();
      } else {
        sums[row][i] = load(c.row(row) + offset_of(i));
        if constexpr (kInto == Into::kScaledSum) sums[row][i] = hn::Mul(sums[row][i], splat(scale[row]));
      }
    }
  }
}

/// One tile of kPanel rows and kVectors vectors of columns.
template <std::size_t kVectors, Into kInto, bool kTransposed>
HWY_INLINE void product_tile(const Left<kTransposed>& a, const Rows<const float>& b, const Rows<float>& c,
                             std::int64_t depth, const float* scale) {
  Vector sums[kPanel][kVectors];
  begin_tile<kVectors, kInto>(c, scale, sums);
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector right[kVectors];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kVectors; ++i) right[i] = load(b.row(k) + offset_of(i));
    multiply_step<kVectors>(a, k, right, sums, std::make_integer_sequence<std::int64_t, kPanel>{});
  }
#pragma GCC unroll 6
  for (int row = 0; row < kPanel; ++row) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kVectors; ++i) store(sums[row][i], c.row(row) + offset_of(i));
  }
}

/// c = a b, or c + a b, or diag(scale) c + a b for kPanel rows. columns: a multiple of lanes().
template <Into kInto, bool kTransposed>
HWY_INLINE void product_panel(const Left<kTransposed>& a, const Rows<const float>& b, const Rows<float>& c,
                              std::int64_t columns, std::int64_t depth, const float* scale = nullptr) {
  const std::int64_t step = lanes();
  constexpr auto kTile = static_cast<std::int64_t>(kTileVectors);
  std::int64_t at = 0;
  const auto from = [&](std::int64_t column) HWY_ATTR { return Rows<const float>{b.data + column, b.stride}; };
  const auto to = [&](std::int64_t column) HWY_ATTR { return Rows<float>{c.data + column, c.stride}; };
  for (; at + kTile * step <= columns; at += kTile * step) {
    product_tile<kTileVectors, kInto>(a, from(at), to(at), depth, scale);
  }
  if constexpr (kTileVectors > 2) {
    if (at + 3 * step == columns) return product_tile<3, kInto>(a, from(at), to(at), depth, scale);
    if (at + 2 * step == columns) return product_tile<2, kInto>(a, from(at), to(at), depth, scale);
  }
  if (at < columns) product_tile<1, kInto>(a, from(at), to(at), depth, scale);
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDO_CPU_KERNELS_PRODUCT_INL_H_
