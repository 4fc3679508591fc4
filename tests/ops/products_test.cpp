// Products by sgemm: sides, panels, and rows whose bits do not depend on those beside them.
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

struct Bed {
  Engines engines() { return {&wide, nullptr}; }
  ThreadPool pool{2};
  TileEngine wide{TileArithmetic::kFloat32, 2};
};

std::byte* aligned(std::vector<std::byte>& bytes, Bytes size) {
  bytes.resize(size + 64);
  return bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
}

constexpr Storage kNarrow = Storage::kBfloat16;

/// Values that bf16 holds exactly, in either storage.
struct Exact {
  Exact(std::int64_t n, std::uint32_t seed) : wide(random_values(n, seed)), narrow(wide.size()) {
    convert_row({wide.data()}, {narrow.data(), kNarrow}, n);
    convert_row({narrow.data(), kNarrow}, {wide.data()}, n);
  }
  ConstArray array(Storage storage) const {
    return storage == kNarrow ? ConstArray{narrow.data(), kNarrow} : ConstArray{wide.data()};
  }
  std::vector<float> wide;
  std::vector<std::uint16_t> narrow;
};

/// alpha A B or alpha A B^T, element (row, column), in double.
double dot(const Exact& a, const Exact& b, bool b_transposed, std::int64_t inner, std::int64_t columns,
           std::int64_t row, std::int64_t column) {
  double sum = 0;
  for (std::int64_t k = 0; k < inner; ++k) {
    const std::int64_t place = b_transposed ? column * inner + k : k * columns + column;
    sum += static_cast<double>(a.wide[static_cast<std::size_t>(row * inner + k)]) *
           static_cast<double>(b.wide[static_cast<std::size_t>(place)]);
  }
  return sum;
}

/// out = A B + 0.5 sideA sideB (+ bias + addend), against plain loops.
void expect_side_is_added(const ProductShape& shape) {
  Bed bed;
  auto product = RowProduct::plan(bed.engines(), shape);
  ASSERT_EQ(product.status(), absl::OkStatus());
  const SideShape& side = shape.side;
  const Exact a(shape.rows * shape.inner, 1);
  const Exact b(shape.columns * shape.inner, 2);
  const Exact side_a(shape.rows * side.inner, 3);
  const Exact side_b(shape.columns * side.inner, 4);
  const std::vector<float> bias = random_values(shape.columns, 5);
  const std::vector<float> addend = random_values(shape.rows * shape.columns, 6);
  std::vector<float> out(static_cast<std::size_t>(shape.rows * shape.columns));
  Finish finish;
  finish.out = {out.data()};
  if (!shape.trivial_finish) {
    finish.bias = {bias.data()};
    finish.addend = {addend.data()};
  }
  std::vector<std::byte> bytes;
  std::byte* scratch = aligned(bytes, product->scratch_bytes(2));
  const ProductOperands operands{a.array(shape.a_storage), b.array(shape.b_storage), side_a.array(side.a_storage),
                                 side_b.array(side.b_storage)};
  ASSERT_EQ(product->run(bed.pool, shape.rows, operands, finish, scratch), absl::OkStatus());
  for (std::int64_t row = 0; row < shape.rows; row += 7) {
    for (std::int64_t column = 0; column < shape.columns; column += 3) {
      const auto place = static_cast<std::size_t>(row * shape.columns + column);
      double want = dot(a, b, shape.b_transposed, shape.inner, shape.columns, row, column) +
                    static_cast<double>(side.alpha) *
                        dot(side_a, side_b, side.b_transposed, side.inner, shape.columns, row, column);
      if (!shape.trivial_finish) {
        want += static_cast<double>(bias[static_cast<std::size_t>(column)]) + static_cast<double>(addend[place]);
      }
      ASSERT_NEAR(out[place], want, allowed(shape.inner + side.inner)) << row << ", " << column;
    }
  }
}

TEST(RowProduct_Run, WithSide_AddsBothProducts) {
  for (const bool transposed : {true, false}) {
    for (const bool trivial : {true, false}) {
      for (const Storage storage : {kNarrow, Storage::kFloat32}) {
        ProductShape shape{200, 301, 150, transposed, storage, storage, trivial};
        shape.side = {24, transposed, storage, storage, 0.5F};
        expect_side_is_added(shape);
        shape.side.b_transposed = !transposed;
        expect_side_is_added(shape);
      }
    }
  }
}

TEST(RowProduct_Run, WithSideAndSeveralBlocks_AddsTheSideOnce) {
  // Rows past a panel, and an inner extent that is cut.
  ProductShape tall{2500, 40, 64, true, kNarrow, kNarrow, false};
  tall.side = {8, true, kNarrow, kNarrow, 0.5F};
  expect_side_is_added(tall);
  ProductShape deep{40, 520, 9000, false, kNarrow, kNarrow, false};
  deep.side = {8, false, kNarrow, kNarrow, 0.5F};
  expect_side_is_added(deep);
}

/// Numbers of a product of shape.rows rows, of which any run of rows can be computed by itself.
class RowsOfProduct {
 public:
  explicit RowsOfProduct(const ProductShape& shape)
      : shape_(shape),
        a_(shape.rows * shape.inner, 1),
        b_(shape.columns * shape.inner, 2),
        side_a_(shape.rows * shape.side.inner, 3),
        side_b_(shape.columns * shape.side.inner, 4),
        bias_(shape.columns, 5),
        addend_(shape.rows * shape.columns, 6) {}

  /// The results of `count` rows from `first` on, as floats.
  std::vector<float> compute(std::int64_t first, std::int64_t count) {
    ProductShape shape = shape_;
    shape.rows = count;
    auto product = RowProduct::plan(bed_.engines(), shape);
    EXPECT_EQ(product.status(), absl::OkStatus());
    const bool narrow = !shape.trivial_finish && shape.a_storage == kNarrow;
    const std::int64_t elements = count * shape.columns;
    std::vector<std::uint16_t> stored(static_cast<std::size_t>(elements));
    std::vector<float> out(static_cast<std::size_t>(elements), 7.0F);
    Finish finish;
    finish.out = narrow ? Array{stored.data(), kNarrow} : Array{out.data()};
    if (!shape.trivial_finish) {
      finish.bias = bias_.array(Storage::kFloat32);
      finish.addend = addend_.array(shape.a_storage).at(first * shape.columns);
    }
    const ProductOperands operands{a_.array(shape.a_storage).at(first * shape.inner), b_.array(shape.b_storage),
                                   side_a_.array(shape.side.a_storage).at(first * shape.side.inner),
                                   side_b_.array(shape.side.b_storage)};
    std::vector<std::byte> bytes;
    std::byte* scratch = aligned(bytes, product->scratch_bytes(2));
    EXPECT_EQ(product->run(bed_.pool, count, operands, finish, scratch), absl::OkStatus());
    if (narrow) convert_row({stored.data(), kNarrow}, {out.data()}, elements);
    return out;
  }

 private:
  const ProductShape shape_;
  Bed bed_;
  const Exact a_, b_, side_a_, side_b_, bias_, addend_;
};

/// `draws` runs of rows of a product of shape.rows rows against the same rows of the whole.
void expect_rows_keep_their_bits(const ProductShape& shape, int draws, std::mt19937& generator) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(generator);
  };
  RowsOfProduct rows(shape);
  const std::vector<float> whole = rows.compute(0, shape.rows);
  for (int i = 0; i < draws; ++i) {
    const std::int64_t count = draw(shape.b_transposed ? kFewRows + 1 : 9, 300);
    const std::int64_t first = draw(0, shape.rows - count);
    const std::vector<float> part = rows.compute(first, count);
    for (std::size_t place = 0; place < part.size(); ++place) {
      ASSERT_EQ(part[place], whole[static_cast<std::size_t>(first * shape.columns) + place])
          << count << " rows from " << first << " of " << shape.rows << " x " << shape.columns << " x " << shape.inner
          << ", transposed " << shape.b_transposed << ", bf16 " << (shape.a_storage == kNarrow) << ", trivial "
          << shape.trivial_finish << ", side " << shape.side.inner << ": differs at row "
          << place / static_cast<std::size_t>(shape.columns) << ", column "
          << place % static_cast<std::size_t>(shape.columns);
    }
  }
}

TEST(RowProduct_Run, AnyRowsOfALargerProduct_HaveItsBits) {
  std::mt19937 generator(7);
  for (const std::int64_t columns : {1, 8, 145, 600}) {  // 145: tiles of 48 leave one, those of 96 do not
    for (const std::int64_t inner : {24, 150, 1024}) {
      for (int mask = 0; mask < 16; ++mask) {
        const bool transposed = (mask & 1) != 0;
        const Storage storage = (mask & 2) != 0 ? kNarrow : Storage::kFloat32;
        ProductShape shape{500, columns, inner, transposed, storage, storage, (mask & 4) != 0};
        if ((mask & 8) != 0) shape.side = {12, transposed, storage, storage, 0.5F};
        expect_rows_keep_their_bits(shape, 3, generator);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(RowProduct_Run, AnyRowsOfALargerProductInSeveralBlocks_HaveItsBits) {
  std::mt19937 generator(8);
  for (const bool trivial : {true, false}) {
    // Rows past a panel, and an inner extent that is cut.
    ProductShape tall{2500, 40, 64, true, kNarrow, kNarrow, trivial};
    tall.side = {8, true, kNarrow, kNarrow, 0.5F};
    expect_rows_keep_their_bits(tall, 8, generator);
    ProductShape deep{301, 520, 9000, false, kNarrow, kNarrow, trivial};
    deep.side = {8, false, kNarrow, kNarrow, 0.5F};
    expect_rows_keep_their_bits(deep, 2, generator);
  }
}

TEST(RowProduct_Run, AnyRowsOfAProductOfWideTiles_HaveItsBits) {
  // Many rows take wider tiles than few. 145: those of 48 leave one column, those of 96 do not; 289: 96 and 192.
  std::mt19937 generator(9);
  for (const std::int64_t columns : {145, 289, 576}) {
    for (const bool transposed : {true, false}) {
      for (const Storage storage : {kNarrow, Storage::kFloat32}) {
        expect_rows_keep_their_bits({1100, columns, 150, transposed, storage, storage, false}, 6, generator);
      }
    }
  }
}

TEST(RowProduct_Run, WeightsLargerThanAPanel_AgreesWithOnePiece) {
  // bf16 weights that must be converted in several pieces, cut by columns and by the inner extent. Powers of two are
  // exact in bf16, so that the fp32 product of the same numbers is the reference.
  for (const bool transposed : {true, false}) {
    const std::int64_t columns = transposed ? 9000 : 520;
    const std::int64_t inner = transposed ? 600 : 9000;
    const ProductShape narrow{20, columns, inner, transposed, Storage::kFloat32, kNarrow, true};
    ProductShape wide = narrow;
    wide.b_storage = Storage::kFloat32;
    std::mt19937 generator(1);
    std::vector<std::uint16_t> b_narrow(static_cast<std::size_t>(columns * inner));
    std::vector<float> b_wide(b_narrow.size());
    for (std::size_t i = 0; i < b_narrow.size(); ++i) {
      b_wide[i] = std::ldexp((generator() & 1U) == 0 ? 1.0F : -1.0F, static_cast<int>(generator() % 5) - 2);
    }
    convert_row({b_wide.data()}, {b_narrow.data(), kNarrow}, columns * inner);
    const std::vector<float> a = random_values(narrow.rows * inner, 1);
    Bed bed;
    std::vector<std::vector<float>> results;
    for (const bool is_narrow : {true, false}) {
      auto product = RowProduct::plan(bed.engines(), is_narrow ? narrow : wide);
      ASSERT_EQ(product.status(), absl::OkStatus());
      std::vector<std::byte> bytes;
      std::byte* scratch = aligned(bytes, product->scratch_bytes(2));
      results.emplace_back(static_cast<std::size_t>(narrow.rows * columns));
      Finish finish;
      finish.out = {results.back().data()};
      const ConstArray b = is_narrow ? ConstArray{b_narrow.data(), kNarrow} : ConstArray{b_wide.data()};
      ASSERT_EQ(product->run(bed.pool, narrow.rows, {.a = {a.data()}, .b = b}, finish, scratch), absl::OkStatus());
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
