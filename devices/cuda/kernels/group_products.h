// Products of a warpgroup (PTX ISA, "wgmma"; sm_90a): four warps make 64 rows of a product from operands in shared
// memory, or with the first of them in registers, while their threads go on to other things.
//
// A lane holds of A and C what it holds of m16n8k16 products, its warp's 16 rows of the 64 (see block.h). What lies in
// shared memory is rows of kHead numbers in panels of 64: a panel's row is 128 bytes, whose eight pieces of 16 bytes
// are exchanged by the row ("128-byte swizzle"). On the host products are made when they are begun.
#pragma once

#include "matrix_tiles.h"

namespace rondo::devices::cuda {

inline constexpr int kGroup = 128;     // threads
inline constexpr int kGroupRows = 64;  // of a product
inline constexpr int kPanel = 64;      // numbers of a row that lie together

/// Rows of numbers in shared memory; begins at a multiple of 1024 bytes, and `rows` is a multiple of 8.
struct SharedRows {
  std::uint16_t* at;
  int rows;
};

/// Where among `rows` rows a number lies.
RONDO_KERNEL int place_in_panels(int rows, int row, int column) {
  return (column / kPanel * rows + row) * kPanel + (column % kPanel / 8 ^ row % 8) * 8 + column % 8;
}

/// Rows of a head from token `first` on, zero from `end` on. There once Block::wait_shared() has been passed. A thread
/// brings the same piece of every kThreads / (kHead / 8)-th row, so that its addresses are a step apart.
template <int kHead, int kThreads, int kRows>
RONDO_KERNEL void fetch_rows(std::uint16_t* to, const void* from, std::int32_t heads, std::int32_t head,
                             std::int32_t first, std::int32_t end, int thread) {
  constexpr int kPieces = kHead / 8;  // of 16 bytes, of a row
  constexpr int kStep = kThreads / kPieces;
  static_assert(kStep % 8 == 0 && kRows % kStep == 0);
  const int row = thread / kPieces;
  const int column = thread % kPieces * 8;
  const std::int64_t step = static_cast<std::int64_t>(heads) * kHead;
  const auto* at = static_cast<const std::uint16_t*>(from) + (first + row) * step + head * kHead + column;
  std::uint16_t* into = to + place_in_panels(kRows, row, column);
  RONDO_UNROLL
  for (int i = 0; i < kRows / kStep; ++i) {
    copy_16(into + i * kStep * kPanel, at + i * kStep * step, first + row + i * kStep < end);
  }
}

#ifdef __CUDACC__

/// Shared memory as wgmma is told of it. `panels`: bytes from one panel to the next, where a product goes across them.
RONDO_KERNEL std::uint64_t matrix_descriptor(const std::uint16_t* at, int panels) {
  constexpr std::uint64_t kEightRows = 8 * kPanel * 2;
  constexpr std::uint64_t kExchanged = 1;  // the 128-byte swizzle
  const auto address = static_cast<std::uint64_t>(__cvta_generic_to_shared(at));
  return (address & 0x3FFFF) >> 4 | static_cast<std::uint64_t>(panels) >> 4 << 16 | kEightRows >> 4 << 32 |
         kExchanged << 62;
}

/// The same shared memory from `numbers` numbers further on.
RONDO_KERNEL std::uint64_t further(std::uint64_t descriptor, int numbers) {
  return descriptor + static_cast<std::uint64_t>(numbers * 2 >> 4);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RONDO_GROUP_PRODUCTS 1
#endif

// What an asm statement is told of the numbers of C.
// clang-format off
#define RONDO_C_4(c, j) "+f"((c).values[j].x[0]), "+f"((c).values[j].x[1]), "+f"((c).values[j].x[2]), "+f"((c).values[j].x[3])
#define RONDO_C_16(c, j) RONDO_C_4(c, j), RONDO_C_4(c, j + 1), RONDO_C_4(c, j + 2), RONDO_C_4(c, j + 3)
#define RONDO_C_32(c) RONDO_C_16(c, 0), RONDO_C_16(c, 4)
#define RONDO_C_64(c) RONDO_C_16(c, 0), RONDO_C_16(c, 4), RONDO_C_16(c, 8), RONDO_C_16(c, 12)
#define RONDO_NAMES_32 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
#define RONDO_NAMES_64 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
/// A and B in shared memory, both by rows of what is summed over.
#define RONDO_GROUP_DOT(columns, type, names, all, a, b, p) \
  asm volatile("{.reg .pred added; setp.ne.b32 added, " p ", 0; " \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " " names a ", " b ", added, 1, 1, 0, 0;}" \
               : all : "l"(left), "l"(right), "r"(static_cast<int>(added)))
/// A in registers, B in shared memory: by rows of what is summed over, or (kAcross) by rows that are added up.
#define RONDO_GROUP_ROWS(columns, type, names, all, a0, a1, a2, a3, b, p, across) \
  asm volatile("{.reg .pred added; setp.ne.b32 added, " p ", 0; " \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " " names "{" a0 ", " a1 ", " a2 ", " a3 "}, " b \
               ", added, 1, 1, " across ";}" \
               : all : "r"(left.x[0]), "r"(left.x[1]), "r"(left.x[2]), "r"(left.x[3]), "l"(right), "r"(static_cast<int>(added)), "n"(kAcross ? 1 : 0))
// clang-format on

/// c (+)= A B of 16 numbers; kColumns8: 8 or 16.
template <bool kBfloat, std::size_t kColumns8>
RONDO_KERNEL void begin_dot(Array<FragmentC, kColumns8>& c, std::uint64_t left, std::uint64_t right, bool added) {
#ifdef RONDO_GROUP_PRODUCTS
  if constexpr (kColumns8 == 8 && kBfloat) {
    RONDO_GROUP_DOT("64", "bf16", RONDO_NAMES_32, RONDO_C_32(c), "%32", "%33", "%34");
  } else if constexpr (kColumns8 == 8) {
    RONDO_GROUP_DOT("64", "f16", RONDO_NAMES_32, RONDO_C_32(c), "%32", "%33", "%34");
  } else if constexpr (kBfloat) {
    RONDO_GROUP_DOT("128", "bf16", RONDO_NAMES_64, RONDO_C_64(c), "%64", "%65", "%66");
  } else {
    RONDO_GROUP_DOT("128", "f16", RONDO_NAMES_64, RONDO_C_64(c), "%64", "%65", "%66");
  }
#else
  (void)left, (void)right, (void)added;
  c.values[0].x[0] = 0;
  __trap();  // never launched on such cards
#endif
}

/// c (+)= A B of 16 numbers or, kAcross, rows.
template <bool kBfloat, bool kAcross, std::size_t kColumns8>
RONDO_KERNEL void begin_rows(Array<FragmentC, kColumns8>& c, const FragmentA& left, std::uint64_t right, bool added) {
#ifdef RONDO_GROUP_PRODUCTS
  if constexpr (kColumns8 == 8 && kBfloat) {
    RONDO_GROUP_ROWS("64", "bf16", RONDO_NAMES_32, RONDO_C_32(c), "%32", "%33", "%34", "%35", "%36", "%37", "%38");
  } else if constexpr (kColumns8 == 8) {
    RONDO_GROUP_ROWS("64", "f16", RONDO_NAMES_32, RONDO_C_32(c), "%32", "%33", "%34", "%35", "%36", "%37", "%38");
  } else if constexpr (kBfloat) {
    RONDO_GROUP_ROWS("128", "bf16", RONDO_NAMES_64, RONDO_C_64(c), "%64", "%65", "%66", "%67", "%68", "%69", "%70");
  } else {
    RONDO_GROUP_ROWS("128", "f16", RONDO_NAMES_64, RONDO_C_64(c), "%64", "%65", "%66", "%67", "%68", "%69", "%70");
  }
#else
  (void)left, (void)right, (void)added;
  c.values[0].x[0] = 0;
  __trap();
#endif
}

/// Registers are as the thread has written them when a product that reads them is begun.
RONDO_KERNEL void settle_registers() {
#ifdef RONDO_GROUP_PRODUCTS
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/// The thread reads and writes these only behind this; the compiler would move it.
template <std::size_t kColumns8>
RONDO_KERNEL void hold_registers(Array<FragmentC, kColumns8>& c) {
  static_assert(kColumns8 == 8 || kColumns8 == 16);
  if constexpr (kColumns8 == 8) {
    asm volatile("" : RONDO_C_32(c)::"memory");
  } else {
    asm volatile("" : RONDO_C_64(c)::"memory");
  }
}

#undef RONDO_C_4
#undef RONDO_C_16
#undef RONDO_C_32
#undef RONDO_C_64
#undef RONDO_NAMES_32
#undef RONDO_NAMES_64
#undef RONDO_GROUP_DOT
#undef RONDO_GROUP_ROWS

#endif

/// Products of rows of kHead numbers. What is begun is there once wait() has been passed.
template <typename T, int kHead>
struct GroupProducts {
  static constexpr bool kBfloat = T::kIsBfloat;
  using Rows = Array<FragmentA, static_cast<std::size_t>(kHead / 16)>;  // a thread's part of 16 rows

  /// c [64, b.rows] = A B^T, of a block of one group.
  template <typename Block, typename C>
  RONDO_KERNEL static void begin_dots(Block& block, C& c, const SharedRows& a, const SharedRows& b) {
#ifdef __CUDACC__
    const std::uint64_t left = matrix_descriptor(a.at, 0);
    const std::uint64_t right = matrix_descriptor(b.at, 0);
    settle_registers();
    RONDO_UNROLL
    for (int step = 0; step < kHead / 16; ++step) {
      const int panel = step / 4;
      const int column = step % 4 * 16;
      begin_dot<kBfloat>(c.value, further(left, panel * a.rows * kPanel + column),
                         further(right, panel * b.rows * kPanel + column), step > 0);
    }
    commit();
#else
    HostLater::mine().multiply([&block, &c, a, b] {
      block.local([&](int thread) {
        for (int n = 0; n < b.rows; n += 8) {
          for (int i = 0; i < 4; ++i) {
            const int row = row_of(thread, i);
            const int column = n + 2 * (thread % 4) + i % 2;
            float sum = 0;
            for (int k = 0; k < kHead; ++k) {
              sum += number(a.at[place_in_panels(a.rows, row, k)]) * number(b.at[place_in_panels(b.rows, column, k)]);
            }
            c[thread][n / 8].x[i] = sum;
          }
        }
      });
    });
#endif
  }

  /// The same for A's rows in registers, see load_rows().
  template <typename Block, typename C>
  RONDO_KERNEL static void begin_dots(Block& block, C& c, typename Block::template Own<Rows>& a, const SharedRows& b) {
#ifdef __CUDACC__
    const std::uint64_t right = matrix_descriptor(b.at, 0);
    settle_registers();
    RONDO_UNROLL
    for (int step = 0; step < kHead / 16; ++step) {
      begin_rows<kBfloat, false>(c.value, a.value[step], further(right, step / 4 * b.rows * kPanel + step % 4 * 16),
                                 step > 0);
    }
    commit();
#else
    HostLater::mine().multiply([&block, &c, &a, b] {
      block.local([&](int thread) {
        for (int n = 0; n < b.rows / 8; ++n) c[thread][n] = FragmentC{};
      });
      add_rows(block, c, a, kHead / 16, b.rows,
               [&](int k, int column) { return number(b.at[place_in_panels(b.rows, column, k)]); });
    });
#endif
  }

  /// A thread's part of its warp's 16 rows, the warp's number times 16 and on.
  RONDO_KERNEL static void load_rows(Rows& rows, const SharedRows& from, int thread) {
    RONDO_UNROLL
    for (int step = 0; step < kHead / 16; ++step) {
      auto x = load_matrices<false>(thread, [&](int j, int r) {
        const int row = thread / kWarp * 16 + 8 * (j % 2) + r;
        return from.at + place_in_panels(from.rows, row, 16 * step + 8 * (j / 2));
      });
      rows[step] = {{x[0], x[1], x[2], x[3]}};
    }
  }

  /// c [64 rows a group, kHead] += A B for A in registers, 16 rows of B a fragment.
  template <typename Block, typename C, typename A>
  RONDO_KERNEL static void begin_sums(Block& block, C& c, A& a, const SharedRows& b) {
#ifdef __CUDACC__
    const std::uint64_t right = matrix_descriptor(b.at, b.rows * kPanel * 2);
    settle_registers();
    RONDO_UNROLL
    for (int step = 0; step < static_cast<int>(sizeof(a.value) / sizeof(FragmentA)); ++step) {
      begin_rows<kBfloat, true>(c.value, a.value[step], further(right, 16 * step * kPanel), true);
    }
    commit();
#else
    HostLater::mine().multiply([&block, &c, &a, b] {
      add_rows(block, c, a, b.rows / 16, kHead,
               [&](int k, int column) { return number(b.at[place_in_panels(b.rows, k, column)]); });
    });
#endif
  }

  /// Behind it all products are there but the last kLeft that were begun.
  template <int kLeft>
  RONDO_KERNEL static void wait() {
#ifdef RONDO_GROUP_PRODUCTS
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
#elif !defined(__CUDACC__)
    HostLater::mine().finish_products(kLeft);
#endif
  }
  /// `c` is as the thread has it at this place: of a product that is there, or before a wait for another.
  template <typename C>
  RONDO_KERNEL static void hold([[maybe_unused]] C& c) {
#ifdef __CUDACC__
    hold_registers(c.value);
#endif
  }

  /// The row of a thread's number i of four.
  RONDO_KERNEL static int row_of(int thread, int i) { return thread / kWarp * 16 + thread % kWarp / 4 + 8 * (i / 2); }

 private:
  RONDO_KERNEL static void commit() {
#ifdef RONDO_GROUP_PRODUCTS
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
  }
#ifndef __CUDACC__
  static float number(std::uint16_t bits) {
    const T stored{bits};
    return load(&stored);
  }
  /// c [., columns] += A B for `steps` fragments of A a thread and number_of(k, column) of B.
  template <typename Block, typename C, typename A, typename NumberOf>
  static void add_rows(Block& block, C& c, A& a, int steps, int columns, NumberOf number_of) {
    block.warps([&](int warp) {
      for (int step = 0; step < steps; ++step) {
        float rows[16][16];
        Block::template gather<kBfloat>(
            warp, [&](int thread) { return a[thread][step]; }, rows);
        for (int lane = 0; lane < kWarp; ++lane) {
          for (int e = 0; e < columns / 2; ++e) {
            float& sum = c[warp + lane][e / 4].x[e % 4];
            for (int k = 0; k < 16; ++k) {
              sum += rows[lane / 4 + 8 * (e % 4 / 2)][k] * number_of(16 * step + k, e / 4 * 8 + 2 * (lane % 4) + e % 2);
            }
          }
        }
      }
    });
  }
#endif
};

}  // namespace rondo::devices::cuda
