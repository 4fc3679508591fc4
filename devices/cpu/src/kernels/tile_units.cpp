// See tile_units.h.
#include "kernels/tile_units.h"

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "rondo/base/float16.h"

namespace rondo::devices::cpu {
namespace {

constexpr std::int64_t kRows = 16;     // of a tile register
constexpr std::size_t kRowBytes = 64;  // of a tile register: 16 sums, or 32 numbers in bf16

/// What LDTILECFG reads.
struct TileConfiguration {
  std::uint8_t palette = 1;
  std::uint8_t first_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {kRowBytes, kRowBytes, kRowBytes, kRowBytes,
                                 kRowBytes, kRowBytes, kRowBytes, kRowBytes};
  std::uint8_t rows[16] = {kRows, kRows, kRows, kRows, kRows, kRows, kRows, kRows};
};
static_assert(sizeof(TileConfiguration) == 64);

#define RONDO_AMX __attribute__((target("amx-tile,amx-bf16")))

RONDO_AMX void configure_amx() {
  alignas(64) static constexpr TileConfiguration kConfiguration;
  _tile_loadconfig(&kConfiguration);
}

RONDO_AMX void release_amx() { _tile_release(); }

/// 32 x 32 sums in four registers, two of A beside two of B.
RONDO_AMX void multiply_block(const TileProduct& p, std::int64_t row, std::int64_t column) {
  const auto a_bytes = static_cast<std::size_t>(p.a_stride) * sizeof(*p.a);
  const auto b_bytes = static_cast<std::size_t>(p.b_stride) * sizeof(*p.b);
  const auto c_bytes = static_cast<std::size_t>(p.c_stride) * sizeof(*p.c);
  const std::uint16_t* a = p.a + row * p.a_stride;
  const std::uint32_t* b = p.b + column;
  float* upper = p.c + row * p.c_stride + column;
  float* lower = upper + kRows * p.c_stride;
  if (p.add) {
    _tile_loadd(0, upper, c_bytes);
    _tile_loadd(1, upper + kRows, c_bytes);
    _tile_loadd(2, lower, c_bytes);
    _tile_loadd(3, lower + kRows, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t k = 0; k < p.inner; k += kTile) {
    _tile_loadd(4, a + k, a_bytes);
    _tile_loadd(6, b + k / 2 * p.b_stride, b_bytes);
    _tile_loadd(7, b + k / 2 * p.b_stride + kRows, b_bytes);
    _tile_loadd(5, a + kRows * p.a_stride + k, a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, upper, c_bytes);
  _tile_stored(1, upper + kRows, c_bytes);
  _tile_stored(2, lower, c_bytes);
  _tile_stored(3, lower + kRows, c_bytes);
}

void multiply_by_amx(const TileProduct& p) {
  for (std::int64_t column = 0; column < p.columns; column += kTile) {
    for (std::int64_t row = 0; row < p.rows; row += kTile) multiply_block(p, row, column);
  }
}

#define RONDO_DOTS __attribute__((target("avx512f,avx512bf16")))

constexpr std::int64_t kLanes = 16;   // words of a register
constexpr std::int64_t kDotRows = 8;  // of a block: with two registers each, as many sums as hide an instruction's time

/// 8 x 32 sums in sixteen registers.
RONDO_DOTS void dot_block(const TileProduct& p, std::int64_t row, std::int64_t column) {
  const std::uint16_t* a = p.a + row * p.a_stride;
  const std::uint32_t* b = p.b + column;
  float* c = p.c + row * p.c_stride + column;
  __m512 left[kDotRows];
  __m512 right[kDotRows];
  // Unrolled, or the sums would not be kept in registers.
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kDotRows; ++i) {
    left[i] = p.add ? _mm512_loadu_ps(c + i * p.c_stride) : _mm512_setzero_ps();
    right[i] = p.add ? _mm512_loadu_ps(c + i * p.c_stride + kLanes) : _mm512_setzero_ps();
  }
  for (std::int64_t k = 0; k < p.inner; k += 2, b += p.b_stride) {
    const auto left_words = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b));
    const auto right_words = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + kLanes));
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kDotRows; ++i) {
      std::int32_t pair = 0;
      std::memcpy(&pair, a + i * p.a_stride + k, sizeof(pair));
      const auto pairs = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
      left[i] = _mm512_dpbf16_ps(left[i], pairs, left_words);
      right[i] = _mm512_dpbf16_ps(right[i], pairs, right_words);
    }
  }
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kDotRows; ++i) {
    _mm512_storeu_ps(c + i * p.c_stride, left[i]);
    _mm512_storeu_ps(c + i * p.c_stride + kLanes, right[i]);
  }
}

void multiply_by_dots(const TileProduct& p) {
  for (std::int64_t column = 0; column < p.columns; column += kTile) {
    for (std::int64_t row = 0; row < p.rows; row += kDotRows) dot_block(p, row, column);
  }
}

void multiply_by_loops(const TileProduct& p) {
  for (std::int64_t row = 0; row < p.rows; ++row) {
    float* sums = p.c + row * p.c_stride;
    if (!p.add) std::fill_n(sums, p.columns, 0.0F);
    for (std::int64_t k = 0; k < p.inner; k += 2) {
      const std::uint16_t* pair = p.a + row * p.a_stride + k;
      const float first = from_bfloat16(pair[0]);
      const float second = from_bfloat16(pair[1]);
      const std::uint32_t* right = p.b + k / 2 * p.b_stride;
      for (std::int64_t column = 0; column < p.columns; ++column) {
        sums[column] += first * from_bfloat16(static_cast<std::uint16_t>(right[column])) +
                        second * from_bfloat16(static_cast<std::uint16_t>(right[column] >> 16U));
      }
    }
  }
}

}  // namespace

const TileUnits& amx_units() {
  static constexpr TileUnits kUnits{configure_amx, multiply_by_amx, release_amx};
  return kUnits;
}

const TileUnits& dot_units() {
  static constexpr TileUnits kUnits{[] {}, multiply_by_dots, [] {}};
  return kUnits;
}

const TileUnits& tile_units_by_loops() {
  static constexpr TileUnits kUnits{[] {}, multiply_by_loops, [] {}};
  return kUnits;
}

}  // namespace rondo::devices::cpu
