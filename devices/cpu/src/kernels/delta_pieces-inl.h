// What forward and backward of the delta rule share: a piece's keys, gates and products, and the state behind it.
//
// With G_i the sum of g over the piece's tokens up to i, U and Q the rows of keys and queries, S the state before the
// piece: B[i][j] = exp(G_i - G_j) (U_i . U_j) and M[i][j] = exp(G_i - G_j) (Q_i . U_j) are `overlaps`. Then
//   e_i = v_i - exp(G_i) S^T U_i - sum over j < i of B[i][j] d_j,  d_i = beta_i e_i,
//   S  <- exp(G_n) S + sum of exp(G_n - G_j) U_j d_j^T.
// Of a state space (DeltaShape::state_space) keys and queries are rows as they are, and e_i = v_i.
#if defined(RONDO_CPU_KERNELS_DELTA_PIECES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_CPU_KERNELS_DELTA_PIECES_INL_H_
#undef RONDO_CPU_KERNELS_DELTA_PIECES_INL_H_
#else
#define RONDO_CPU_KERNELS_DELTA_PIECES_INL_H_
#endif

#include <hwy/cache_control.h>

#include <cmath>

#include "kernels/delta_layout.h"
#include "kernels/delta_product-inl.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

/// Operands in their storage.
template <typename T>
struct DeltaInputs {
  const T* q;
  const T* k;
  const T* v;
  const float* g;
  const float* beta;
};

/// to[0 ... filled) = from[0 ... count), then zeros. filled: whole vectors.
template <typename T>
HWY_INLINE void delta_row(const T* from, std::int64_t count, std::int64_t filled, float* to) {
  for_vectors(count, [=](std::int64_t i, auto extent) HWY_ATTR { store(load(from + i, extent), to + i); });
  for (std::int64_t i = divide_up(count, lanes()) * lanes(); i < filled; i += lanes()) store(zero(), to + i);
}

/// Rows of one head lie far apart, so that the processor does not see by itself which comes next.
template <typename T>
HWY_INLINE void fetch_row(const T* row, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(64 / sizeof(T))) hwy::Prefetch(row + i);
}
/// The token whose rows are fetched while those of `token` are read.
HWY_INLINE std::int64_t fetched_token(const DeltaLayout& layout, std::int64_t token, std::int64_t ahead) {
  return HWY_MIN(HWY_MAX(token + ahead, 0), layout.shape.tokens - 1);
}

HWY_INLINE void clear_floats(float* to, std::int64_t count) {
  std::memset(to, 0, static_cast<std::size_t>(count) * sizeof(float));
}

/// The sum of x[i] y[i], n in whole vectors.
HWY_INLINE float delta_dot(const float* x, const float* y, std::int64_t n) {
  auto even = zero();
  auto odd = zero();
  std::int64_t i = 0;
  for (; i + 2 * lanes() <= n; i += 2 * lanes()) {
    even = hn::MulAdd(load(x + i), load(y + i), even);
    odd = hn::MulAdd(load(x + i + lanes()), load(y + i + lanes()), odd);
  }
  if (i < n) even = hn::MulAdd(load(x + i), load(y + i), even);
  return sum_of(hn::Add(even, odd));
}

/// A row of length one, times `factor`; 1 / its length. Of a state space the row itself, and 1.
template <typename T>
HWY_INLINE float unit_row(const T* from, const DeltaLayout& layout, float factor, float* to) {
  delta_row(from, layout.shape.size, layout.key_stride, to);
  if (layout.shape.state_space) return 1.0F;
  const float inverse = 1.0F / std::sqrt(delta_dot(to, to, layout.key_columns) + 1e-6F);
  const auto by = splat(inverse * factor);
  for (std::int64_t i = 0; i < layout.key_columns; i += lanes()) store(hn::Mul(load(to + i), by), to + i);
  return inverse;
}

// The order in which pieces are worked on.
enum class Direction { kForward, kBackward };
/// How far ahead of a token rows are fetched: a piece, or the stretch whose turn it is next.
constexpr std::int64_t fetched_ahead(Direction direction) {
  return direction == Direction::kForward ? kPiece : -kDeltaChunk;
}

/// Keys and queries of `tokens` tokens from `first` on. The queries' transpose is only wanted backward.
template <typename T>
HWY_NOINLINE void load_piece_keys(const DeltaLayout& layout, const DeltaInputs<T>& inputs, std::int64_t key_head,
                                  std::int64_t first, std::int64_t tokens, Direction direction,
                                  const PieceKeys& piece) {
  const std::int64_t step = layout.key_stride;
  float* const queries = piece.rows + kPiece * step;
  const float scale = 1.0F / std::sqrt(static_cast<float>(layout.shape.size));
  std::fill_n(piece.inverse, 2 * kPiece, 0.0F);
  for (std::int64_t i = 0; i < tokens; ++i) {
    const auto place_of = [&](std::int64_t token) {
      return (token * layout.shape.key_heads + key_head) * layout.shape.size;
    };
    const std::int64_t at = place_of(first + i);
    const std::int64_t next = place_of(fetched_token(layout, first + i, fetched_ahead(direction)));
    fetch_row(inputs.k + next, layout.shape.size);
    fetch_row(inputs.q + next, layout.shape.size);
    piece.inverse[i] = unit_row(inputs.k + at, layout, 1.0F, piece.rows + i * step);
    piece.inverse[kPiece + i] = unit_row(inputs.q + at, layout, scale, queries + i * step);
  }
  clear_floats(piece.rows + tokens * step, (kPiece - tokens) * step);
  clear_floats(queries + tokens * step, (kPiece - tokens) * step);
  transpose_quads(piece.rows, step, direction == Direction::kBackward ? 2 * kPiece : kPiece, layout.key_columns,
                  piece.turned, 2 * kPiece);
  delta_product<Into::kNothing>(Left<false>{piece.rows, step}, {piece.turned, 2 * kPiece}, {piece.scores, kPiece},
                                2 * kPiece, kPiece, layout.shape.size);
}

/// Decays, their products with the scores, and beta, of one value head. Sums of g run from token to token: a difference
/// of two long sums would lose what a slow decay has behind a fast one.
template <typename T>
HWY_NOINLINE void load_piece_gates(const DeltaLayout& layout, const DeltaInputs<T>& inputs, std::int64_t head,
                                   std::int64_t first, std::int64_t tokens, const PieceKeys& keys,
                                   const PieceValues& piece) {
  constexpr float kNothingLeft = -1e30F;
  HWY_ALIGN float sums[kPiece];
  HWY_ALIGN float whole[kPiece];
  std::fill_n(sums, kPiece, kNothingLeft);
  std::fill_n(whole, kPiece, kNothingLeft);
  std::fill_n(piece.beta, kPiece, 0.0F);
  float sum = 0;
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t at = (first + i) * layout.shape.heads + head;
    sum += inputs.g[at];
    whole[i] = sum;
    piece.beta[i] = inputs.beta[at];
    const auto g = splat(inputs.g[at]);
    for (std::int64_t j = 0; j < kPiece; j += lanes()) store(hn::Add(load(sums + j), g), sums + j);
    sums[i] = 0;
    for (std::int64_t j = 0; j < kPiece; j += lanes()) {
      store(exp_of(load(sums + j)), piece.decays + i * kPiece + j);
    }
  }
  clear_floats(piece.decays + tokens * kPiece, (kPiece - tokens) * kPiece);
  for (std::int64_t j = 0; j < kPiece; j += lanes()) store(exp_of(load(whole + j)), piece.from_start + j);
  for (std::int64_t i = 0; i < kPiece * kPiece; i += lanes()) {
    constexpr std::int64_t kQueries = kPiece * kPiece;
    const auto decay = load(piece.decays + i);
    store(hn::Mul(decay, load(keys.scores + i)), piece.overlaps + i);
    store(hn::Mul(decay, load(keys.scores + kQueries + i)), piece.overlaps + kQueries + i);
  }
}

/// Some vectors of columns of e and d, token by token. `errors` hold v, which of a state space they are.
template <std::size_t kVectors>
HWY_INLINE void written_tile(const DeltaLayout& layout, const PieceValues& piece, std::int64_t tokens,
                             std::int64_t column) {
  const std::int64_t stride = layout.value_stride;
  for (std::int64_t i = 0; i < tokens; ++i) {
    Vector rest[kVectors];
    const auto left = splat(piece.from_start[i]);
    const std::int64_t at = i * stride + column;
    if (layout.shape.state_space) {
#pragma GCC unroll 4
      for (std::size_t n = 0; n < kVectors; ++n) {
        store(hn::Mul(splat(piece.beta[i]), load(piece.errors + at + offset_of(n))), piece.written + at + offset_of(n));
      }
      continue;
    }
#pragma GCC unroll 4
    for (std::size_t n = 0; n < kVectors; ++n) {
      rest[n] = hn::NegMulAdd(left, load(piece.known + at + offset_of(n)), load(piece.errors + at + offset_of(n)));
    }
    for (std::int64_t j = 0; j < i; ++j) {
      const auto overlap = splat(piece.overlaps[i * kPiece + j]);
      const float* const before = piece.written + j * stride + column;
#pragma GCC unroll 4
      for (std::size_t n = 0; n < kVectors; ++n) {
        rest[n] = hn::NegMulAdd(overlap, load(before + offset_of(n)), rest[n]);
      }
    }
    const auto beta = splat(piece.beta[i]);
#pragma GCC unroll 4
    for (std::size_t n = 0; n < kVectors; ++n) {
      store(rest[n], piece.errors + at + offset_of(n));
      store(hn::Mul(beta, rest[n]), piece.written + at + offset_of(n));
    }
  }
}

/// e and d. `known` has what the keys find in the state.
template <typename T>
HWY_NOINLINE void find_written(const DeltaLayout& layout, const DeltaInputs<T>& inputs, std::int64_t head,
                               std::int64_t first, std::int64_t tokens, Direction direction, const PieceValues& piece) {
  for (std::int64_t i = 0; i < tokens; ++i) {
    const auto row_of = [&](std::int64_t token) {
      return inputs.v + (token * layout.shape.heads + head) * layout.shape.width;
    };
    fetch_row(row_of(fetched_token(layout, first + i, fetched_ahead(direction))), layout.shape.width);
    delta_row(row_of(first + i), layout.shape.width, layout.value_columns, piece.errors + i * layout.value_stride);
  }
  std::int64_t column = 0;
  for (; column + 4 * lanes() <= layout.value_columns; column += 4 * lanes()) {
    written_tile<4>(layout, piece, tokens, column);
  }
  for (; column < layout.value_columns; column += lanes()) written_tile<1>(layout, piece, tokens, column);
}

/// The same factor for each row of a state.
struct StateFactors {
  explicit StateFactors(float factor) { std::fill_n(all, kMostDeltaSize, factor); }
  HWY_ALIGN float all[kMostDeltaSize];
};
static_assert(kMostDeltaSize % kDeltaPanel == 0);

/// to = what is left of `state` + what the piece writes; both may be the same. `scaled`: [kPiece][value_stride].
inline HWY_NOINLINE void advance_state(const DeltaLayout& layout, const PieceKeys& keys, const PieceValues& piece,
                                       std::int64_t tokens, float* scaled, const float* state, float* to) {
  const float* const to_end = piece.to_end(tokens);
  for (std::int64_t j = 0; j < tokens; ++j) {
    const auto factor = splat(to_end[j]);
    const std::int64_t at = j * layout.value_stride;
    for (std::int64_t i = 0; i < layout.value_columns; i += lanes()) {
      store(hn::Mul(factor, load(piece.written + at + i)), scaled + at + i);
    }
  }
  const StateFactors left(piece.from_start[tokens - 1]);
  add_product(Scaled{{state, layout.value_stride}, left.all}, Left<true>{keys.rows, layout.key_stride},
              {scaled, layout.value_stride}, {to, layout.value_stride}, layout.shape.size, layout.value_columns,
              tokens);
}

/// Between a state in scratch and [size, width] as tensors have it.
HWY_INLINE void read_state(const DeltaLayout& layout, const float* from, float* state) {
  for (std::int64_t row = 0; row < layout.shape.size; ++row) {
    delta_row(from + row * layout.shape.width, layout.shape.width, layout.value_columns,
              state + row * layout.value_stride);
  }
}
HWY_INLINE void write_state(const DeltaLayout& layout, const float* state, float* to) {
  const std::size_t bytes = static_cast<std::size_t>(layout.shape.width) * sizeof(float);
  for (std::int64_t row = 0; row < layout.shape.size; ++row) {
    std::memcpy(to + row * layout.shape.width, state + row * layout.value_stride, bytes);
  }
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDO_CPU_KERNELS_DELTA_PIECES_INL_H_
