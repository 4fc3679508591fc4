// The gated delta rule, forward: piece by piece, each sequence and head a task of its own.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/delta_pieces-inl.h"

#ifndef RONDO_CPU_KERNELS_DELTA_ONCE
#define RONDO_CPU_KERNELS_DELTA_ONCE
namespace rondo::devices::cpu {

/// As many tokens go on from a state one by one, in the state as it lies there: a piece of so few is mostly empty.
inline constexpr std::int64_t kSingleTokens = 4;

/// One thread's scratch.
struct DeltaScratch {
  DeltaScratch(const DeltaLayout& layout, Carver& carver)
      : keys(layout, carver),
        values(layout, carver),
        scaled(carver.take<float>(kPiece * layout.value_stride)),
        state(carver.take<float>(layout.state)) {}
  const PieceKeys keys;
  const PieceValues values;
  float* const scaled;
  float* const state;
};

}  // namespace rondo::devices::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

template <typename T>
struct DeltaForward {
  const DeltaLayout& layout;
  DeltaInputs<T> inputs;
  T* o;
  float* checkpoints;  // null: none are kept
};

/// One piece of one head: o, and the state behind it.
template <typename T>
HWY_NOINLINE void forward_piece(const DeltaForward<T>& problem, std::int64_t head, std::int64_t first,
                                std::int64_t tokens, const DeltaScratch& mine) {
  const DeltaLayout& layout = problem.layout;
  const std::int64_t stride = layout.value_stride;
  load_piece_keys(layout, problem.inputs, head / layout.group, first, tokens, Direction::kForward, mine.keys);
  load_piece_gates(layout, problem.inputs, head, first, tokens, mine.keys, mine.values);
  float* const read = mine.values.known + kPiece * stride;
  const bool knows = !layout.shape.state_space;  // what keys find there is of use
  const std::int64_t rows = tokens == kPiece && knows ? 2 * kPiece : tokens;
  const Rows<const float> state{mine.state, stride};
  if (knows) {
    delta_product<Into::kNothing>(Left<false>{mine.keys.rows, layout.key_stride}, state, {mine.values.known, stride},
                                  rows, layout.value_columns, layout.shape.size);
  }
  if (rows != 2 * kPiece) {
    delta_product<Into::kNothing>(Left<false>{mine.keys.rows + kPiece * layout.key_stride, layout.key_stride}, state,
                                  {read, stride}, rows, layout.value_columns, layout.shape.size);
  }
  find_written(layout, problem.inputs, head, first, tokens, Direction::kForward, mine.values);
  add_triangle_product<Triangle::kBefore>(mine.values.from_start,
                                          Left<false>{mine.values.overlaps + kPiece * kPiece, kPiece},
                                          {mine.values.written, stride}, {read, stride}, tokens, layout.value_columns);
  for (std::int64_t i = 0; i < tokens; ++i) {
    T* const to = problem.o + ((first + i) * layout.shape.heads + head) * layout.shape.width;
    for_vectors(layout.shape.width,
                [=](std::int64_t at, auto extent) HWY_ATTR { store(load(read + i * stride + at), to + at, extent); });
  }
  advance_state(layout, mine.keys, mine.values, tokens, mine.scaled, mine.state, mine.state);
}

template <typename T>
void forward_sequence(const DeltaForward<T>& problem, const TokenRange& sequence, std::int64_t head,
                      const DeltaScratch& mine) {
  const DeltaShape& shape = problem.layout.shape;
  for (std::int64_t from = sequence.begin; from < sequence.end;) {
    const Stretch stretch = stretch_from(sequence, from);
    if (problem.checkpoints != nullptr && from % kDeltaChunk == 0) {
      const std::int64_t at = (from / kDeltaChunk * shape.heads + head) * shape.size * shape.width;
      write_state(problem.layout, mine.state, problem.checkpoints + at);
    }
    for (std::int64_t piece = 0; piece < stretch.pieces(); ++piece) {
      forward_piece(problem, head, stretch.first_of(piece), stretch.tokens_of(piece), mine);
    }
    from = stretch.end;
  }
}

/// Some columns of one token on a state [size, width] as tensors have it: S = keep S + k (beta (v - keep S^T k))^T, and
/// o = S^T q; of a state space S = keep S + k (beta v)^T.
template <std::size_t kVectors, typename T, typename Extent>
HWY_INLINE void token_tile(const DeltaShape& shape, const float* key, const float* query, float keep, float beta,
                           const T* v, float* state, T* o, Extent extent) {
  Vector known[kVectors];
  Vector read[kVectors];
#pragma GCC unroll 4
  for (std::size_t n = 0; n < kVectors; ++n) known[n] = read[n] = zero();
  for (std::int64_t row = 0; row < shape.size && !shape.state_space; ++row) {
#pragma GCC unroll 4
    for (std::size_t n = 0; n < kVectors; ++n) {
      known[n] = hn::MulAdd(splat(key[row]), load(state + row * shape.width + offset_of(n), extent), known[n]);
    }
  }
#pragma GCC unroll 4
  for (std::size_t n = 0; n < kVectors; ++n) {
    known[n] = hn::Mul(splat(beta), hn::NegMulAdd(splat(keep), known[n], load(v + offset_of(n), extent)));
  }
  for (std::int64_t row = 0; row < shape.size; ++row) {
#pragma GCC unroll 4
    for (std::size_t n = 0; n < kVectors; ++n) {
      float* const at = state + row * shape.width + offset_of(n);
      const auto next = hn::MulAdd(splat(key[row]), known[n], hn::Mul(splat(keep), load(at, extent)));
      store(next, at, extent);
      read[n] = hn::MulAdd(splat(query[row]), next, read[n]);
    }
  }
#pragma GCC unroll 4
  for (std::size_t n = 0; n < kVectors; ++n) store(read[n], o + offset_of(n), extent);
}

/// One token of one head.
template <typename T>
HWY_NOINLINE void forward_token(const DeltaForward<T>& problem, std::int64_t head, std::int64_t token, float* state,
                                const DeltaScratch& mine) {
  const DeltaLayout& layout = problem.layout;
  const DeltaShape& shape = layout.shape;
  float* const key = mine.keys.rows;
  float* const query = key + layout.key_stride;
  const std::int64_t key_at = (token * shape.key_heads + head / layout.group) * shape.size;
  unit_row(problem.inputs.k + key_at, layout, 1.0F, key);
  unit_row(problem.inputs.q + key_at, layout, 1.0F / std::sqrt(static_cast<float>(shape.size)), query);
  const std::int64_t gate = token * shape.heads + head;
  const float keep = hn::GetLane(exp_of(splat(problem.inputs.g[gate])));
  const float beta = problem.inputs.beta[gate];
  const T* const v = problem.inputs.v + gate * shape.width;
  T* const o = problem.o + gate * shape.width;
  std::int64_t column = 0;
  for (; column + 4 * lanes() <= shape.width; column += 4 * lanes()) {
    token_tile<4>(shape, key, query, keep, beta, v + column, state + column, o + column, Whole{});
  }
  for_vectors(shape.width - column, [&](std::int64_t i, auto extent) HWY_ATTR {
    token_tile<1>(shape, key, query, keep, beta, v + column + i, state + column + i, o + column + i, extent);
  });
}

std::size_t delta_member_bytes(const DeltaShape& shape) {
  Carver carver(nullptr);
  const DeltaLayout layout(shape);
  const DeltaScratch counted(layout, carver);
  static_cast<void>(counted);
  return carver.size();
}

template <typename T>
DeltaForward<T> forward_problem(const DeltaLayout& layout, const DeltaOperands& x, void* o, float* checkpoints) {
  return {layout,
          {static_cast<const T*>(x.q), static_cast<const T*>(x.k), static_cast<const T*>(x.v), x.g, x.beta},
          static_cast<T*>(o),
          checkpoints};
}

void delta_rule_any(ThreadPool& pool, Storage storage, const DeltaShape& shape, const DeltaOperands& operands, void* o,
                    float* checkpoints, std::byte* scratch) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    const DeltaLayout layout(shape);
    const DeltaForward<T> problem = forward_problem<T>(layout, operands, o, checkpoints);
    const Sequences sequences(operands.bounds);
    const std::size_t each = delta_member_bytes(shape);
    pool.parallel_for(sequences.count() * shape.heads, [&](std::int64_t task, std::uint32_t member) HWY_ATTR {
      Carver carver(scratch + member * each);
      const DeltaScratch mine(layout, carver);
      clear_floats(mine.state, layout.state);
      forward_sequence(problem, sequences[task / shape.heads], task % shape.heads, mine);
    });
    const std::int64_t real = sequences.real_tokens();
    const std::int64_t values = shape.heads * shape.width;
    std::memset(problem.o + real * values, 0, static_cast<std::size_t>((shape.tokens - real) * values) * sizeof(T));
    const std::int64_t states = shape.heads * shape.size * shape.width;
    const std::int64_t kept = divide_up(real, kDeltaChunk);
    clear_floats(checkpoints + kept * states, (divide_up(shape.tokens, kDeltaChunk) - kept) * states);
  });
}

void delta_rule_from_any(ThreadPool& pool, Storage storage, const DeltaShape& shape, const DeltaOperands& operands,
                         const std::int32_t* positions, float* state, void* o, std::byte* scratch) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    const DeltaLayout layout(shape);
    const DeltaForward<T> problem = forward_problem<T>(layout, operands, o, nullptr);
    const std::int64_t real = Sequences(operands.bounds).real_tokens();
    const std::size_t each = delta_member_bytes(shape);
    pool.parallel_for(real == 0 ? 0 : shape.heads, [&](std::int64_t head, std::uint32_t member) HWY_ATTR {
      Carver carver(scratch + member * each);
      const DeltaScratch mine(layout, carver);
      float* const own = state + head * shape.size * shape.width;
      if (positions[0] == 0) clear_floats(own, shape.size * shape.width);
      if (real <= kSingleTokens) {
        for (std::int64_t token = 0; token < real; ++token) forward_token(problem, head, token, own, mine);
        return;
      }
      clear_floats(mine.state, layout.state);
      read_state(layout, own, mine.state);
      forward_sequence(problem, {0, real}, head, mine);
      write_state(layout, mine.state, own);
    });
    const std::int64_t values = shape.heads * shape.width;
    std::memset(problem.o + real * values, 0, static_cast<std::size_t>((shape.tokens - real) * values) * sizeof(T));
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(delta_rule_any);
HWY_EXPORT(delta_rule_from_any);
HWY_EXPORT(delta_member_bytes);

void delta_rule(ThreadPool& pool, Storage storage, const DeltaShape& shape, const DeltaOperands& operands, void* o,
                float* checkpoints, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(delta_rule_any)(pool, storage, shape, operands, o, checkpoints, scratch);
}

void delta_rule_from(ThreadPool& pool, Storage storage, const DeltaShape& shape, const DeltaOperands& operands,
                     const std::int32_t* positions, float* state, void* o, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(delta_rule_from_any)(pool, storage, shape, operands, positions, state, o, scratch);
}

std::size_t delta_rule_scratch(const DeltaShape& shape, std::uint32_t threads) {
  return HWY_DYNAMIC_DISPATCH(delta_member_bytes)(shape) * threads;
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
