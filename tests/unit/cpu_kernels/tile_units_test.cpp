// Products by matrix units against plain loops, on whole numbers, of which every sum is exact.
#include "kernels/tile_units.h"

#include "support.h"

namespace rondo::devices::cpu::testing {
namespace {

struct Extents {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t inner;
};

/// Whole numbers from -8 to 8 as bf16.
std::vector<std::uint16_t> whole_numbers(std::int64_t n, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> number(-8, 8);
  std::vector<std::uint16_t> values(static_cast<std::size_t>(n));
  for (std::uint16_t& value : values) value = narrow(static_cast<float>(number(generator)));
  return values;
}

/// Rows of each factor and of the result lie further apart than they are long.
void check(const TileUnits& units, const Extents& e, bool add) {
  constexpr std::int64_t kGap = 5;
  const std::int64_t a_stride = e.inner + 2 * kGap;
  const std::int64_t b_stride = e.columns + kGap;
  const std::int64_t c_stride = e.columns + kGap;
  const auto a = whole_numbers(e.rows * a_stride, 1);
  const auto halves = whole_numbers(e.inner * b_stride, 2);
  std::vector<std::uint32_t> b(halves.size() / 2);
  std::memcpy(b.data(), halves.data(), halves.size() * sizeof(halves[0]));
  std::vector<float> want = random_values(static_cast<std::size_t>(e.rows * c_stride), 3);
  for (float& value : want) value = std::round(value);
  std::vector<float> got = want;
  for (std::int64_t row = 0; row < e.rows; ++row) {
    for (std::int64_t column = 0; column < e.columns; ++column) {
      float& sum = want[static_cast<std::size_t>(row * c_stride + column)];
      if (!add) sum = 0;
      for (std::int64_t k = 0; k < e.inner; ++k) {
        const std::int64_t right = (k / 2 * b_stride + column) * 2 + k % 2;
        sum += widen(a[static_cast<std::size_t>(row * a_stride + k)]) * widen(halves[static_cast<std::size_t>(right)]);
      }
    }
  }
  const ConfiguredUnits configured(&units);
  units.multiply({.a = a.data(),
                  .a_stride = a_stride,
                  .b = b.data(),
                  .b_stride = b_stride,
                  .c = got.data(),
                  .c_stride = c_stride,
                  .rows = e.rows,
                  .columns = e.columns,
                  .inner = e.inner,
                  .add = add});
  EXPECT_EQ(got, want) << e.rows << " x " << e.columns << " x " << e.inner << (add ? ", added" : "");
}

void check_all(const TileUnits& units) {
  for (const bool add : {false, true}) {
    for (const Extents& e : {Extents{32, 32, 32}, {32, 96, 64}, {64, 32, 160}, {96, 64, 96}}) check(units, e, add);
  }
}

TEST(TileUnits, InLoops_GiveExactSums) { check_all(tile_units_by_loops()); }

TEST(TileUnits, OfTheProcessor_GiveExactSums) {
  const std::vector<const TileUnits*>& all = units_of_the_processor();
  if (all.empty()) GTEST_SKIP() << "the processor has neither AVX512_BF16 nor an AMX that the kernel lets it use";
  for (const TileUnits* units : all) check_all(*units);
}

}  // namespace
}  // namespace rondo::devices::cpu::testing
