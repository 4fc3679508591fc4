// Attention's forward pass in bf16 by tile units: the work of attention-inl.h on one block of queries.
//
// Scores are sums in fp32 of exact products; softmax is rounded to bf16, to be multiplied with the values, its sum is
// not. A panel of rows sees whole tiles of keys; what it may not see has weight zero.
#if defined(RONDO_CPU_KERNELS_TILE_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_CPU_KERNELS_TILE_ATTENTION_INL_H_
#undef RONDO_CPU_KERNELS_TILE_ATTENTION_INL_H_
#else
#define RONDO_CPU_KERNELS_TILE_ATTENTION_INL_H_
#endif

#include <algorithm>

#include "kernels/attention-inl.h"
#include "kernels/tile_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

inline constexpr float kLn2 = 0.693147180559945F;

/// One thread's scratch for the forward pass.
struct TileForwardScratch {
  TileForwardScratch(const AttentionLayout& layout, Carver& carver)
      : queries(carver.take<Bf16>(layout.rows * layout.width)),
        outputs(carver.take<float>(layout.rows * layout.width)),
        rows(carver.take<Bf16>(layout.keys * layout.width)),
        keys(carver.take<std::uint32_t>(layout.keys * layout.width / 2)),
        values(carver.take<std::uint32_t>(layout.keys * layout.width / 2)),
        scores(carver.take<float>(kTile * layout.keys)),
        weights(carver.take<Bf16>(kTile * layout.keys)),
        maxima(carver.take<float>(layout.rows)),
        sums(carver.take<float>(layout.rows)),
        positions(carver.take<std::int32_t>(layout.rows)) {}
  Bf16* queries;          // [rows][width]
  float* outputs;         // [rows][width], not yet divided by the sums
  Bf16* rows;             // [keys][width]: keys, then values
  std::uint32_t* keys;    // [width / 2][keys]
  std::uint32_t* values;  // [keys / 2][width]
  float* scores;          // [kTile][keys]
  Bf16* weights;          // [kTile][keys]
  float* maxima;          // [rows], in powers of two
  float* sums;            // [rows]
  std::int32_t* positions;
};

/// The largest of a row's scores times `factor`; the lowest number there is where none is visible. kWhole: all are.
template <bool kWhole>
HWY_INLINE float largest_of(const float* scores, Visible visible, Columns columns, float factor) {
  const auto scale = splat(factor);
  auto most = splat(std::numeric_limits<float>::lowest());
  for (std::int64_t i = columns.begin; i < columns.end; i += lanes()) {
    auto score = hn::Mul(load(scores + i), scale);
    if constexpr (!kWhole) score = hn::IfThenElse(visible_lanes(i, visible), score, most);
    most = hn::Max(most, score);
  }
  return max_of(most);
}

/// weights = 2^(factor score - maximum), zero where not visible, rounded to bf16; returns the sum of what was rounded.
template <bool kWhole>
HWY_INLINE float soften(const float* scores, Visible visible, Columns columns, float factor, float maximum,
                        Bf16* weights) {
  const std::int64_t step = lanes();
  const auto scale = splat(factor);
  const auto shift = splat(maximum);
  auto first_sum = zero();
  auto second_sum = zero();
  const auto weight = [&](std::int64_t i) HWY_ATTR {
    const auto value = exp2_of(hn::MulSub(load(scores + i), scale, shift));
    if constexpr (kWhole) return value;
    return hn::IfThenElseZero(visible_lanes(i, visible), value);
  };
  for (std::int64_t i = columns.begin; i < columns.end; i += 2 * step) {
    const auto first = weight(i);
    const auto second = weight(i + step);
    first_sum = hn::Add(first_sum, first);
    second_sum = hn::Add(second_sum, second);
    store_halves(rounded_bits(first), rounded_bits(second), weights + i);
  }
  return sum_of(hn::Add(first_sum, second_sum));
}

/// scores -> tanh(factor score).
HWY_INLINE void cap_scores(const AttentionLayout& layout, Columns columns, float factor, float* scores) {
  const auto scale = splat(factor);
  for (std::int64_t i = 0; i < kTile; ++i, scores += layout.keys) {
    for (std::int64_t j = columns.begin; j < columns.end; j += lanes()) {
      store(tanh_of(hn::Mul(load(scores + j), scale)), scores + j);
    }
  }
}

/// The running softmax of a panel that begins with `row`: scores -> weights, outputs and sums shrunk to the new maxima.
HWY_INLINE void soften_panel(const AttentionLayout& layout, std::int64_t row, const Visible* rows, Columns columns,
                             float factor, const TileForwardScratch& scratch) {
  HWY_ALIGN float largest[kTile];
  HWY_ALIGN float shrinks[kTile];
  HWY_ALIGN float added[kTile];
  for (std::int64_t i = 0; i < kTile; ++i) {
    const float* scores = scratch.scores + i * layout.keys;
    largest[i] = columns.within(rows[i]) ? largest_of<true>(scores, rows[i], columns, factor)
                                         : largest_of<false>(scores, rows[i], columns, factor);
  }
  float* maxima = scratch.maxima + row;
  for (std::int64_t i = 0; i < kTile; i += lanes()) {
    const auto before = load(maxima + i);
    const auto now = hn::Max(before, load(largest + i));
    store(exp2_of(hn::Sub(before, now)), shrinks + i);
    store(now, maxima + i);
  }
  for (std::int64_t i = 0; i < kTile; ++i) {
    const float* scores = scratch.scores + i * layout.keys;
    Bf16* weights = scratch.weights + i * layout.keys;
    added[i] = columns.within(rows[i]) ? soften<true>(scores, rows[i], columns, factor, maxima[i], weights)
                                       : soften<false>(scores, rows[i], columns, factor, maxima[i], weights);
  }
  float* sums = scratch.sums + row;
  for (std::int64_t i = 0; i < kTile; i += lanes()) {
    store(hn::MulAdd(load(sums + i), load(shrinks + i), load(added + i)), sums + i);
  }
  for (std::int64_t i = 0; i < kTile; ++i) {
    if (shrinks[i] == 1.0F) continue;
    float* output = scratch.outputs + (row + i) * layout.width;
    const auto shrink = splat(shrinks[i]);
    for (std::int64_t j = 0; j < layout.width; j += lanes()) store(hn::Mul(load(output + j), shrink), output + j);
  }
}

/// One panel of queries against one packed block of keys.
HWY_INLINE void attend_panel(const AttentionLayout& layout, std::int64_t row, Span keys,
                             const AttentionAttributes& attributes, const TileForwardScratch& scratch) {
  Visible rows[kTile];
  Visible all{layout.keys, 0};
  for (std::int64_t i = 0; i < kTile; ++i) {
    rows[i] = visible_to(scratch.positions[row + i], keys.first, keys.count, attributes.window);
    if (!rows[i].empty()) all = {HWY_MIN(all.lo, rows[i].lo), HWY_MAX(all.hi, rows[i].hi)};
  }
  if (all.empty()) return;
  const Columns columns = columns_of(all);
  layout.units->multiply({.a = scratch.queries + row * layout.width,
                          .a_stride = layout.width,
                          .b = scratch.keys + columns.begin,
                          .b_stride = layout.keys,
                          .c = scratch.scores + columns.begin,
                          .c_stride = layout.keys,
                          .rows = kTile,
                          .columns = columns.count(),
                          .inner = layout.width,
                          .add = false});
  const bool capped = attributes.cap > 0.0F;
  if (capped) cap_scores(layout, columns, attributes.scale / attributes.cap, scratch.scores);
  soften_panel(layout, row, rows, columns, (capped ? attributes.cap : attributes.scale) * kLog2E, scratch);
  layout.units->multiply({.a = scratch.weights + columns.begin,
                          .a_stride = layout.keys,
                          .b = scratch.values + columns.begin / 2 * layout.width,
                          .b_stride = layout.width,
                          .c = scratch.outputs + row * layout.width,
                          .c_stride = layout.width,
                          .rows = kTile,
                          .columns = layout.width,
                          .inner = columns.count(),
                          .add = true});
}

inline HWY_NOINLINE void attend_block(const AttentionLayout& layout, const AttentionAttributes& attributes,
                                      const ForwardBlock<Bf16>& block, const TileForwardScratch& scratch) {
  const std::int64_t rows = layout.whole_panels(block.tokens * layout.group);
  copy_queries(layout, block.q, block.tokens * layout.group, scratch.queries);
  std::memset(scratch.outputs, 0, static_cast<std::size_t>(rows * layout.width) * sizeof(float));
  std::fill_n(scratch.maxima, rows, std::numeric_limits<float>::lowest());
  std::fill_n(scratch.sums, rows, 0.0F);
  const TokenRange span =
      fill_positions(layout, block.tokens, block.first_position, block.positions, scratch.positions);
  const std::int64_t stride = layout.kv_heads * layout.head_dim;
  for (std::int64_t first = layout.first_key_block(span.begin, attributes.window); first < span.end;
       first += layout.keys) {
    const Span keys{first, HWY_MIN(layout.keys, span.end - first)};
    copy_keys(layout, block.k + first * stride, keys.count, scratch.rows);
    pairs_of_columns(scratch.rows, whole_tiles(keys.count), layout.width, scratch.keys, layout.keys);
    copy_keys(layout, block.v + first * stride, keys.count, scratch.rows);
    pairs_of_rows(scratch.rows, whole_tiles(keys.count), layout.width, scratch.values);
    for (std::int64_t row = 0; row < rows; row += kTile) {
      attend_panel(layout, row, keys, attributes, scratch);
    }
  }
  store_outputs(layout, block, scratch.outputs, [&](std::int64_t row) {
    return RowState{scratch.maxima[row] * kLn2, scratch.sums[row]};
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDO_CPU_KERNELS_TILE_ATTENTION_INL_H_
