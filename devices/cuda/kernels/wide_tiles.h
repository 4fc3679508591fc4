// What attention and its gradient by the matrix units share for heads that those of matrix_tiles.h are not made for:
// more than 64 channels, whole eights. Heads lie in shared memory as long as the kernel's, with zeros behind their own
// channels.
//
// kHead / 128 warps share 16 rows: each computes scores of columns of its own, hands them to the others through shared
// memory and adds up 128 of the head's channels, as many as its registers hold. Nothing is multiplied twice but the
// scores of the longest heads' gradient. Rows are not padded: their pieces of 16 bytes are exchanged by the row, so
// that the lanes of an ldmatrix meet different banks. No block takes more memory than cards for desktops have.
#pragma once

#include "matrix_tiles.h"

namespace rondo::devices::cuda {

inline constexpr int kWideKeys = 32;     // of a tile of the forward
inline constexpr int kWideColumns = 16;  // streamed past a block's rows by the gradient
inline constexpr int kWidePart = 128;    // channels that a warp adds up
inline constexpr int kMostWideShared = 99 * 1024;

/// Rows of a block and the warps that share 16 of them, by the channels of the kernel's heads: 128, 256 or 512.
constexpr int wide_rows(int head) { return head <= 256 ? 64 : 32; }
constexpr int wide_parts(int head) { return head / kWidePart; }
constexpr int wide_threads(int head) { return wide_rows(head) / 16 * wide_parts(head) * kWarp; }

/// The kernel's heads for heads of `head_dim` channels.
constexpr int wide_head(std::int64_t head_dim) { return head_dim <= 128 ? 128 : head_dim <= 256 ? 256 : 512; }

/// Pieces of 16 bytes are exchanged by the row.
template <typename T, int kHead>
struct WideTiles : HeadTiles<T, WideTiles<T, kHead>> {
  static constexpr int kRows = wide_rows(kHead);
  static constexpr int kParts = wide_parts(kHead);
  static constexpr int kThreads = wide_threads(kHead);
  static constexpr int kSteps = kHead / 16;      // of a product along the head
  static constexpr int kSlices = kWidePart / 8;  // of a warp's sums
  static constexpr int kPieces = kHead / 8;      // of 16 bytes, of a row
  static_assert(kThreads <= kMostThreads && kThreads % kPieces == 0);

  using Base = HeadTiles<T, WideTiles<T, kHead>>;
  using Sums = Array<FragmentC, static_cast<std::size_t>(kSlices)>;

  RONDO_KERNEL static std::int64_t width(const AttentionParams& p) { return p.head_dim; }
  /// Of the warps that share rows.
  RONDO_KERNEL static int part_of(int thread) { return thread / kWarp % kParts; }
  RONDO_KERNEL static int row_of(int thread) { return thread / (kWarp * kParts) * 16; }
  RONDO_KERNEL static int slice_of(int thread) { return part_of(thread) * kSlices; }
  RONDO_KERNEL static const std::uint16_t* at(const std::uint16_t* tile, int row, int piece) {
    return tile + row * kHead + (piece ^ (row % 8)) * 8;
  }

  /// `count` rows from token `first` on, zeros behind a head's own channels; zero from `end` on. There once
  /// Block::wait_copies() has been passed.
  RONDO_KERNEL static void fetch(const AttentionParams& p, std::uint16_t* to, const void* from, std::int64_t heads,
                                 std::int64_t head, std::int32_t first, int count, std::int32_t end, int thread) {
    constexpr int kStep = kThreads / kPieces;
    const int piece = thread % kPieces;
    const std::int64_t own = width(p);
    const bool is_there = 8 * piece < own;
    const std::int64_t step = heads * own;
    const auto* source =
        static_cast<const std::uint16_t*>(from) + first * step + head * own + (is_there ? 8 * piece : 0);
    RONDO_UNROLL
    for (int row = thread / kPieces; row < count; row += kStep) {
      copy_16(to + row * kHead + (piece ^ (row % 8)) * 8, source + row * step, is_there && first + row < end);
    }
  }

  /// scores [16, 8 kColumns8] = a warp's 16 rows of `rows` times the rows of `columns` from first_column(thread) on,
  /// transposed.
  template <int kColumns8, typename Block, typename Scores, typename First>
  RONDO_KERNEL static void find_scores(Block& block, Scores& scores, const std::uint16_t* rows_tile,
                                       const std::uint16_t* columns_tile, First first_column) {
    typename Block::template Own<Array<FragmentA, 2>> a;
    typename Block::template Own<Array<typename Base::Neighbours, static_cast<std::size_t>(kColumns8)>> b;
    block.local([&](int thread) {
      RONDO_UNROLL
      for (int n = 0; n < kColumns8; ++n) scores[thread][n] = FragmentC{};
    });
    RONDO_UNROLL_TWO
    for (int step = 0; step < kSteps; step += 2) {
      block.local([&](int thread) {
        RONDO_UNROLL
        for (int next = 0; next < 2; ++next) {
          a[thread][next] = Base::rows(rows_tile, row_of(thread), step + next, thread);
        }
        RONDO_UNROLL
        for (int n = 0; n < kColumns8; ++n) {
          b[thread][n] = Base::columns(columns_tile, first_column(thread) + 8 * n, step, thread);
        }
      });
      RONDO_UNROLL
      for (int next = 0; next < 2; ++next) {
        RONDO_UNROLL
        for (int n = 0; n < kColumns8; ++n) {
          block.template multiply<Base::kBfloat>([&](int thread) -> FragmentC& { return scores[thread][n]; },
                                                 [&](int thread) -> FragmentA& { return a[thread][next]; },
                                                 [&](int thread) -> FragmentB& { return b[thread][n][next]; });
        }
      }
    }
  }
};

}  // namespace rondo::devices::cuda
