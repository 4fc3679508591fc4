// Attention backward on one sequence and key head: the work on a pair of blocks, whatever the order of pairs.
//
// Scores are computed again from lse. With P the weights, delta = rowsum(dO O) and dS = P (dO V^T - delta):
// dV = P^T dO,  dK = dS^T (scale Q),  dQ = scale dS K. With a cap dS is also times the capped score's slope, and scores
// are made of queries times scale / cap. What a pair of blocks needs of scratch and arithmetic is
// VectorBackward's, or TileBackward's (tile_attention_backward-inl.h).
#if defined(RONDO_CPU_KERNELS_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_CPU_KERNELS_ATTENTION_BACKWARD_INL_H_
#undef RONDO_CPU_KERNELS_ATTENTION_BACKWARD_INL_H_
#else
#define RONDO_CPU_KERNELS_ATTENTION_BACKWARD_INL_H_
#endif

#include "kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

template <typename T>
struct BackwardProblem {
  AttentionLayout layout;
  std::int64_t tokens;
  const T* q;
  const T* k;
  const T* v;
  const T* o;
  const float* lse;
  const T* d_o;
  const std::int32_t* bounds;
  T* dq;
  T* dk;
  T* dv;
  float scale;
  std::uint32_t window;
  float cap;          // 0: none
  float* key_sums;    // [kv_heads][tokens][width]
  float* value_sums;  // likewise
  float key_factor;   // by which the sums are multiplied to give dK
};

/// One thread's scratch for the backward pass.
struct VectorScratch {
  VectorScratch(const AttentionLayout& layout, Carver& carver)
      : queries(carver.take<float>(layout.rows * layout.width)),
        slopes(carver.take<float>(layout.rows * layout.width)),
        query_sums(carver.take<float>(layout.rows * layout.width)),
        weights(carver.take<float>(layout.rows * kKeys)),
        score_slopes(carver.take<float>(layout.rows * kKeys)),
        keys(carver.take<float>(kKeys * layout.width)),
        values(carver.take<float>(kKeys * layout.width)),
        keys_transposed(carver.take<float>(kKeys * layout.width)),
        values_transposed(carver.take<float>(kKeys * layout.width)),
        lse(carver.take<float>(layout.rows)),
        delta(carver.take<float>(layout.rows)),
        positions(carver.take<std::int32_t>(layout.rows)) {}
  float* queries;            // [rows][width], scaled
  float* slopes;             // [rows][width]: dO
  float* query_sums;         // [rows][width]: dQ
  float* weights;            // [rows][kKeys]: P
  float* score_slopes;       // [rows][kKeys]: dS
  float* keys;               // [kKeys][width]
  float* values;             // [kKeys][width]; a panel of sums once the block is packed
  float* keys_transposed;    // [width][kKeys]
  float* values_transposed;  // [width][kKeys]
  float* lse;                // [rows]
  float* delta;              // [rows]
  std::int32_t* positions;
};

// For which gradients a pair of blocks is worked on.
enum class PairGoal { kKeys, kQueries, kBoth };

/// One sequence and key head: which blocks meet, and where their numbers stand.
template <typename T>
class SequencePairs {
 public:
  HWY_INLINE SequencePairs(const BackwardProblem<T>& problem, TokenRange sequence, std::int64_t kv_head)
      : problem_(problem), layout_(problem.layout), sequence_(sequence), kv_head_(kv_head) {}

  HWY_INLINE Span queries_from(std::int64_t first) const {
    return {first, HWY_MIN(layout_.block_tokens, sequence_.length() - first)};
  }
  HWY_INLINE Span keys_from(std::int64_t first) const {
    return {first, HWY_MIN(layout_.keys, sequence_.length() - first)};
  }

  /// First block of keys that queries see, and the end of the keys that they see.
  HWY_INLINE TokenRange keys_seen_by(Span queries) const {
    return {layout_.first_key_block(queries.first, problem_.window), queries.first + queries.count};
  }
  /// First block of queries that sees keys, and the end of the queries that do.
  HWY_INLINE TokenRange queries_seeing(Span keys) const {
    const std::int64_t length = sequence_.length();
    const std::int64_t last_key = keys.first + keys.count - 1;
    const std::int64_t end = problem_.window == 0 ? length : HWY_MIN(length, last_key + problem_.window);
    return {keys.first / layout_.block_tokens * layout_.block_tokens, end};
  }

  HWY_INLINE void clear_sums(Span keys) const {
    const auto bytes = static_cast<std::size_t>(keys.count * layout_.width) * sizeof(float);
    std::memset(sums(problem_.key_sums, keys.first), 0, bytes);
    std::memset(sums(problem_.value_sums, keys.first), 0, bytes);
  }

 protected:
  /// Index of the first head of the group in [tokens, heads].
  HWY_INLINE std::int64_t query_place(std::int64_t first) const {
    return (sequence_.begin + first) * layout_.heads + kv_head_ * layout_.group;
  }
  /// First element of a key in [tokens, kv_heads, head_dim].
  HWY_INLINE std::int64_t key_place(std::int64_t first) const {
    return ((sequence_.begin + first) * layout_.kv_heads + kv_head_) * layout_.head_dim;
  }
  HWY_INLINE float* sums(float* all, std::int64_t key) const {
    return all + (kv_head_ * problem_.tokens + sequence_.begin + key) * layout_.width;
  }
  /// rowsum(dO O) of a row of a block of queries.
  HWY_INLINE float delta_of(std::int64_t place) const {
    const T* output = problem_.o + place * layout_.head_dim;
    const T* slope = problem_.d_o + place * layout_.head_dim;
    auto sum = zero();
    for_vectors(layout_.head_dim, [&](std::int64_t i, auto extent) HWY_ATTR {
      sum = hn::MulAdd(load(output + i, extent), load(slope + i, extent), sum);
    });
    return sum_of(sum);
  }
  /// Of the rows of a block of queries: lse times factor, and delta.
  HWY_INLINE void load_statistics(Span queries, float factor, float* lse, float* delta) const {
    const std::int64_t place = query_place(queries.first);
    for (std::int64_t row = 0; row < queries.count * layout_.group; ++row) {
      const std::int64_t at = place + layout_.place_of(row);
      lse[row] = problem_.lse[at] * factor;
      delta[row] = delta_of(at);
    }
  }
  HWY_INLINE void store_query_row(std::int64_t place, const float* sums) const {
    const auto scale = splat(problem_.scale);
    T* to = problem_.dq + place * layout_.head_dim;
    for_vectors(layout_.head_dim,
                [=](std::int64_t i, auto extent) HWY_ATTR { store(hn::Mul(load(sums + i), scale), to + i, extent); });
  }

  const BackwardProblem<T>& problem_;
  const AttentionLayout& layout_;
  TokenRange sequence_;
  std::int64_t kv_head_;
};

/// The work on one sequence and key head.
template <typename T>
class VectorBackward : public SequencePairs<T> {
  using Pairs = SequencePairs<T>;
  using Pairs::layout_;
  using Pairs::problem_;

 public:
  using Scratch = VectorScratch;
  /// How many times as long all pairs take by block as by sequence: seven products for five.
  static constexpr double kByBlock = 1.4;

  HWY_INLINE VectorBackward(const BackwardProblem<T>& problem, const VectorScratch& scratch, TokenRange sequence,
                            std::int64_t kv_head)
      : Pairs(problem, sequence, kv_head), scratch_(scratch) {}

  HWY_NOINLINE void load_query_block(Span queries) const {
    const std::int64_t place = this->query_place(queries.first);
    load_queries(layout_, problem_.q + place * layout_.head_dim, queries.count,
                 query_factor(problem_.scale, problem_.cap), scratch_.queries);
    load_queries(layout_, problem_.d_o + place * layout_.head_dim, queries.count, 1.0F, scratch_.slopes);
    fill_positions(layout_, queries.count, queries.first, nullptr, scratch_.positions);
    this->load_statistics(queries, 1.0F, scratch_.lse, scratch_.delta);
  }

  HWY_NOINLINE void load_key_block(Span keys) const {
    const std::int64_t at = this->key_place(keys.first);
    load_keys(layout_, problem_.k + at, keys.count, scratch_.keys);
    load_keys(layout_, problem_.v + at, keys.count, scratch_.values);
    transpose_keys(scratch_.keys, keys.count, layout_.width, scratch_.keys_transposed);
    transpose_keys(scratch_.values, keys.count, layout_.width, scratch_.values_transposed);
  }

  HWY_INLINE void clear_query_sums(Span queries) const {
    const std::int64_t rows = layout_.whole_panels(queries.count * layout_.group);
    std::memset(scratch_.query_sums, 0, static_cast<std::size_t>(rows * layout_.width) * sizeof(float));
  }

  HWY_NOINLINE void work_on(Span queries, Span keys, PairGoal goal) const {
    score(queries, keys, goal != PairGoal::kKeys);
    if (goal != PairGoal::kQueries) add_to_keys(queries, keys);
  }

  HWY_INLINE void store_query_sums(Span queries) const {
    const std::int64_t place = this->query_place(queries.first);
    for (std::int64_t row = 0; row < queries.count * layout_.group; ++row) {
      this->store_query_row(place + layout_.place_of(row), scratch_.query_sums + row * layout_.width);
    }
  }

 private:
  /// P and dS of the loaded blocks; with `into_queries` also dQ += dS K.
  HWY_NOINLINE void score(Span queries, Span keys, bool into_queries) const {
    const std::int64_t columns = round_up_to_lanes(layout_.head_dim);
    for (std::int64_t row = 0; row < queries.count * layout_.group; row += kPanel) {
      const PanelView view = view_of(scratch_.positions + row, keys.first, keys.count, problem_.window);
      score_panel(row, view);
      if (!into_queries || view.empty()) continue;
      const Left<false> left{scratch_.score_slopes + row * kKeys + view.lo, kKeys};
      product_panel<Into::kSum>(left, {scratch_.keys + view.lo * layout_.width, layout_.width},
                                {scratch_.query_sums + row * layout_.width, layout_.width}, columns, view.hi - view.lo);
    }
  }

  /// dV += P^T dO and dK += dS^T Q for the loaded blocks.
  HWY_NOINLINE void add_to_keys(Span queries, Span keys) const {
    add_transposed(queries, keys, scratch_.weights, scratch_.slopes, problem_.value_sums);
    add_transposed(queries, keys, scratch_.score_slopes, scratch_.queries, problem_.key_sums);
  }

  HWY_INLINE void score_panel(std::int64_t row, const PanelView& view) const {
    float* weights = scratch_.weights + row * kKeys;
    float* slopes = scratch_.score_slopes + row * kKeys;
    if (!view.empty()) {
      const std::int64_t columns = view.end - view.begin;
      product_panel<Into::kNothing>(Left<false>{scratch_.queries + row * layout_.width, layout_.width},
                                    {scratch_.keys_transposed + view.begin, kKeys}, {weights + view.begin, kKeys},
                                    columns, layout_.head_dim);
      product_panel<Into::kNothing>(Left<false>{scratch_.slopes + row * layout_.width, layout_.width},
                                    {scratch_.values_transposed + view.begin, kKeys}, {slopes + view.begin, kKeys},
                                    columns, layout_.head_dim);
    }
    const auto finish = [&](auto capped) HWY_ATTR {
      for (std::int64_t i = 0; i < kPanel; ++i) {
        finish_row<decltype(capped)::value>(weights + i * kKeys, slopes + i * kKeys, view, view.rows[i],
                                            scratch_.lse[row + i], scratch_.delta[row + i], problem_.cap);
      }
    };
    problem_.cap > 0.0F ? finish(std::true_type{}) : finish(std::false_type{});
  }

  /// Scores -> P, dO V^T -> dS; zeros in all columns that are not visible.
  template <bool kCapped>
  static HWY_INLINE void finish_row(float* weights, float* slopes, const PanelView& view, Visible visible, float lse,
                                    float delta, float cap) {
    const auto shift = splat(lse);
    const auto mean = splat(delta);
    for (std::int64_t i = 0; i < kKeys; i += lanes()) {
      auto weight = zero();
      auto slope = zero();
      if (!visible.empty() && i >= view.begin && i < view.end) {
        const auto seen = visible_lanes(i, visible);
        auto score = load(weights + i);
        auto part = zero();
        if constexpr (kCapped) {
          part = tanh_of(score);
          score = hn::Mul(part, splat(cap));
        }
        weight = hn::IfThenElseZero(seen, exp_of(hn::Sub(score, shift)));
        slope = hn::IfThenElseZero(seen, hn::Mul(weight, hn::Sub(load(slopes + i), mean)));
        if constexpr (kCapped) slope = hn::NegMulAdd(hn::Mul(slope, part), part, slope);
      }
      store(weight, weights + i);
      store(slope, slopes + i);
    }
  }

  /// Rows of the loaded queries that see one of the keys first ... first + count - 1.
  HWY_INLINE TokenRange rows_seeing(Span queries, std::int64_t first, std::int64_t count) const {
    const std::int64_t begin = HWY_MAX(std::int64_t{0}, first - queries.first);
    std::int64_t end = queries.count;
    if (problem_.window != 0) end = HWY_MIN(end, first + count - 1 + problem_.window - queries.first);
    return {begin * layout_.group, HWY_MAX(begin, end) * layout_.group};
  }

  /// sums[keys] += left^T right, a tile's columns at a time so that those of `right` stay in the first-level cache.
  HWY_INLINE void add_transposed(Span queries, Span keys, const float* left, const float* right, float* all) const {
    const std::int64_t columns = round_up_to_lanes(layout_.head_dim);
    const std::int64_t step = offset_of(kTileVectors);
    for (std::int64_t column = 0; column < columns; column += step) {
      const std::int64_t width = HWY_MIN(step, columns - column);
      for (std::int64_t key = 0; key < keys.count; key += kPanel) {
        const std::int64_t count = HWY_MIN(kPanel, keys.count - key);
        const TokenRange rows = rows_seeing(queries, keys.first + key, count);
        if (rows.length() <= 0) continue;
        const Left<true> a{left + rows.begin * kKeys + key, kKeys};
        const Rows<const float> b{right + rows.begin * layout_.width + column, layout_.width};
        float* to = this->sums(all, keys.first + key) + column;
        if (count == kPanel) {
          product_panel<Into::kSum>(a, b, {to, layout_.width}, width, rows.length());
        } else {
          add_short_panel(a, b, {to, layout_.width}, width, rows.length(), count);
        }
      }
    }
  }

  /// The last panel of a sequence: the rows after it belong to another one, so the sums pass through scratch.
  HWY_INLINE void add_short_panel(const Left<true>& a, const Rows<const float>& b, const Rows<float>& to,
                                  std::int64_t width, std::int64_t depth, std::int64_t count) const {
    const Rows<float> panel{scratch_.values, layout_.width};
    const auto bytes = static_cast<std::size_t>(width) * sizeof(float);
    for (std::int64_t i = 0; i < kPanel; ++i) std::memset(panel.row(i), 0, bytes);
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(panel.row(i), to.row(i), bytes);
    product_panel<Into::kSum>(a, b, panel, width, depth);
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(to.row(i), panel.row(i), bytes);
  }

  const VectorScratch& scratch_;
};

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDO_CPU_KERNELS_ATTENTION_BACKWARD_INL_H_
