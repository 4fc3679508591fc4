// Rows of attention's tensors in bf16 brought to where tile units read them: in whole tiles, or in pairs.
#if defined(RONDO_CPU_KERNELS_TILE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_CPU_KERNELS_TILE_ROWS_INL_H_
#undef RONDO_CPU_KERNELS_TILE_ROWS_INL_H_
#else
#define RONDO_CPU_KERNELS_TILE_ROWS_INL_H_
#endif

#include "kernels/attention_layout.h"
#include "kernels/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

inline constexpr float kLog2E = 1.44269504088896F;

HWY_INLINE std::int64_t whole_tiles(std::int64_t n) { return divide_up(n, kTile) * kTile; }
HWY_INLINE std::int64_t tiles_below(std::int64_t n) { return n / kTile * kTile; }

/// Columns begin ... end - 1 of scores, whole tiles.
struct Columns {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t count() const { return end - begin; }
  bool within(Visible visible) const { return visible.lo <= begin && visible.hi >= end; }
};

/// Those that hold what is visible.
HWY_INLINE Columns columns_of(Visible visible) { return {tiles_below(visible.lo), whole_tiles(visible.hi)}; }

/// to [whole tiles of `count`][layout.width], filled up with zeros; row i stands at from + place(i) head_dim.
template <typename Place>
HWY_INLINE void copy_rows(const AttentionLayout& layout, const Bf16* from, std::int64_t count, const Place& place,
                          Bf16* to) {
  const auto bytes = static_cast<std::size_t>(layout.head_dim) * sizeof(Bf16);
  const auto rest = static_cast<std::size_t>(layout.width - layout.head_dim) * sizeof(Bf16);
  for (std::int64_t row = 0; row < count; ++row, to += layout.width) {
    std::memcpy(to, from + place(row) * layout.head_dim, bytes);
    std::memset(to + layout.head_dim, 0, rest);
  }
  std::memset(to, 0, static_cast<std::size_t>((whole_tiles(count) - count) * layout.width) * sizeof(Bf16));
}
HWY_INLINE void copy_queries(const AttentionLayout& layout, const Bf16* from, std::int64_t count, Bf16* to) {
  copy_rows(
      layout, from, count, [&](std::int64_t row) { return layout.place_of(row); }, to);
}
HWY_INLINE void copy_keys(const AttentionLayout& layout, const Bf16* from, std::int64_t count, Bf16* to) {
  copy_rows(
      layout, from, count, [&](std::int64_t row) { return row * layout.kv_heads; }, to);
}

/// Pairs along a row: words [width / 2][stride] from `count` rows (whole quads) of rows [count][width].
HWY_INLINE void pairs_of_columns(const Bf16* rows, std::int64_t count, std::int64_t width, std::uint32_t* words,
                                 std::int64_t stride) {
  // Words are read as floats, and only moved.
  transpose_quads(reinterpret_cast<const float*>(rows), width / 2, count, width / 2, reinterpret_cast<float*>(words),
                  stride);
}
/// Pairs of rows: words [count / 2][width].
HWY_INLINE void pairs_of_rows(const Bf16* rows, std::int64_t count, std::int64_t width, std::uint32_t* words) {
  for (std::int64_t row = 0; row < count; row += 2) {
    interleave(rows + row * width, rows + (row + 1) * width, words + row / 2 * width, width);
  }
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDO_CPU_KERNELS_TILE_ROWS_INL_H_
