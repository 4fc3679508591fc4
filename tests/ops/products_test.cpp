// The tiles' two ways through oneDNN give the same products: sgemm, and the prepared primitives that processors with
// bf16 products use (here with fp32 operands, so that every processor can run them; with bf16 where there is it).
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "product.h"

namespace rondo::devices::cpu {
namespace {

std::vector<float> random_values(std::int64_t n, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = normal(generator);
  return values;
}

/// Six standard deviations of the rounding of a sum of n products of unit variance, see tests/ops/tolerance.h; two
/// results differ by both their errors.
double allowed(std::int64_t n) { return 2 * 3 * 0x1.0p-24 * static_cast<double>(n); }

void expect_close(const std::vector<float>& got, const std::vector<float>& want, std::int64_t terms) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], allowed(terms)) << i;
}

struct Bed {
  explicit Bed(TileArithmetic arithmetic) : wide(arithmetic, 2) {}
  Engines engines() { return {&wide, nullptr}; }
  ThreadPool pool{2};
  TileEngine wide;
};

std::byte* aligned(std::vector<std::byte>& bytes, Bytes size) {
  bytes.resize(size + 64);
  return bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
}

std::vector<float> row_product(TileArithmetic arithmetic, const ProductShape& shape, std::int64_t rows) {
  Bed bed(arithmetic);
  auto product = RowProduct::plan(bed.engines(), shape);
  EXPECT_EQ(product.status(), absl::OkStatus());
  EXPECT_EQ(product->prepare_rows(rows), absl::OkStatus());
  const std::vector<float> a = random_values(shape.rows * shape.inner, 1);
  const std::vector<float> b = random_values(shape.columns * shape.inner, 2);
  const std::vector<float> bias = random_values(shape.columns, 3);
  std::vector<float> out(static_cast<std::size_t>(rows * shape.columns));
  std::vector<std::byte> bytes;
  std::byte* scratch = aligned(bytes, product->scratch_bytes(2));
  Finish finish;
  finish.out = {out.data(), false};
  if (!shape.trivial_finish) {
    finish.alpha = 0.5F;
    finish.bias = {bias.data(), false};
  }
  EXPECT_EQ(product->run(bed.pool, rows, {a.data(), false}, {b.data(), false}, finish, scratch), absl::OkStatus());
  return out;
}

TEST(RowProduct_Run, OnPrimitives_AgreesWithSgemm) {
  for (const bool transposed : {true, false}) {
    for (const bool trivial : {true, false}) {
      for (const std::int64_t rows : {200, 128}) {
        const ProductShape shape{200, 301, 150, transposed, false, false, trivial};
        expect_close(row_product(TileArithmetic::kFloat32Primitive, shape, rows),
                     row_product(TileArithmetic::kFloat32, shape, rows), shape.inner);
      }
    }
  }
}

std::vector<float> weight_product(TileArithmetic arithmetic, const WeightProduct::Shape& shape, std::int64_t tokens) {
  Bed bed(arithmetic);
  auto product = WeightProduct::plan(bed.engines(), shape);
  EXPECT_EQ(product.status(), absl::OkStatus());
  EXPECT_EQ(product->prepare_tokens(tokens), absl::OkStatus());
  const std::vector<float> a = random_values(shape.tokens * shape.rows, 1);
  const std::vector<float> b = random_values(shape.tokens * shape.columns, 2);
  std::vector<float> dw = random_values(shape.rows * shape.columns, 3);
  std::vector<std::byte> bytes;
  std::byte* scratch = aligned(bytes, product->scratch_bytes(2));
  EXPECT_EQ(product->run(bed.pool, tokens, {a.data(), false}, {b.data(), false}, dw.data(), scratch), absl::OkStatus());
  return dw;
}

TEST(WeightProduct_Run, OnPrimitives_AgreesWithSgemm) {
  for (const std::int64_t tokens : {700, 128}) {
    const WeightProduct::Shape shape{700, 130, 75, 0.5F, false, false};
    expect_close(weight_product(TileArithmetic::kFloat32Primitive, shape, tokens),
                 weight_product(TileArithmetic::kFloat32, shape, tokens), tokens);
  }
}

TEST(RowProduct_Run, WeightsLargerThanAPanel_AgreesWithOnePiece) {
  // bf16 weights that must be converted in several pieces, cut by columns and by the inner extent. Powers of two are
  // exact in bf16, so that the fp32 product of the same numbers is the reference.
  for (const bool transposed : {true, false}) {
    const std::int64_t columns = transposed ? 9000 : 520;
    const std::int64_t inner = transposed ? 600 : 9000;
    const ProductShape narrow{20, columns, inner, transposed, false, true, true};
    ProductShape wide = narrow;
    wide.b_bfloat16 = false;
    std::mt19937 generator(1);
    std::vector<std::uint16_t> b_narrow(static_cast<std::size_t>(columns * inner));
    std::vector<float> b_wide(b_narrow.size());
    for (std::size_t i = 0; i < b_narrow.size(); ++i) {
      b_wide[i] = std::ldexp((generator() & 1U) == 0 ? 1.0F : -1.0F, static_cast<int>(generator() % 5) - 2);
    }
    convert_row({b_wide.data(), false}, {b_narrow.data(), true}, columns * inner);
    const std::vector<float> a = random_values(narrow.rows * inner, 1);
    Bed bed(TileArithmetic::kFloat32);
    std::vector<std::vector<float>> results;
    for (const bool is_narrow : {true, false}) {
      auto product = RowProduct::plan(bed.engines(), is_narrow ? narrow : wide);
      ASSERT_EQ(product.status(), absl::OkStatus());
      std::vector<std::byte> bytes;
      std::byte* scratch = aligned(bytes, product->scratch_bytes(2));
      results.emplace_back(static_cast<std::size_t>(narrow.rows * columns));
      Finish finish;
      finish.out = {results.back().data(), false};
      const ConstArray b = is_narrow ? ConstArray{b_narrow.data(), true} : ConstArray{b_wide.data(), false};
      ASSERT_EQ(product->run(bed.pool, narrow.rows, {a.data(), false}, b, finish, scratch), absl::OkStatus());
    }
    // The elements of b have a variance of 31 / 5 powers: (1/16 + 1/4 + 1 + 4 + 16) / 5 = 4.3.
    ASSERT_EQ(results[0].size(), results[1].size());
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      ASSERT_NEAR(results[0][i], results[1][i], 2.1 * allowed(inner)) << i;
    }
  }
}

}  // namespace
}  // namespace rondo::devices::cpu
