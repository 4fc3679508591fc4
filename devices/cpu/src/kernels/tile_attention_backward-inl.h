// Attention backward in bf16 by tile units, on a pair of blocks: the work of attention_backward-inl.h.
//
// Scores stand transposed here, a row for a key: so P^T and dS^T come as left factors of dV and dK, lse and delta as
// vectors, and dS^T in pairs of rows as the right factor of dQ^T = K^T dS^T. P and dS are rounded to bf16; all sums
// are fp32.
#if defined(RONDO_CPU_KERNELS_TILE_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_CPU_KERNELS_TILE_ATTENTION_BACKWARD_INL_H_
#undef RONDO_CPU_KERNELS_TILE_ATTENTION_BACKWARD_INL_H_
#else
#define RONDO_CPU_KERNELS_TILE_ATTENTION_BACKWARD_INL_H_
#endif

#include "kernels/attention_backward-inl.h"
#include "kernels/tile_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

/// One thread's scratch for the backward pass.
struct TileBackwardScratch {
  TileBackwardScratch(const AttentionLayout& layout, Carver& carver)
      : rows(carver.take<Bf16>(layout.rows * layout.width)),
        queries_along(carver.take<std::uint32_t>(layout.rows * layout.width / 2)),
        slopes_along(carver.take<std::uint32_t>(layout.rows * layout.width / 2)),
        queries_down(carver.take<std::uint32_t>(layout.rows * layout.width / 2)),
        slopes_down(carver.take<std::uint32_t>(layout.rows * layout.width / 2)),
        query_sums(carver.take<float>(layout.rows * layout.width)),
        keys(carver.take<Bf16>(layout.keys * layout.width)),
        values(carver.take<Bf16>(layout.keys * layout.width)),
        key_pairs(carver.take<std::uint32_t>(layout.keys * layout.width / 2)),
        keys_transposed(carver.take<Bf16>(layout.keys * layout.width)),
        scores(carver.take<float>(kTile * layout.rows)),
        dots(carver.take<float>(kTile * layout.rows)),
        weights(carver.take<Bf16>(kTile * layout.rows)),
        score_slopes(carver.take<Bf16>(kTile * layout.rows)),
        slope_pairs(carver.take<std::uint32_t>(layout.keys * layout.rows / 2)),
        panel(carver.take<float>(kTile * layout.width)),
        lse(carver.take<float>(layout.rows)),
        delta(carver.take<float>(layout.rows)) {}
  Bf16* rows;                    // [rows][width]: Q, then dO
  std::uint32_t* queries_along;  // [width / 2][rows]: Q^T in pairs
  std::uint32_t* slopes_along;   // [width / 2][rows]: dO^T
  std::uint32_t* queries_down;   // [rows / 2][width]: Q in pairs
  std::uint32_t* slopes_down;    // [rows / 2][width]: dO
  float* query_sums;             // [width][rows]: dQ^T
  Bf16* keys;                    // [keys][width]
  Bf16* values;                  // [keys][width]
  std::uint32_t* key_pairs;      // [width / 2][keys]
  Bf16* keys_transposed;         // [width][keys]
  float* scores;                 // [kTile][rows]
  float* dots;                   // [kTile][rows]: V dO^T
  Bf16* weights;                 // [kTile][rows]: P^T
  Bf16* score_slopes;            // [kTile][rows]: dS^T
  std::uint32_t* slope_pairs;    // [keys / 2][rows]: dS^T in pairs
  float* panel;                  // [kTile][width]
  float* lse;                    // [rows], in powers of two
  float* delta;                  // [rows]
};

/// The work on one sequence and key head.
class TileBackward : public SequencePairs<Bf16> {
 public:
  using Scratch = TileBackwardScratch;
  /// How many times as long all pairs take by block as by sequence: beside units softmax counts for more, and is taken
  /// twice. Measured: 1.9 with AMX, 1.5 to 1.7 with dot products.
  static constexpr double kByBlock = 1.7;

  HWY_INLINE TileBackward(const BackwardProblem<Bf16>& problem, const TileBackwardScratch& scratch, TokenRange sequence,
                          std::int64_t kv_head)
      : SequencePairs(problem, sequence, kv_head),
        scratch_(scratch),
        factor_(problem.cap > 0.0F ? problem.scale / problem.cap : problem.scale * kLog2E),
        cap_(problem.cap * kLog2E) {}

  HWY_NOINLINE void load_query_block(Span queries) const {
    const std::int64_t place = query_place(queries.first);
    const std::int64_t count = queries.count * layout_.group;
    load_rows(problem_.q + place * layout_.head_dim, count, scratch_.queries_along, scratch_.queries_down);
    load_rows(problem_.d_o + place * layout_.head_dim, count, scratch_.slopes_along, scratch_.slopes_down);
    load_statistics(queries, kLog2E, scratch_.lse, scratch_.delta);
    for (std::int64_t row = count; row < whole_tiles(count); ++row) scratch_.delta[row] = scratch_.lse[row] = 0.0F;
  }

  HWY_NOINLINE void load_key_block(Span keys) const {
    const std::int64_t at = key_place(keys.first);
    copy_keys(layout_, problem_.k + at, keys.count, scratch_.keys);
    copy_keys(layout_, problem_.v + at, keys.count, scratch_.values);
    const std::int64_t count = whole_tiles(keys.count);
    pairs_of_columns(scratch_.keys, count, layout_.width, scratch_.key_pairs, layout_.keys);
    separate(scratch_.key_pairs, layout_.keys, layout_.width / 2, count, scratch_.keys_transposed, layout_.keys);
  }

  HWY_INLINE void clear_query_sums(Span queries) const {
    const auto bytes = static_cast<std::size_t>(whole_tiles(queries.count * layout_.group)) * sizeof(float);
    for (std::int64_t i = 0; i < layout_.width; ++i) std::memset(scratch_.query_sums + i * layout_.rows, 0, bytes);
  }

  HWY_NOINLINE void work_on(Span queries, Span keys, PairGoal goal) const {
    const Visible block = seeing(queries, keys);
    if (block.empty()) return;
    const Columns all = columns_of(block);
    for (std::int64_t key = 0; key < keys.count; key += kTile) {
      const Span panel{keys.first + key, HWY_MIN(kTile, keys.count - key)};
      const Visible seen = seeing(queries, panel);
      const Columns columns = seen.empty() ? Columns{all.end, all.end} : columns_of(seen);
      clear_pairs(key, {all.begin, columns.begin});
      clear_pairs(key, {columns.end, all.end});
      if (seen.empty()) continue;
      score(queries, panel, key, columns);
      if (goal == PairGoal::kQueries) continue;
      add_to_keys(panel, scratch_.weights, scratch_.slopes_down, columns, problem_.value_sums);
      add_to_keys(panel, scratch_.score_slopes, scratch_.queries_down, columns, problem_.key_sums);
    }
    if (goal == PairGoal::kKeys) return;
    layout_.units->multiply({.a = scratch_.keys_transposed,
                             .a_stride = layout_.keys,
                             .b = scratch_.slope_pairs + all.begin,
                             .b_stride = layout_.rows,
                             .c = scratch_.query_sums + all.begin,
                             .c_stride = layout_.rows,
                             .rows = layout_.width,
                             .columns = all.count(),
                             .inner = whole_tiles(keys.count),
                             .add = true});
  }

  HWY_NOINLINE void store_query_sums(Span queries) const {
    const std::int64_t place = query_place(queries.first);
    const std::int64_t count = queries.count * layout_.group;
    for (std::int64_t row = 0; row < count; row += kTile) {
      transpose_quads(scratch_.query_sums + row, layout_.rows, layout_.width, kTile, scratch_.panel, layout_.width);
      for (std::int64_t i = 0; i < HWY_MIN(kTile, count - row); ++i) {
        store_query_row(place + layout_.place_of(row + i), scratch_.panel + i * layout_.width);
      }
    }
  }

 private:
  HWY_INLINE void load_rows(const Bf16* from, std::int64_t count, std::uint32_t* along, std::uint32_t* down) const {
    copy_queries(layout_, from, count, scratch_.rows);
    pairs_of_columns(scratch_.rows, whole_tiles(count), layout_.width, along, layout_.rows);
    pairs_of_rows(scratch_.rows, whole_tiles(count), layout_.width, down);
  }

  /// Rows of a block of queries that see one of the keys: those from the first key's first to the last key's last.
  HWY_INLINE Visible seeing(Span queries, Span keys) const {
    std::int64_t hi = queries.count;
    if (problem_.window != 0) hi = HWY_MIN(hi, keys.first + keys.count - 1 + problem_.window - queries.first);
    return {HWY_MAX(std::int64_t{0}, keys.first - queries.first) * layout_.group,
            HWY_MAX(std::int64_t{0}, hi) * layout_.group};
  }

  HWY_INLINE void clear_pairs(std::int64_t key, Columns columns) const {
    if (columns.count() <= 0) return;
    const auto bytes = static_cast<std::size_t>(columns.count()) * sizeof(std::uint32_t);
    for (std::int64_t pair = key / 2; pair < (key + kTile) / 2; ++pair) {
      std::memset(scratch_.slope_pairs + pair * layout_.rows + columns.begin, 0, bytes);
    }
  }

  /// scores [kTile][columns] of the panel that begins with `key` of the block, from one factor's rows.
  HWY_INLINE void multiply_rows(const Bf16* left, const std::uint32_t* right, std::int64_t key, Columns columns,
                                float* scores) const {
    layout_.units->multiply({.a = left + key * layout_.width,
                             .a_stride = layout_.width,
                             .b = right + columns.begin,
                             .b_stride = layout_.rows,
                             .c = scores + columns.begin,
                             .c_stride = layout_.rows,
                             .rows = kTile,
                             .columns = columns.count(),
                             .inner = layout_.width,
                             .add = false});
  }

  /// P^T and dS^T of a panel of keys, zero where not visible.
  HWY_INLINE void score(Span queries, Span panel, std::int64_t key, Columns columns) const {
    multiply_rows(scratch_.keys, scratch_.queries_along, key, columns, scratch_.scores);
    multiply_rows(scratch_.values, scratch_.slopes_along, key, columns, scratch_.dots);
    for (std::int64_t i = 0; i < kTile; i += 2) {
      const auto row_sees = [&](std::int64_t row) {
        return row < panel.count ? seeing(queries, {panel.first + row, 1}) : Visible{0, 0};
      };
      finish_rows(i, row_sees(i), row_sees(i + 1), columns, scratch_.slope_pairs + (key + i) / 2 * layout_.rows);
    }
  }

  struct Finished {
    hn::Vec<Bits> weight;
    hn::Vec<Bits> slope;
  };
  /// One vector of a row; `visible` null: all of it.
  template <bool kCapped>
  HWY_INLINE Finished finish(std::int64_t row, std::int64_t column, const Visible* visible) const {
    const std::int64_t at = row * layout_.rows + column;
    auto score = load(scratch_.scores + at);
    if constexpr (kCapped) score = tanh_of(hn::Mul(score, splat(factor_)));
    auto weight = exp2_of(hn::MulSub(score, splat(kCapped ? cap_ : factor_), load(scratch_.lse + column)));
    auto slope = hn::Mul(weight, hn::Sub(load(scratch_.dots + at), load(scratch_.delta + column)));
    if constexpr (kCapped) slope = hn::NegMulAdd(hn::Mul(slope, score), score, slope);
    if (visible != nullptr) {
      const auto seen = visible_lanes(column, *visible);
      weight = hn::IfThenElseZero(seen, weight);
      slope = hn::IfThenElseZero(seen, slope);
    }
    return {rounded_bits(weight), rounded_bits(slope)};
  }

  /// Rows `row` and row + 1 of the panel.
  HWY_INLINE void finish_rows(std::int64_t row, Visible upper, Visible lower, Columns columns,
                              std::uint32_t* pairs) const {
    const bool whole = columns.within(upper) && columns.within(lower);
    const Visible* above = whole ? nullptr : &upper;
    const Visible* below = whole ? nullptr : &lower;
    if (cap_ > 0.0F) return finish_columns<true>(row, above, below, columns, pairs);
    finish_columns<false>(row, above, below, columns, pairs);
  }
  template <bool kCapped>
  HWY_INLINE void finish_columns(std::int64_t row, const Visible* upper, const Visible* lower, Columns columns,
                                 std::uint32_t* pairs) const {
    const std::int64_t step = lanes();
    Bf16* weights = scratch_.weights + row * layout_.rows;
    Bf16* slopes = scratch_.score_slopes + row * layout_.rows;
    for (std::int64_t i = columns.begin; i < columns.end; i += 2 * step) {
      const Finished upper_first = finish<kCapped>(row, i, upper);
      const Finished upper_second = finish<kCapped>(row, i + step, upper);
      const Finished lower_first = finish<kCapped>(row + 1, i, lower);
      const Finished lower_second = finish<kCapped>(row + 1, i + step, lower);
      store_halves(upper_first.weight, upper_second.weight, weights + i);
      store_halves(lower_first.weight, lower_second.weight, weights + layout_.rows + i);
      store_halves(upper_first.slope, upper_second.slope, slopes + i);
      store_halves(lower_first.slope, lower_second.slope, slopes + layout_.rows + i);
      hn::StoreU(paired(upper_first.slope, lower_first.slope), Bits(), pairs + i);
      hn::StoreU(paired(upper_second.slope, lower_second.slope), Bits(), pairs + i + step);
    }
  }

  /// sums[panel] += left right, over the queries of these columns.
  HWY_INLINE void add_to_keys(Span panel, const Bf16* left, const std::uint32_t* right, Columns columns,
                              float* all) const {
    float* to = sums(all, panel.first);
    // The rows after a sequence's last panel belong to another one: its sums pass through scratch.
    const bool whole = panel.count == kTile;
    const auto bytes = static_cast<std::size_t>(panel.count * layout_.width) * sizeof(float);
    if (!whole) std::memcpy(scratch_.panel, to, bytes);
    layout_.units->multiply({.a = left + columns.begin,
                             .a_stride = layout_.rows,
                             .b = right + columns.begin / 2 * layout_.width,
                             .b_stride = layout_.width,
                             .c = whole ? to : scratch_.panel,
                             .c_stride = layout_.width,
                             .rows = kTile,
                             .columns = layout_.width,
                             .inner = columns.count(),
                             .add = true});
    if (!whole) std::memcpy(to, scratch_.panel, bytes);
  }

  const TileBackwardScratch& scratch_;
  float factor_;  // of scores, with a cap before their tanh
  float cap_;     // of that, in powers of two
};

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDO_CPU_KERNELS_TILE_ATTENTION_BACKWARD_INL_H_
