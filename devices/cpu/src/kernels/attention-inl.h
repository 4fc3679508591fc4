// What attention's kernels share: rows brought to fp32 in scratch, blocks of keys packed for the register tiles, and
// the forward pass of one block of queries.
#if defined(RONDO_CPU_KERNELS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_CPU_KERNELS_ATTENTION_INL_H_
#undef RONDO_CPU_KERNELS_ATTENTION_INL_H_
#else
#define RONDO_CPU_KERNELS_ATTENTION_INL_H_
#endif

#include <cmath>
#include <limits>

#include "kernels/attention_layout.h"
#include "kernels/product-inl.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

HWY_INLINE std::int64_t round_up_to_lanes(std::int64_t n) { return divide_up(n, lanes()) * lanes(); }
HWY_INLINE std::int64_t round_down_to_lanes(std::int64_t n) { return n / lanes() * lanes(); }

/// to[0 ... width) = from[0 ... count) * factor, then zeros.
template <typename T>
HWY_INLINE void load_row(const T* from, std::int64_t count, std::int64_t width, float factor, float* to) {
  const auto scale = splat(factor);
  for_vectors(count, [=](std::int64_t i, auto extent) HWY_ATTR {
    // The rest of a vector that is only partly there is zero: `to` has room for it.
    store(hn::Mul(load(from + i, extent), scale), to + i);
  });
  for (std::int64_t i = round_up_to_lanes(count); i < width; i += lanes()) store(zero(), to + i);
}

/// Rows (token, head of the group) of a block of queries, times factor; rows that fill the last panel are zeros.
template <typename T>
HWY_INLINE void load_queries(const AttentionLayout& layout, const T* from, std::int64_t tokens, float factor,
                             float* to) {
  for (std::int64_t row = 0; row < layout.whole_panels(tokens * layout.group); ++row) {
    float* into = to + row * layout.width;
    if (row < tokens * layout.group) {
      load_row(from + layout.place_of(row) * layout.head_dim, layout.head_dim, layout.width, factor, into);
    } else {
      std::memset(into, 0, static_cast<std::size_t>(layout.width) * sizeof(float));
    }
  }
}

/// to[0 ... kKeys)[width]: `count` keys or values as fp32, then zero rows up to a whole vector.
template <typename T>
HWY_INLINE void load_keys(const AttentionLayout& layout, const T* from, std::int64_t count, float* to) {
  const std::int64_t stride = layout.kv_heads * layout.head_dim;
  for (std::int64_t key = 0; key < count; ++key) {
    load_row(from + key * stride, layout.head_dim, layout.width, 1.0F, to + key * layout.width);
  }
  const std::int64_t rest = divide_up(count, 16) * 16 - count;
  std::memset(to + count * layout.width, 0, static_cast<std::size_t>(rest * layout.width) * sizeof(float));
}

/// to[width][kKeys] = from[kKeys][width] transposed, for the first `count` keys rounded up to a whole vector.
HWY_INLINE void transpose_keys(const float* from, std::int64_t count, std::int64_t width, float* to) {
  transpose_quads(from, width, divide_up(count, 16) * 16, width, to, kKeys);
}

/// What a panel of rows sees of a block of keys, and the whole vectors of columns that hold it.
struct PanelView {
  Visible rows[kPanel];
  std::int64_t lo;
  std::int64_t hi;
  std::int64_t begin;
  std::int64_t end;
  bool empty() const { return hi <= lo; }
};

HWY_INLINE PanelView view_of(const std::int32_t* positions, std::int64_t first, std::int64_t count,
                             std::uint32_t window) {
  PanelView view{};
  view.lo = kKeys;
  for (std::int64_t row = 0; row < kPanel; ++row) {
    view.rows[row] = visible_to(positions[row], first, count, window);
    if (view.rows[row].empty()) continue;
    view.lo = HWY_MIN(view.lo, view.rows[row].lo);
    view.hi = HWY_MAX(view.hi, view.rows[row].hi);
  }
  view.begin = round_down_to_lanes(view.lo);
  view.end = round_up_to_lanes(view.hi);
  return view;
}

HWY_INLINE hn::Mask<Floats> visible_lanes(std::int64_t column, Visible visible) {
  // One comparison: what lies before `lo` wraps round to large numbers. Iota's lanes from anything but a constant would
  // go one by one through memory.
  const auto after = hn::Add(hn::Iota(Bits(), 0), hn::Set(Bits(), static_cast<std::uint32_t>(column - visible.lo)));
  const std::int64_t count = HWY_MAX(std::int64_t{0}, visible.hi - visible.lo);
  return hn::RebindMask(Floats(), hn::Lt(after, hn::Set(Bits(), static_cast<std::uint32_t>(count))));
}

/// scores -> cap * tanh(score) in columns begin ... end - 1: queries were loaded times scale / cap.
HWY_INLINE void cap_row(float* scores, std::int64_t begin, std::int64_t end, float cap) {
  const auto most = splat(cap);
  for (std::int64_t i = begin; i < end; i += lanes()) store(hn::Mul(tanh_of(load(scores + i)), most), scores + i);
}

/// What queries are multiplied by.
HWY_INLINE float query_factor(float scale, float cap) { return cap > 0.0F ? scale / cap : scale; }

/// The running softmax of one row.
struct RowState {
  float maximum;
  float sum;
};

/// scores -> e^(score - maximum) in columns begin ... end - 1, zero where not visible. Returns the factor by which what
/// was summed before shrinks.
HWY_INLINE float soften_row(float* scores, Visible visible, std::int64_t begin, std::int64_t end, RowState& state) {
  const std::int64_t step = lanes();
  if (visible.empty()) {
    for (std::int64_t i = begin; i < end; i += step) store(zero(), scores + i);
    return 1.0F;
  }
  const bool whole = visible.lo <= begin && visible.hi >= end;
  const auto lowest = splat(std::numeric_limits<float>::lowest());
  auto most = lowest;
  for (std::int64_t i = begin; i < end; i += step) {
    auto score = load(scores + i);
    if (!whole) score = hn::IfThenElse(visible_lanes(i, visible), score, lowest);
    most = hn::Max(most, score);
  }
  const float maximum = HWY_MAX(state.maximum, max_of(most));
  const float shrink = hn::GetLane(exp_of(splat(state.maximum - maximum)));
  const auto shift = splat(maximum);
  auto sum = zero();
  for (std::int64_t i = begin; i < end; i += step) {
    auto weight = exp_of(hn::Sub(load(scores + i), shift));
    if (!whole) weight = hn::IfThenElseZero(visible_lanes(i, visible), weight);
    sum = hn::Add(sum, weight);
    store(weight, scores + i);
  }
  state.sum = state.sum * shrink + sum_of(sum);
  state.maximum = maximum;
  return shrink;
}

/// One thread's scratch for the forward pass.
struct ForwardScratch {
  ForwardScratch(const AttentionLayout& layout, Carver& carver)
      : queries(carver.take<float>(layout.rows * layout.width)),
        outputs(carver.take<float>(layout.rows * layout.width)),
        keys(carver.take<float>(kKeys * layout.width)),
        transposed(carver.take<float>(kKeys * layout.width)),
        scores(carver.take<float>(kPanel * kKeys)),
        states(carver.take<RowState>(layout.rows)),
        positions(carver.take<std::int32_t>(layout.rows)) {}
  float* queries;     // [rows][width], scaled
  float* outputs;     // [rows][width], not yet divided by the sums
  float* keys;        // [kKeys][width]: keys, then values
  float* transposed;  // [width][kKeys]
  float* scores;      // [kPanel][kKeys]
  RowState* states;   // [rows]
  std::int32_t* positions;
};

/// A block of queries and what they look at: pointers to the first token's row of the key head's group, and to key 0.
template <typename T>
struct ForwardBlock {
  const T* q;
  const T* k;
  const T* v;
  T* o;
  float* lse;
  std::int64_t tokens;
  std::int64_t first_position;    // of the tokens in rising order, unless
  const std::int32_t* positions;  // they are told one by one
};

/// Positions of all rows of a block, -1 where there is none; returns the range that they span.
HWY_INLINE TokenRange fill_positions(const AttentionLayout& layout, std::int64_t tokens, std::int64_t first_position,
                                     const std::int32_t* given, std::int32_t* to) {
  TokenRange span{std::numeric_limits<std::int64_t>::max(), 0};
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::int64_t position = given == nullptr ? first_position + token : given[token];
    span = {HWY_MIN(span.begin, position), HWY_MAX(span.end, position + 1)};
    for (std::int64_t g = 0; g < layout.group; ++g) to[token * layout.group + g] = static_cast<std::int32_t>(position);
  }
  const std::int64_t rows = tokens * layout.group;
  for (std::int64_t row = rows; row < layout.whole_panels(rows); ++row) to[row] = -1;
  return span;
}

/// All panels of a block of queries against one packed block of keys.
HWY_INLINE void attend_keys(const AttentionLayout& layout, std::int64_t rows, std::int64_t first, std::int64_t count,
                            const AttentionAttributes& attributes, const ForwardScratch& scratch) {
  const std::int64_t columns = round_up_to_lanes(layout.head_dim);
  for (std::int64_t row = 0; row < rows; row += kPanel) {
    const PanelView view = view_of(scratch.positions + row, first, count, attributes.window);
    if (view.empty()) continue;
    const Left<false> queries{scratch.queries + row * layout.width, layout.width};
    product_panel<Into::kNothing>(queries, {scratch.transposed + view.begin, kKeys},
                                  {scratch.scores + view.begin, kKeys}, view.end - view.begin, layout.head_dim);
    for (std::int64_t i = 0; i < kPanel && attributes.cap > 0.0F; ++i) {
      cap_row(scratch.scores + i * kKeys, view.begin, view.end, attributes.cap);
    }
    float shrink[kPanel];
    for (std::int64_t i = 0; i < kPanel; ++i) {
      shrink[i] = soften_row(scratch.scores + i * kKeys, view.rows[i], view.begin, view.end, scratch.states[row + i]);
    }
    const Left<false> weights{scratch.scores + view.lo, kKeys};
    product_panel<Into::kScaledSum>(weights, {scratch.keys + view.lo * layout.width, layout.width},
                                    {scratch.outputs + row * layout.width, layout.width}, columns, view.hi - view.lo,
                                    shrink);
  }
}

/// state_of(row): RowState.
template <typename T, typename StateOf>
HWY_INLINE void store_outputs(const AttentionLayout& layout, const ForwardBlock<T>& block, const float* outputs,
                              const StateOf& state_of) {
  for (std::int64_t row = 0; row < block.tokens * layout.group; ++row) {
    const RowState state = state_of(row);
    const std::int64_t place = layout.place_of(row);
    const float* from = outputs + row * layout.width;
    T* to = block.o + place * layout.head_dim;
    const auto sum = splat(state.sum);
    for_vectors(layout.head_dim,
                [=](std::int64_t i, auto extent) HWY_ATTR { store(hn::Div(load(from + i), sum), to + i, extent); });
    block.lse[place] = state.maximum + std::log(state.sum);
  }
}

template <typename T>
HWY_NOINLINE void attend_block(const AttentionLayout& layout, const AttentionAttributes& attributes,
                               const ForwardBlock<T>& block, const ForwardScratch& scratch) {
  const std::int64_t rows = layout.whole_panels(block.tokens * layout.group);
  load_queries(layout, block.q, block.tokens, query_factor(attributes.scale, attributes.cap), scratch.queries);
  std::memset(scratch.outputs, 0, static_cast<std::size_t>(rows * layout.width) * sizeof(float));
  for (std::int64_t row = 0; row < rows; ++row) scratch.states[row] = {std::numeric_limits<float>::lowest(), 0.0F};
  const TokenRange span =
      fill_positions(layout, block.tokens, block.first_position, block.positions, scratch.positions);
  const std::int64_t stride = layout.kv_heads * layout.head_dim;
  for (std::int64_t first = layout.first_key_block(span.begin, attributes.window); first < span.end; first += kKeys) {
    const std::int64_t count = HWY_MIN(kKeys, span.end - first);
    load_keys(layout, block.k + first * stride, count, scratch.keys);
    transpose_keys(scratch.keys, count, layout.width, scratch.transposed);
    load_keys(layout, block.v + first * stride, count, scratch.keys);
    attend_keys(layout, rows, first, count, attributes, scratch);
  }
  store_outputs(layout, block, scratch.outputs, [&](std::int64_t row) { return scratch.states[row]; });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDO_CPU_KERNELS_ATTENTION_INL_H_
