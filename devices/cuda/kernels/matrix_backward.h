// The gradient of attention by the matrix units, see matrix_tiles.h and gradient_pass.h.
#pragma once

#include "gradient_pass.h"
#include "matrix_tiles.h"

namespace rondo::devices::cuda {

/// `rows` are the block's, `columns` what streams.
template <typename T, int kHead, bool kKeys, bool kCapped = false>
struct MatrixBackward {
  using Tiles = MatrixTiles<T, kHead>;
  static constexpr int kColumns = backward_columns(kHead);
  static constexpr int kColumns8 = kColumns / 8;
  template <typename Fragment>
  using ByEight = Array<Fragment, static_cast<std::size_t>(kColumns8)>;  // columns

  struct Shared {
    std::uint16_t* rows[2];     // keys: k, v; queries: q, do
    std::uint16_t* columns[2];  // keys: q, do; queries: k, v
    QueryRows queries;          // kMatrixRows at most

    RONDO_KERNEL explicit Shared(unsigned char* memory)
        : queries(memory + 2 * (kMatrixRows + kColumns) * Tiles::kStride * 2, kMatrixRows) {
      auto* at = reinterpret_cast<std::uint16_t*>(memory);
      for (std::uint16_t*& tile : rows) {
        tile = at;
        at += kMatrixRows * Tiles::kStride;
      }
      for (std::uint16_t*& tile : columns) {
        tile = at;
        at += kColumns * Tiles::kStride;
      }
    }
  };

  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AttentionParams& p) {
    GradientPass<MatrixBackward, kKeys, kMatrixRows, kColumns>::run(block, p);
  }

  /// Weights and gradients of the scores of the rows and columns at hand, and what they add.
  template <typename Block, typename First, typename Second>
  RONDO_KERNEL static void add_pairs(Block& block, const AttentionParams& p, const Shared& shared, std::int32_t row,
                                     std::int32_t column, std::int32_t end, First& first_sums,
                                     [[maybe_unused]] Second& second_sums) {
    typename Block::template Own<ByEight<FragmentC>> weights;
    typename Block::template Own<ByEight<FragmentC>> gradients;
    typename Block::template Own<FragmentA> a;
    typename Block::template Own<ByEight<typename Tiles::Neighbours>> b;
    block.local([&](int thread) {
      RONDO_UNROLL
      for (int n = 0; n < kColumns8; ++n) {
        weights[thread][n] = FragmentC{};
        gradients[thread][n] = FragmentC{};
      }
    });
    // Of stored numbers: scores from rows 0 and columns 0, do . v from rows 1 and columns 1.
    RONDO_UNROLL
    for (int which = 0; which < 2; ++which) {
      RONDO_UNROLL
      for (int step = 0; step < Tiles::kSteps; ++step) {
        block.local([&](int thread) {
          a[thread] = Tiles::rows(shared.rows[which], thread / kWarp * 16, step, thread);
          RONDO_UNROLL
          for (int n = 0; n < kColumns8 && step % 2 == 0; ++n) {
            b[thread][n] = Tiles::columns(shared.columns[which], 8 * n, step, thread);
          }
        });
        RONDO_UNROLL
        for (int n = 0; n < kColumns8; ++n) {
          block.template multiply<Tiles::kBfloat>(
              [&](int thread) -> FragmentC& { return which == 0 ? weights[thread][n] : gradients[thread][n]; },
              [&](int thread) -> FragmentA& { return a[thread]; },
              [&](int thread) -> FragmentB& { return b[thread][n][step % 2]; });
        }
      }
    }
    block.local(
        [&](int thread) { differentiate(p, shared, row, column, end, thread, weights[thread], gradients[thread]); });
    RONDO_UNROLL
    for (int n = 0; n < kColumns8; n += 2) {
      block.local([&](int thread) { a[thread] = Tiles::narrowed(gradients[thread][n], gradients[thread][n + 1]); });
      Tiles::add_product(block, first_sums, a, shared.columns[0], 8 * n);
      if constexpr (kKeys) {
        block.local([&](int thread) { a[thread] = Tiles::narrowed(weights[thread][n], weights[thread][n + 1]); });
        Tiles::add_product(block, second_sums, a, shared.columns[1], 8 * n);
      }
    }
  }

 private:
  /// See QueryRows::differentiate().
  RONDO_KERNEL static void differentiate(const AttentionParams& p, const Shared& shared, std::int32_t row,
                                         std::int32_t column, std::int32_t end, int thread, ByEight<FragmentC>& weights,
                                         ByEight<FragmentC>& gradients) {
    RONDO_UNROLL
    for (int n = 0; n < kColumns8; ++n) {
      RONDO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int at_row = thread / kWarp * 16 + thread % kWarp / 4 + 8 * (i / 2);
        const int at_column = 8 * n + 2 * (thread % 4) + i % 2;
        const int query = kKeys ? at_column : at_row;  // among those at hand
        const std::int32_t query_token = kKeys ? column + at_column : row + at_row;
        const std::int32_t key_token = kKeys ? row + at_row : column + at_column;
        const bool seen = query_token < end && key_token >= shared.queries.first[query] && key_token <= query_token;
        shared.queries.template differentiate<kCapped>(p, query, seen, weights[n].x[i], gradients[n].x[i]);
      }
    }
  }
};

// In the order that of_matrix() counts in.
using MatrixKeysBf16x64 = MatrixBackward<Bf16, 64, true>;
using MatrixKeysBf16x128 = MatrixBackward<Bf16, 128, true>;
using MatrixKeysFp16x64 = MatrixBackward<Fp16, 64, true>;
using MatrixKeysFp16x128 = MatrixBackward<Fp16, 128, true>;
using MatrixQueriesBf16x64 = MatrixBackward<Bf16, 64, false>;
using MatrixQueriesBf16x128 = MatrixBackward<Bf16, 128, false>;
using MatrixQueriesFp16x64 = MatrixBackward<Fp16, 64, false>;
using MatrixQueriesFp16x128 = MatrixBackward<Fp16, 128, false>;
using CappedKeysBf16x64 = MatrixBackward<Bf16, 64, true, true>;
using CappedKeysBf16x128 = MatrixBackward<Bf16, 128, true, true>;
using CappedKeysFp16x64 = MatrixBackward<Fp16, 64, true, true>;
using CappedKeysFp16x128 = MatrixBackward<Fp16, 128, true, true>;
using CappedQueriesBf16x64 = MatrixBackward<Bf16, 64, false, true>;
using CappedQueriesBf16x128 = MatrixBackward<Bf16, 128, false, true>;
using CappedQueriesFp16x64 = MatrixBackward<Fp16, 64, false, true>;
using CappedQueriesFp16x128 = MatrixBackward<Fp16, 128, false, true>;

}  // namespace rondo::devices::cuda
