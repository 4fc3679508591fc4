// Products of bf16 as such against plain loops, and the layouts that they read. oneDNN multiplies bf16 on processors
// with AVX-512.
#include "packed_product.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

#include "pairs.h"
#include "rondo/base/float16.h"

namespace rondo::devices::cpu {
namespace {

using Halves = std::vector<std::uint16_t>;

Halves random_halves(std::int64_t n, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = normal(generator);
  Halves halves(values.size());
  convert_row({values.data()}, {halves.data(), Storage::kBfloat16}, n);
  return halves;
}
double number(const Halves& halves, std::int64_t i) {
  float value = 0;
  convert_row({&halves[static_cast<std::size_t>(i)], Storage::kBfloat16}, {&value}, 1);
  return value;
}
ConstArray array(const Halves& halves) { return {halves.data(), Storage::kBfloat16}; }

std::uint16_t at(const Halves& halves, std::int64_t i) { return halves[static_cast<std::size_t>(i)]; }
Halves filled(std::int64_t n) { return Halves(static_cast<std::size_t>(n), 0xFFFF); }

struct Extents {
  std::int64_t inner, columns;
};
constexpr Extents kExtents[] = {{1, 1}, {2, 64}, {16, 192}, {31, 65}, {32, 64}, {45, 130}, {600, 100}, {544, 3}};

/// Element (k, n) of pairs, as BA16a64b2a has it.
std::int64_t place_in_pairs(std::int64_t inner, std::int64_t k, std::int64_t n) {
  return n / 64 * whole_pairs(inner) * 64 + k / 2 * 128 + n % 64 * 2 + k % 2;
}

void expect_pairs(const Halves& pairs, const Extents& e,
                  const std::function<std::uint16_t(std::int64_t, std::int64_t)>& element) {
  for (std::int64_t k = 0; k < whole_pairs(e.inner); ++k) {
    for (std::int64_t n = 0; n < (e.columns + 63) / 64 * 64; ++n) {
      const std::uint16_t want = k < e.inner && n < e.columns ? element(k, n) : 0;
      ASSERT_EQ(at(pairs, place_in_pairs(e.inner, k, n)), want)
          << k << ", " << n << " of " << e.inner << " x " << e.columns;
    }
  }
}

TEST(Pairs, OfRows_LieAsOneDnnReadsThem) {
  ThreadPool pool(2);
  for (const Extents& e : kExtents) {
    const std::int64_t stride = e.columns + 5;
    const Halves x = random_halves(e.inner * stride, 1);
    Halves pairs = filled(pair_elements(e.inner, e.columns));
    pack_pairs(pool, x.data(), stride, e.inner, e.columns, pairs.data());
    expect_pairs(pairs, e, [&](std::int64_t k, std::int64_t n) { return at(x, k * stride + n); });
  }
}

TEST(Pairs, OfColumns_LieAsOneDnnReadsThem) {
  ThreadPool pool(2);
  for (const Extents& e : kExtents) {
    const Halves x = random_halves(e.inner * e.columns, 1);
    Halves pairs = filled(pair_elements(e.inner, e.columns));
    pack_pairs_of_rows(pool, x.data(), e.inner, e.columns, pairs.data());
    expect_pairs(pairs, e, [&](std::int64_t k, std::int64_t n) { return at(x, n * e.inner + k); });
  }
}

TEST(Pairs, TransposedAndFilledUpRows_EndInZeros) {
  ThreadPool pool(2);
  for (const Extents& e : kExtents) {
    const std::int64_t width = whole_pairs(e.inner);
    const std::int64_t stride = e.columns + 3;
    const Halves x = random_halves(e.inner * stride, 1);
    Halves y = filled(e.columns * width);
    transpose_halves(pool, x.data(), stride, e.inner, e.columns, y.data());
    const Halves rows = random_halves(e.columns * e.inner, 2);
    Halves full = filled(e.columns * width);
    fill_up_rows(pool, rows.data(), e.columns, e.inner, full.data());
    for (std::int64_t r = 0; r < e.columns; ++r) {
      for (std::int64_t k = 0; k < width; ++k) {
        ASSERT_EQ(at(y, r * width + k), k < e.inner ? at(x, k * stride + r) : 0) << r << ", " << k;
        ASSERT_EQ(at(full, r * width + k), k < e.inner ? at(rows, r * e.inner + k) : 0) << r << ", " << k;
      }
    }
  }
}

/// Six standard deviations of the rounding of a sum of n products of unit variance, see tests/ops/tolerance.h, in
/// whatever order.
double allowed_packed(std::int64_t n) { return 3 * 0x1.0p-23 * static_cast<double>(n); }

class Packed : public ::testing::Test {
 protected:
  void SetUp() override {
    TileShape tile{.rows = 16, .columns = 64, .inner = 64, .lda = 64, .ldc = 64};
    if (!engine_.prepare(tile).ok()) GTEST_SKIP() << "oneDNN multiplies no bf16 on this processor";
  }
  std::byte* scratch(Bytes size) {
    bytes_.assign(size + 64, std::byte{0xFF});
    return bytes_.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64) % 64;
  }
  void expect_row_product(const ProductShape& shape, std::int64_t rows);
  void expect_weight_product(const WeightShape& shape, std::int64_t tokens);

  ThreadPool pool_{2};
  TileEngine engine_{TileArithmetic::kBfloat16, 2};
  std::vector<std::byte> bytes_;
};

double dot(const Halves& a, std::int64_t row, const Halves& b, bool transposed, std::int64_t inner,
           std::int64_t columns, std::int64_t column) {
  double sum = 0;
  for (std::int64_t k = 0; k < inner; ++k) {
    sum += number(a, row * inner + k) * number(b, transposed ? column * inner + k : k * columns + column);
  }
  return sum;
}

void Packed::expect_row_product(const ProductShape& shape, std::int64_t rows) {
  const SideShape& side = shape.side;
  const Halves a = random_halves(shape.rows * shape.inner, 1), b = random_halves(shape.columns * shape.inner, 2);
  const Halves side_a = random_halves(shape.rows * side.inner, 3),
               side_b = random_halves(shape.columns * side.inner, 4);
  const Halves bias = random_halves(shape.columns, 5), addend = random_halves(shape.rows * shape.columns, 6);
  auto product = PackedRowProduct::plan(engine_, shape);
  ASSERT_EQ(product.status(), absl::OkStatus());
  ASSERT_EQ(product->prepare_rows(rows), absl::OkStatus());
  std::vector<float> out(static_cast<std::size_t>(shape.rows * shape.columns), 7.0F);
  Finish finish;
  finish.out = {out.data()};
  if (!shape.trivial_finish) {
    finish.alpha = 0.5F;
    finish.bias = array(bias);
    finish.addend = array(addend);
  }
  const ProductOperands operands{array(a), array(b), array(side_a), array(side_b)};
  ASSERT_EQ(product->run(pool_, rows, operands, finish, scratch(product->scratch_bytes(2))), absl::OkStatus());
  for (std::int64_t row = 0; row < shape.rows; row += row + 3 < rows ? 3 : 1) {
    for (std::int64_t column = 0; column < shape.columns; column += 5) {
      const std::int64_t place = row * shape.columns + column;
      double want = dot(a, row, b, shape.b_transposed, shape.inner, shape.columns, column);
      if (side.inner > 0) {
        want += static_cast<double>(side.alpha) *
                dot(side_a, row, side_b, side.b_transposed, side.inner, shape.columns, column);
      }
      if (!shape.trivial_finish) want = 0.5 * want + number(bias, column) + number(addend, place);
      if (row >= rows) want = 7.0;  // not written
      ASSERT_NEAR(out[static_cast<std::size_t>(place)], want, allowed_packed(shape.inner + side.inner + 2))
          << row << ", " << column << " of " << shape.rows << " x " << shape.columns << " x " << shape.inner
          << ", transposed " << shape.b_transposed << ", side " << side.inner;
    }
  }
}

TEST_F(Packed, RowProducts_AgreeWithPlainLoops) {
  for (const bool transposed : {true, false}) {
    for (const bool trivial : {true, false}) {
      for (const std::int64_t inner : {8, 40, 150}) {
        for (const std::int64_t columns : {5, 301}) {
          ProductShape shape{200, columns, inner, transposed, Storage::kBfloat16, Storage::kBfloat16, trivial};
          expect_row_product(shape, 200);
          shape.side = {24, !transposed, Storage::kBfloat16, Storage::kBfloat16, 0.75F};
          expect_row_product(shape, 130);
          shape.side.inner = 33;
          expect_row_product(shape, 1);
        }
      }
    }
  }
}

TEST_F(Packed, RowProductsOfSeveralPanels_AgreeWithPlainLoops) {
  for (const bool transposed : {true, false}) {
    ProductShape shape{20, 1000, 9000, transposed, Storage::kBfloat16, Storage::kBfloat16, true};
    shape.side = {8, transposed, Storage::kBfloat16, Storage::kBfloat16, 2.0F};
    expect_row_product(shape, 20);
  }
}

void Packed::expect_weight_product(const WeightShape& shape, std::int64_t tokens) {
  const Halves a = random_halves(shape.tokens * shape.rows, 1), b = random_halves(shape.tokens * shape.columns, 2);
  std::vector<float> dw(static_cast<std::size_t>(shape.rows * shape.columns));
  for (std::size_t i = 0; i < dw.size(); ++i) dw[i] = static_cast<float>(i % 7);
  auto product = PackedWeightProduct::plan(engine_, shape);
  ASSERT_EQ(product.status(), absl::OkStatus());
  ASSERT_EQ(product->prepare_tokens(tokens), absl::OkStatus());
  ASSERT_EQ(product->run(pool_, tokens, array(a), array(b), dw.data(), scratch(product->scratch_bytes(2))),
            absl::OkStatus());
  for (std::int64_t row = 0; row < shape.rows; row += 7) {
    for (std::int64_t column = 0; column < shape.columns; column += 3) {
      const std::int64_t place = row * shape.columns + column;
      double want = 0;
      for (std::int64_t t = 0; t < tokens; ++t)
        want += number(a, t * shape.rows + row) * number(b, t * shape.columns + column);
      want = static_cast<double>(shape.alpha) * want + static_cast<double>(place % 7);
      ASSERT_NEAR(dw[static_cast<std::size_t>(place)], want, allowed_packed(tokens + 8))
          << row << ", " << column << " of " << shape.rows << " x " << shape.columns << ", tokens " << tokens;
    }
  }
}

TEST_F(Packed, WeightProducts_AgreeWithPlainLoops) {
  constexpr Storage kNarrow = Storage::kBfloat16;
  for (const std::int64_t tokens : {700, 128, 45, 1}) {
    expect_weight_product({700, 130, 75, 0.5F, kNarrow, kNarrow}, tokens);
    expect_weight_product({700, 16, 200, 1.0F, kNarrow, kNarrow}, tokens);
  }
  expect_weight_product({1100, 9000, 16, 1.0F, kNarrow, kNarrow}, 1100);  // several blocks of rows
  expect_weight_product({1100, 16, 9000, 1.0F, kNarrow, kNarrow}, 1100);  // several chunks
}

}  // namespace
}  // namespace rondo::devices::cpu
