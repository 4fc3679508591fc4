// The delta rule's small products, on fp32 in scratch: as those of product-inl.h, but of panels that 16 tokens fill.
//
// The right factor may be a state, which stays in a second-level cache: each of its rows is read once for a panel. Sums
// run over the depth in rising order whatever the tile, so that no element depends on where it stands.
#if defined(RONDO_CPU_KERNELS_DELTA_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_CPU_KERNELS_DELTA_PRODUCT_INL_H_
#undef RONDO_CPU_KERNELS_DELTA_PRODUCT_INL_H_
#else
#define RONDO_CPU_KERNELS_DELTA_PRODUCT_INL_H_
#endif

#include <utility>

#include "kernels/delta_layout.h"
#include "kernels/product-inl.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

/// Rows of a tile: with three vectors its sums leave registers for a row of the right factor and one broadcast.
inline constexpr int kDeltaRows = hn::MaxLanes(Floats()) >= 16 ? 8 : 4;
static_assert(kDeltaPanel % kDeltaRows == 0);

/// What a product adds to: rows times their factors.
struct Scaled {
  Rows<const float> rows;
  const float* factors;
};

template <std::size_t kVectors, bool kTransposed, std::int64_t... kRow>
HWY_INLINE void delta_step(const Left<kTransposed>& a, std::int64_t k, const Vector (&b)[kVectors],
                           Vector (&sums)[kDeltaRows][kVectors], std::integer_sequence<std::int64_t, kRow...>) {
  (multiply_row<kVectors>(splat(*a.at(kRow, k)), b, sums[kRow], std::make_index_sequence<kVectors>{}), ...);
}

template <std::size_t kVectors, Into kInto, bool kTransposed>
HWY_INLINE void delta_tile(const Left<kTransposed>& a, const Rows<const float>& b, const Rows<float>& c,
                           std::int64_t depth, const Scaled& from) {
  Vector sums[kDeltaRows][kVectors];
#pragma GCC unroll 8
  for (int row = 0; row < kDeltaRows; ++row) {
#pragma GCC unroll 3
    for (std::size_t i = 0; i < kVectors; ++i) {
      if constexpr (kInto == Into::kNothing) {
        sums[row][i] = zero();
      } else if constexpr (kInto == Into::kSum) {
        sums[row][i] = load(c.row(row) + offset_of(i));
      } else {
        sums[row][i] = hn::Mul(load(from.rows.row(row) + offset_of(i)), splat(from.factors[row]));
      }
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector right[kVectors];
#pragma GCC unroll 3
    for (std::size_t i = 0; i < kVectors; ++i) right[i] = load(b.row(k) + offset_of(i));
    delta_step<kVectors>(a, k, right, sums, std::make_integer_sequence<std::int64_t, kDeltaRows>{});
  }
#pragma GCC unroll 8
  for (int row = 0; row < kDeltaRows; ++row) {
#pragma GCC unroll 3
    for (std::size_t i = 0; i < kVectors; ++i) store(sums[row][i], c.row(row) + offset_of(i));
  }
}

/// kDeltaRows rows; columns: whole vectors.
template <Into kInto, bool kTransposed>
HWY_INLINE void delta_panel(const Left<kTransposed>& a, const Rows<const float>& b, const Rows<float>& c,
                            std::int64_t columns, std::int64_t depth, const Scaled& from) {
  const std::int64_t step = lanes();
  std::int64_t at = 0;
  const auto tile = [&](auto vectors) HWY_ATTR {
    constexpr std::size_t kVectors = decltype(vectors)::value;
    delta_tile<kVectors, kInto>(a, Rows<const float>{b.data + at, b.stride}, Rows<float>{c.data + at, c.stride}, depth,
                                Scaled{{from.rows.data + at, from.rows.stride}, from.factors});
    at += static_cast<std::int64_t>(kVectors) * step;
  };
  while (at < columns) {
    const std::int64_t left = (columns - at) / step;
    if (left == 1) {
      tile(std::integral_constant<std::size_t, 1>{});
    } else if (left == 2 || left == 4) {  // rather two and two than three and one
      tile(std::integral_constant<std::size_t, 2>{});
    } else {
      tile(std::integral_constant<std::size_t, 3>{});
    }
  }
}

/// c = a b, or c + a b, for `rows` rows and those that fill their last panel up.
template <Into kInto, bool kTransposed>
HWY_NOINLINE void delta_product(const Left<kTransposed>& a, const Rows<const float>& b, const Rows<float>& c,
                                std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  static_assert(kInto != Into::kScaledSum);
  for (std::int64_t row = 0; row < rows; row += kDeltaRows) {
    delta_panel<kInto>(Left<kTransposed>{a.at(row, 0), a.stride}, b, Rows<float>{c.row(row), c.stride}, columns, depth,
                       Scaled{{c.row(row), c.stride}, nullptr});
  }
}

/// c = diag(from.factors) from.rows + a b. `from.rows` may be c.
template <bool kTransposed>
HWY_NOINLINE void add_product(const Scaled& from, const Left<kTransposed>& a, const Rows<const float>& b,
                              const Rows<float>& c, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  for (std::int64_t row = 0; row < rows; row += kDeltaRows) {
    delta_panel<Into::kScaledSum>(Left<kTransposed>{a.at(row, 0), a.stride}, b, Rows<float>{c.row(row), c.stride},
                                  columns, depth, Scaled{{from.rows.row(row), from.rows.stride}, from.factors + row});
  }
}

// Where a square matrix has its numbers: in token i's row those of tokens up to i, or of tokens from i on.
enum class Triangle { kBefore, kBehind };

/// c = diag(factors) c + a b for the tokens of a piece, a being a triangle.
template <Triangle kTriangle, bool kTransposed>
HWY_NOINLINE void add_triangle_product(const float* factors, const Left<kTransposed>& a, const Rows<const float>& b,
                                       const Rows<float>& c, std::int64_t tokens, std::int64_t columns) {
  for (std::int64_t row = 0; row < tokens; row += kDeltaRows) {
    const std::int64_t first = kTriangle == Triangle::kBefore ? 0 : row;
    const std::int64_t last = kTriangle == Triangle::kBefore ? HWY_MIN(tokens, row + kDeltaRows) : tokens;
    delta_panel<Into::kScaledSum>(Left<kTransposed>{a.at(row, first), a.stride},
                                  Rows<const float>{b.row(first), b.stride}, Rows<float>{c.row(row), c.stride}, columns,
                                  last - first, Scaled{{c.row(row), c.stride}, factors + row});
  }
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDO_CPU_KERNELS_DELTA_PRODUCT_INL_H_
