// The gated delta rule's gradient: each sequence and key head a task of its own, stretch by stretch from the last;
// where a key head has many value heads, some of these, and what they give dq and dk is added up behind.
//
// In a stretch the state is brought forward from its checkpoint, piece by piece; then the pieces' gradients are taken
// from the last to the first. Value heads of a key head come in rising order, and add to the same dq and dk. With L the
// gradient of the state behind a piece (see delta_pieces-inl.h for the names; both sums over pairs of its tokens):
//   w_i = sum over t >= i of M[t][i] do_t + exp(G_n - G_i) L^T U_i,   r_i = w_i - sum over t > i of beta_t B[t][i] r_t,
//   dv_i = beta_i r_i,  dbeta_i = r_i . e_i,
//   P[i][j] = -beta_i exp(G_i - G_j) (r_i . d_j) for j < i,  N[t][j] = exp(G_t - G_j) (do_t . d_j) for j <= t,
//   dU = P U + P^T U + N^T Q - beta_i exp(G_i) S r_i + exp(G_n - G_i) L d_i,   dQ = N U + exp(G_t) S do_t,
//   L  <- exp(G_n) L + sum of exp(G_t) Q_t do_t^T - sum of beta_i exp(G_i) U_i r_i^T.
// dg collects what every factor exp(G_a - G_b) multiplies: it belongs to the tokens b + 1 ... a. Of a state space r is
// w, and all that has a factor -beta is not there.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta_backward.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <array>

#include "kernels/delta_pieces-inl.h"

#ifndef RONDO_CPU_KERNELS_DELTA_BACKWARD_ONCE
#define RONDO_CPU_KERNELS_DELTA_BACKWARD_ONCE
namespace rondo::devices::cpu {

/// One thread's scratch: what the pieces of a stretch keep, and what one piece needs.
struct DeltaBackwardScratch {
  DeltaBackwardScratch(const DeltaLayout& layout, Carver& carver)
      : slopes(carver.take<float>(layout.heads_of_part() * layout.state)),
        rows(carver.take<float>(2 * kPiece * layout.value_stride)),
        scaled(carver.take<float>(2 * kPiece * layout.value_stride)),
        turned(carver.take<float>(layout.value_columns * 2 * kPiece)),
        written(carver.take<float>(layout.value_columns * kPiece)),
        pairs(carver.take<float>(2 * kPiece * kPiece)),
        mirrored(carver.take<float>(3 * kPiece * kPiece)),
        of_rows(carver.take<float>(layout.key_columns * 2 * kPiece)),
        of_written(carver.take<float>(layout.key_columns * kPiece)),
        gradients(carver.take<float>(2 * kPiece * layout.key_stride)) {
    for (std::size_t piece = 0; piece < kStretchPieces; ++piece) {
      keys[piece] = PieceKeys(layout, carver);
      values[piece] = PieceValues(layout, carver);
      states[piece] = carver.take<float>(layout.state);
      sums[piece] = carver.take<float>(layout.key_columns * 2 * kPiece);
    }
  }

  std::array<PieceKeys, kStretchPieces> keys;
  std::array<PieceValues, kStretchPieces> values;
  std::array<float*, kStretchPieces> states;  // before each piece
  std::array<float*, kStretchPieces> sums;    // [key_columns][2 kPiece]: of each piece dk, beside it dq
  float* slopes;                              // [heads of a part] L
  float* rows;                                // [2 kPiece][value_stride]: r, behind them do
  float* scaled;                              // likewise: -beta_i exp(G_i) r_i and exp(G_t) do_t
  float* turned;                              // [value_columns][2 kPiece]: the transpose of that
  float* written;                             // [value_columns][kPiece]: d's transpose
  float* pairs;                               // [2 kPiece][kPiece]: P, behind it N
  float* mirrored;                            // [3 kPiece][kPiece]: P + P^T, N, N^T
  float* of_rows;                             // [key_columns][2 kPiece]: dU's transpose, beside it dQ's
  float* of_written;                          // [key_columns][kPiece]: columns L d_i
  float* gradients;                           // [2 kPiece][key_stride]: dk of a piece, behind it dq
};

/// What the parts have of dk and dq, before what members have.
inline std::size_t delta_parts_bytes(const DeltaShape& shape) {
  const std::int64_t parts = DeltaLayout(shape).parts();
  const std::int64_t rows = parts == 1 ? 0 : parts * shape.tokens * shape.key_heads;
  return static_cast<std::size_t>(rows * 2 * shape.size) * sizeof(float);
}

}  // namespace rondo::devices::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

template <typename T>
struct DeltaBackward {
  DeltaLayout layout;
  DeltaInputs<T> inputs;
  const float* checkpoints;
  const T* d_o;
  T* dq;
  T* dk;
  T* dv;
  float* dg;
  float* dbeta;
  float* parts;  // [parts][tokens][key heads][2 size]: of each part's heads dk, behind it dq; null where there is one

  /// Where a part has a token's.
  HWY_INLINE float* part_at(std::int64_t part, std::int64_t token, std::int64_t key_head) const {
    return parts + ((part * layout.shape.tokens + token) * layout.shape.key_heads + key_head) * 2 * layout.shape.size;
  }
};

/// Some value heads of a key head.
struct HeadPart {
  std::int64_t key_head;
  std::int64_t number;
  std::int64_t first;  // value head
  std::int64_t count;
};

/// A piece of one value head.
struct BackwardPiece {
  std::int64_t head;
  std::int64_t first;  // token
  std::int64_t tokens;
  const PieceKeys& keys;
  const PieceValues& values;
  const float* state;  // before it
  float* slope;        // L
  float* sums;         // see DeltaBackwardScratch
};

/// The states before each piece of the stretch, and what each piece writes.
template <typename T>
HWY_NOINLINE void walk_forward(const DeltaBackward<T>& problem, const Stretch& stretch, bool from_nothing,
                               std::int64_t head, const DeltaBackwardScratch& mine) {
  const DeltaLayout& layout = problem.layout;
  const DeltaShape& shape = layout.shape;
  if (from_nothing) {
    clear_floats(mine.states[0], layout.state);
  } else {
    const std::int64_t at = (stretch.begin / kDeltaChunk * shape.heads + head) * shape.size * shape.width;
    read_state(layout, problem.checkpoints + at, mine.states[0]);
  }
  for (std::int64_t piece = 0; piece < stretch.pieces(); ++piece) {
    const PieceKeys& keys = mine.keys[static_cast<std::size_t>(piece)];
    const PieceValues& values = mine.values[static_cast<std::size_t>(piece)];
    const std::int64_t first = stretch.first_of(piece);
    const std::int64_t tokens = stretch.tokens_of(piece);
    float* const state = mine.states[static_cast<std::size_t>(piece)];
    load_piece_gates(layout, problem.inputs, head, first, tokens, keys, values);
    if (!shape.state_space) {
      delta_product<Into::kNothing>(Left<false>{keys.rows, layout.key_stride}, {state, layout.value_stride},
                                    {values.known, layout.value_stride}, tokens, layout.value_columns, shape.size);
    }
    find_written(layout, problem.inputs, head, first, tokens, Direction::kBackward, values);
    if (piece + 1 == stretch.pieces()) continue;
    advance_state(layout, keys, values, tokens, mine.scaled, state, mine.states[static_cast<std::size_t>(piece + 1)]);
  }
}

/// r from w, column by column, from the last token to the first.
template <std::size_t kVectors>
HWY_INLINE void solve_tile(const DeltaLayout& layout, const BackwardPiece& piece, float* rows, std::int64_t column) {
  const std::int64_t stride = layout.value_stride;
  for (std::int64_t i = piece.tokens - 2; i >= 0; --i) {
    Vector rest[kVectors];
    float* const at = rows + i * stride + column;
#pragma GCC unroll 4
    for (std::size_t n = 0; n < kVectors; ++n) rest[n] = load(at + offset_of(n));
    for (std::int64_t t = i + 1; t < piece.tokens; ++t) {
      const auto overlap = splat(piece.values.beta[t] * piece.values.overlaps[t * kPiece + i]);
      const float* const behind = rows + t * stride + column;
#pragma GCC unroll 4
      for (std::size_t n = 0; n < kVectors; ++n) {
        rest[n] = hn::NegMulAdd(overlap, load(behind + offset_of(n)), rest[n]);
      }
    }
#pragma GCC unroll 4
    for (std::size_t n = 0; n < kVectors; ++n) store(rest[n], at + offset_of(n));
  }
}

/// do and r into `rows`, both times their factors into `scaled`; dv and dbeta.
template <typename T>
HWY_NOINLINE void find_slopes(const DeltaBackward<T>& problem, const BackwardPiece& piece,
                              const DeltaBackwardScratch& mine) {
  const DeltaLayout& layout = problem.layout;
  const DeltaShape& shape = layout.shape;
  const PieceValues& values = piece.values;
  const std::int64_t stride = layout.value_stride;
  float* const d_o = mine.rows + kPiece * stride;
  const auto place_of = [&](std::int64_t i) { return (piece.first + i) * shape.heads + piece.head; };
  for (std::int64_t i = 0; i < piece.tokens; ++i) {
    const std::int64_t next = fetched_token(layout, piece.first + i, -kPiece);
    fetch_row(problem.d_o + (next * shape.heads + piece.head) * shape.width, shape.width);
    delta_row(problem.d_o + place_of(i) * shape.width, shape.width, layout.value_columns, d_o + i * stride);
  }
  delta_product<Into::kNothing>(Left<false>{piece.keys.rows, layout.key_stride}, {piece.slope, stride},
                                {mine.rows, stride}, piece.tokens, layout.value_columns, shape.size);
  add_triangle_product<Triangle::kBehind>(values.to_end(piece.tokens),
                                          Left<true>{values.overlaps + kPiece * kPiece, kPiece}, {d_o, stride},
                                          {mine.rows, stride}, piece.tokens, layout.value_columns);
  if (!shape.state_space) {
    std::int64_t column = 0;
    for (; column + 4 * lanes() <= layout.value_columns; column += 4 * lanes()) {
      solve_tile<4>(layout, piece, mine.rows, column);
    }
    for (; column < layout.value_columns; column += lanes()) solve_tile<1>(layout, piece, mine.rows, column);
  }
  for (std::int64_t i = 0; i < kPiece; ++i) {
    float* const r = mine.rows + i * stride;
    if (i >= piece.tokens) {  // sums over the piece run over all of its rows
      for (float* row : {r, d_o + i * stride, mine.scaled + i * stride, mine.scaled + (kPiece + i) * stride}) {
        clear_floats(row, layout.value_columns);
      }
      continue;
    }
    const auto beta = splat(values.beta[i]);
    const auto start = splat(values.from_start[i]);
    const auto of_key = shape.state_space ? zero() : hn::Neg(hn::Mul(beta, start));
    T* const dv = problem.dv + place_of(i) * shape.width;
    for_vectors(shape.width,
                [=](std::int64_t at, auto extent) HWY_ATTR { store(hn::Mul(beta, load(r + at)), dv + at, extent); });
    for (std::int64_t at = 0; at < layout.value_columns; at += lanes()) {
      store(hn::Mul(of_key, load(r + at)), mine.scaled + i * stride + at);
      store(hn::Mul(start, load(d_o + i * stride + at)), mine.scaled + (kPiece + i) * stride + at);
    }
    problem.dbeta[place_of(i)] = delta_dot(r, values.errors + i * stride, layout.value_columns);
  }
}

/// P and N, and what they add to dU and dQ.
HWY_NOINLINE void add_pairs(const DeltaLayout& layout, const BackwardPiece& piece, const DeltaBackwardScratch& mine) {
  constexpr std::int64_t kSquare = kPiece * kPiece;
  delta_product<Into::kNothing>(Left<false>{mine.rows, layout.value_stride}, {mine.written, kPiece},
                                {mine.pairs, kPiece}, 2 * kPiece, kPiece, layout.shape.width);
  for (std::int64_t i = 0; i < kPiece; ++i) {
    const auto minus_beta = layout.shape.state_space ? zero() : splat(-piece.values.beta[i]);
    for (std::int64_t j = 0; j < kPiece; j += lanes()) {
      const std::int64_t at = i * kPiece + j;
      const auto decay = load(piece.values.decays + at);
      store(hn::Mul(hn::Mul(minus_beta, decay), load(mine.pairs + at)), mine.pairs + at);
      store(hn::Mul(decay, load(mine.pairs + kSquare + at)), mine.pairs + kSquare + at);
    }
    mine.pairs[i * kPiece + i] = 0;  // a token finds nothing of itself
  }
  transpose_quads(mine.pairs, kPiece, kPiece, kPiece, mine.mirrored, kPiece);
  transpose_quads(mine.pairs + kSquare, kPiece, kPiece, kPiece, mine.mirrored + 2 * kSquare, kPiece);
  for (std::int64_t at = 0; at < kSquare; at += lanes()) {
    store(hn::Add(load(mine.mirrored + at), load(mine.pairs + at)), mine.mirrored + at);
    store(load(mine.pairs + kSquare + at), mine.mirrored + kSquare + at);
  }
  const Left<false> turned{piece.keys.turned, 2 * kPiece};
  delta_product<Into::kSum>(turned, {mine.mirrored, kPiece}, {mine.of_rows, 2 * kPiece}, layout.shape.size, kPiece,
                            2 * kPiece);
  delta_product<Into::kSum>(turned, {mine.mirrored + 2 * kSquare, kPiece}, {mine.of_rows + kPiece, 2 * kPiece},
                            layout.shape.size, kPiece, kPiece);
}

/// What the pairs of a piece add to the gradient of its sums of g.
HWY_NOINLINE void add_pair_slopes(const BackwardPiece& piece, float* pairs, std::array<double, kPiece>& slopes) {
  constexpr std::int64_t kQueries = kPiece * kPiece;
  // Of a token with itself exp(0) depends on nothing.
  for (std::int64_t i = 0; i < piece.tokens; ++i) pairs[kQueries + i * kPiece + i] = 0;
  HWY_ALIGN float columns[kPiece] = {};
  for (std::int64_t i = 0; i < piece.tokens; ++i) {
    auto row = zero();
    for (std::int64_t j = 0; j < kPiece; j += lanes()) {
      const std::int64_t at = i * kPiece + j;
      const auto of_keys = hn::Mul(load(pairs + at), load(piece.keys.scores + at));
      const auto both = hn::MulAdd(load(pairs + kQueries + at), load(piece.keys.scores + kQueries + at), of_keys);
      row = hn::Add(row, both);
      store(hn::Add(load(columns + j), both), columns + j);
    }
    slopes[static_cast<std::size_t>(i)] += static_cast<double>(sum_of(row));
  }
  for (std::int64_t j = 0; j < piece.tokens; ++j) {
    slopes[static_cast<std::size_t>(j)] -= static_cast<double>(columns[j]);
  }
}

/// What the states before and behind the piece give dU and dQ, and the slopes of its sums of g. Numbers of a token
/// stand in a lane of its own.
HWY_NOINLINE void find_state_slopes(const DeltaLayout& layout, const BackwardPiece& piece,
                                    const DeltaBackwardScratch& mine, std::array<double, kPiece>& slopes) {
  for (std::int64_t i = piece.tokens; i < kPiece; ++i) {
    clear_floats(piece.values.written + i * layout.value_stride, layout.value_columns);
  }
  transpose_quads(mine.scaled, layout.value_stride, 2 * kPiece, layout.value_columns, mine.turned, 2 * kPiece);
  transpose_quads(piece.values.written, layout.value_stride, kPiece, layout.value_columns, mine.written, kPiece);
  delta_product<Into::kNothing>(Left<false>{piece.state, layout.value_stride}, {mine.turned, 2 * kPiece},
                                {mine.of_rows, 2 * kPiece}, layout.shape.size, 2 * kPiece, layout.shape.width);
  delta_product<Into::kNothing>(Left<false>{piece.slope, layout.value_stride}, {mine.written, kPiece},
                                {mine.of_written, kPiece}, layout.shape.size, kPiece, layout.shape.width);
  HWY_ALIGN float of_start[kPiece];
  HWY_ALIGN float of_end[kPiece];
  for (std::int64_t j = 0; j < kPiece; j += lanes()) {
    const auto to_end = load(piece.values.to_end(piece.tokens) + j);
    auto keys = zero();
    auto queries = zero();
    auto end = zero();
    for (std::int64_t i = 0; i < layout.shape.size; ++i) {
      float* const at = mine.of_rows + i * 2 * kPiece + j;
      const float* const turned = piece.keys.turned + i * 2 * kPiece + j;
      const auto of_written = load(mine.of_written + i * kPiece + j);
      keys = hn::MulAdd(load(turned), load(at), keys);
      queries = hn::MulAdd(load(turned + kPiece), load(at + kPiece), queries);
      end = hn::MulAdd(load(turned), of_written, end);
      store(hn::MulAdd(to_end, of_written, load(at)), at);
    }
    store(hn::Add(keys, queries), of_start + j);
    store(hn::Mul(to_end, end), of_end + j);
  }
  const auto last = static_cast<std::size_t>(piece.tokens - 1);
  for (std::int64_t i = 0; i < piece.tokens; ++i) {
    slopes[static_cast<std::size_t>(i)] += static_cast<double>(of_start[i]) - static_cast<double>(of_end[i]);
    slopes[last] += static_cast<double>(of_end[i]);
  }
  double whole = 0;
  for (std::int64_t row = 0; row < layout.shape.size; ++row) {
    const std::int64_t at = row * layout.value_stride;
    whole += static_cast<double>(delta_dot(piece.slope + at, piece.state + at, layout.value_columns));
  }
  slopes[last] += static_cast<double>(piece.values.from_start[piece.tokens - 1]) * whole;
}

/// Where rows are as they are: dU and dQ.
HWY_INLINE void add_row_gradients(const DeltaLayout& layout, const BackwardPiece& piece, bool is_first,
                                  const float* of_rows) {
  for (std::int64_t at = 0; at < layout.shape.size * 2 * kPiece; at += lanes()) {
    const auto own = load(of_rows + at);
    store(is_first ? own : hn::Add(own, load(piece.sums + at)), piece.sums + at);
  }
}

/// dU and dQ through the lengths of their rows: dx = factor (du - u (u . du)) / length, u being x times factor. Set, or
/// added where other value heads have been.
HWY_NOINLINE void add_unit_gradients(const DeltaLayout& layout, const BackwardPiece& piece, bool is_first,
                                     const float* of_rows) {
  const auto size = static_cast<float>(layout.shape.size);
  if (layout.shape.state_space) return add_row_gradients(layout, piece, is_first, of_rows);
  for (std::int64_t j = 0; j < 2 * kPiece; j += lanes()) {
    const bool is_query = j >= kPiece;
    auto along = zero();
    for (std::int64_t i = 0; i < layout.shape.size; ++i) {
      const std::int64_t at = i * 2 * kPiece + j;
      along = hn::MulAdd(load(piece.keys.turned + at), load(of_rows + at), along);
    }
    along = hn::Mul(along, splat(is_query ? size : 1.0F));
    const auto by = hn::Mul(load(piece.keys.inverse + j), splat(is_query ? 1.0F / std::sqrt(size) : 1.0F));
    for (std::int64_t i = 0; i < layout.shape.size; ++i) {
      const std::int64_t at = i * 2 * kPiece + j;
      const auto across = hn::NegMulAdd(along, load(piece.keys.turned + at), load(of_rows + at));
      store(is_first ? hn::Mul(by, across) : hn::MulAdd(by, across, load(piece.sums + at)), piece.sums + at);
    }
  }
}

/// All gradients of one piece and value head; then L is that of the state before the piece.
template <typename T>
HWY_NOINLINE void backward_piece(const DeltaBackward<T>& problem, const BackwardPiece& piece, bool is_first,
                                 const DeltaBackwardScratch& mine) {
  const DeltaLayout& layout = problem.layout;
  std::array<double, kPiece> slopes{};
  find_slopes(problem, piece, mine);
  find_state_slopes(layout, piece, mine, slopes);
  add_pairs(layout, piece, mine);
  add_pair_slopes(piece, mine.pairs, slopes);
  add_unit_gradients(layout, piece, is_first, mine.of_rows);
  double slope = 0;
  for (std::int64_t i = piece.tokens - 1; i >= 0; --i) {
    slope += slopes[static_cast<std::size_t>(i)];
    problem.dg[(piece.first + i) * layout.shape.heads + piece.head] = static_cast<float>(slope);
  }
  const StateFactors left(piece.values.from_start[piece.tokens - 1]);
  const Rows<float> slope_rows{piece.slope, layout.value_stride};
  add_product(Scaled{{piece.slope, layout.value_stride}, left.all}, Left<true>{piece.keys.rows, layout.key_stride},
              {mine.scaled, layout.value_stride}, slope_rows, layout.shape.size, layout.value_columns, 2 * kPiece);
}

template <typename T>
HWY_NOINLINE void store_key_gradients(const DeltaBackward<T>& problem, std::int64_t first, std::int64_t tokens,
                                      const HeadPart& part, const float* sums, float* gradients) {
  const DeltaLayout& layout = problem.layout;
  transpose_quads(sums, 2 * kPiece, layout.key_columns, 2 * kPiece, gradients, layout.key_stride);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t size = layout.shape.size;
    const std::int64_t at = ((first + t) * layout.shape.key_heads + part.key_head) * size;
    const float* const dk = gradients + t * layout.key_stride;
    const float* const dq = dk + kPiece * layout.key_stride;
    if (problem.parts != nullptr) {
      float* const to = problem.part_at(part.number, first + t, part.key_head);
      std::memcpy(to, dk, static_cast<std::size_t>(size) * sizeof(float));
      std::memcpy(to + size, dq, static_cast<std::size_t>(size) * sizeof(float));
      continue;
    }
    for_vectors(size, [=](std::int64_t i, auto extent) HWY_ATTR {
      store(load(dk + i), problem.dk + at + i, extent);
      store(load(dq + i), problem.dq + at + i, extent);
    });
  }
}

/// dk and dq of real tokens from what the parts have of them, in rising order.
template <typename T>
void add_parts(ThreadPool& pool, const DeltaBackward<T>& problem, std::int64_t real) {
  const DeltaShape& shape = problem.layout.shape;
  const std::int64_t rows = real * shape.key_heads;
  const std::int64_t step = task_rows(2 * shape.size * problem.layout.parts());
  pool.parallel_for(divide_up(rows, step), [&](std::int64_t task, std::uint32_t) HWY_ATTR {
    for (std::int64_t row = task * step; row < HWY_MIN(rows, (task + 1) * step); ++row) {
      const auto sum_to = [&](T* to, std::int64_t offset) HWY_ATTR {
        for_vectors(shape.size, [&](std::int64_t i, auto extent) HWY_ATTR {
          auto sum = zero();
          for (std::int64_t part = 0; part < problem.layout.parts(); ++part) {
            const float* const from = problem.part_at(part, row / shape.key_heads, row % shape.key_heads);
            sum = hn::Add(sum, load(from + offset + i, extent));
          }
          store(sum, to + i, extent);
        });
      };
      sum_to(problem.dk + row * shape.size, 0);
      sum_to(problem.dq + row * shape.size, shape.size);
    }
  });
}

template <typename T>
void backward_stretch(const DeltaBackward<T>& problem, const Stretch& stretch, bool from_nothing, const HeadPart& part,
                      const DeltaBackwardScratch& mine) {
  const DeltaLayout& layout = problem.layout;
  for (std::int64_t piece = 0; piece < stretch.pieces(); ++piece) {
    load_piece_keys(layout, problem.inputs, part.key_head, stretch.first_of(piece), stretch.tokens_of(piece),
                    Direction::kBackward, mine.keys[static_cast<std::size_t>(piece)]);
  }
  for (std::int64_t i = 0; i < part.count; ++i) {
    const std::int64_t head = part.first + i;
    walk_forward(problem, stretch, from_nothing, head, mine);
    for (std::int64_t piece = stretch.pieces() - 1; piece >= 0; --piece) {
      const auto at = static_cast<std::size_t>(piece);
      const BackwardPiece work{head,
                               stretch.first_of(piece),
                               stretch.tokens_of(piece),
                               mine.keys[at],
                               mine.values[at],
                               mine.states[at],
                               mine.slopes + i * layout.state,
                               mine.sums[at]};
      backward_piece(problem, work, i == 0, mine);
    }
  }
  for (std::int64_t piece = 0; piece < stretch.pieces(); ++piece) {
    store_key_gradients(problem, stretch.first_of(piece), stretch.tokens_of(piece), part,
                        mine.sums[static_cast<std::size_t>(piece)], mine.gradients);
  }
}

template <typename T>
void backward_sequence(const DeltaBackward<T>& problem, const TokenRange& sequence, const HeadPart& part,
                       const DeltaBackwardScratch& mine) {
  clear_floats(mine.slopes, part.count * problem.layout.state);
  for (std::int64_t end = sequence.end; end > sequence.begin;) {
    const Stretch stretch = stretch_before(sequence, end);
    backward_stretch(problem, stretch, stretch.begin == sequence.begin, part, mine);
    end = stretch.begin;
  }
}

template <typename T>
void clear_padding(const DeltaBackward<T>& problem, std::int64_t real) {
  const DeltaShape& shape = problem.layout.shape;
  const std::int64_t rest = shape.tokens - real;
  const auto clear = [&](auto* from, std::int64_t each) {
    std::memset(from + real * each, 0, static_cast<std::size_t>(rest * each) * sizeof(*from));
  };
  clear(problem.dq, shape.key_heads * shape.size);
  clear(problem.dk, shape.key_heads * shape.size);
  clear(problem.dv, shape.heads * shape.width);
  clear(problem.dg, shape.heads);
  clear(problem.dbeta, shape.heads);
}

std::size_t delta_backward_member_bytes(const DeltaShape& shape) {
  Carver carver(nullptr);
  const DeltaLayout layout(shape);
  const DeltaBackwardScratch counted(layout, carver);
  static_cast<void>(counted);
  return carver.size();
}

void delta_rule_backward_any(ThreadPool& pool, Storage storage, const DeltaShape& shape, const DeltaOperands& x,
                             const float* checkpoints, const void* d_o, const DeltaGradients& gradients,
                             std::byte* scratch) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    const DeltaBackward<T> problem{
        DeltaLayout(shape),
        {static_cast<const T*>(x.q), static_cast<const T*>(x.k), static_cast<const T*>(x.v), x.g, x.beta},
        checkpoints,
        static_cast<const T*>(d_o),
        static_cast<T*>(gradients.dq),
        static_cast<T*>(gradients.dk),
        static_cast<T*>(gradients.dv),
        gradients.dg,
        gradients.dbeta,
        DeltaLayout(shape).parts() == 1 ? nullptr : reinterpret_cast<float*>(scratch)};
    const Sequences sequences(x.bounds);
    const std::size_t each = delta_backward_member_bytes(shape);
    std::byte* const of_members = scratch + delta_parts_bytes(shape);
    const std::int64_t parts = problem.layout.parts();
    const std::int64_t tasks = shape.key_heads * parts;  // of a sequence
    pool.parallel_for(sequences.count() * tasks, [&](std::int64_t task, std::uint32_t member) HWY_ATTR {
      Carver carver(of_members + member * each);
      const DeltaBackwardScratch mine(problem.layout, carver);
      const std::int64_t key_head = task % tasks / parts;
      const std::int64_t number = task % parts;
      const std::int64_t before = number * kPartHeads;
      const HeadPart part{key_head, number, key_head * problem.layout.group + before,
                          HWY_MIN(kPartHeads, problem.layout.group - before)};
      backward_sequence(problem, sequences[task / tasks], part, mine);
    });
    if (problem.parts != nullptr) add_parts(pool, problem, sequences.real_tokens());
    clear_padding(problem, sequences.real_tokens());
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(delta_rule_backward_any);
HWY_EXPORT(delta_backward_member_bytes);

void delta_rule_backward(ThreadPool& pool, Storage storage, const DeltaShape& shape, const DeltaOperands& operands,
                         const float* checkpoints, const void* d_o, const DeltaGradients& gradients,
                         std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(delta_rule_backward_any)
  (pool, storage, shape, operands, checkpoints, d_o, gradients, scratch);
}

std::size_t delta_rule_backward_scratch(const DeltaShape& shape, std::uint32_t threads) {
  return delta_parts_bytes(shape) + HWY_DYNAMIC_DISPATCH(delta_backward_member_bytes)(shape) * threads;
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
