// What operands of products in eight bits are rounded to: the numbers of rondo/devices/fp8.h, bit for bit.
#include "rondo/devices/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support.h"

namespace rondo::devices::cpu::testing {
namespace {

/// As the definition has it, one number after the other.
std::vector<double> rounded(const Array& x, std::int64_t rows, std::int64_t columns, EightBits format) {
  std::vector<double> y(x.size());
  const bool by_columns = format == EightBits::kColumnsE4m3;
  const bool e5m2 = format == EightBits::kRowsE5m2;
  const std::int64_t lines = by_columns ? columns : rows;
  for (std::int64_t line = 0; line < lines; ++line) {
    std::vector<std::size_t> places;
    for (std::int64_t i = 0; i < rows * columns / lines; ++i) {
      places.push_back(static_cast<std::size_t>(by_columns ? i * columns + line : line * columns + i));
    }
    float largest = 0;
    for (const std::size_t i : places) {
      const float magnitude = std::abs(static_cast<float>(x[i]));
      largest = std::isfinite(magnitude) ? std::max(largest, magnitude) : std::numeric_limits<float>::infinity();
    }
    const float scale = fp8_scale(largest, e5m2 ? kE5m2Top : kE4m3Top);
    for (const std::size_t i : places) {
      const float divided = static_cast<float>(x[i]) / scale;
      y[i] = static_cast<double>(e5m2 ? e5m2_rounded(divided) : e4m3_rounded(divided)) * static_cast<double>(scale);
    }
  }
  return y;
}

void expect_rounded(Storage storage, const Array& x, std::int64_t rows, std::int64_t columns, EightBits format) {
  ThreadPool pool(2);
  Array y(Storage::kBfloat16, std::vector<float>(x.size()));
  round_to_eight_bits(pool, storage, x.data(), static_cast<std::uint16_t*>(y.data()), rows, columns, format);
  const std::vector<double> want = rounded(x, rows, columns, format);
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(y[i])) << i << ": " << x[i] << " became " << y[i];
    } else {
      ASSERT_EQ(y[i], want[i]) << i << " of " << x[i];
      ASSERT_EQ(std::signbit(y[i]), std::signbit(want[i])) << i;
    }
  }
}

constexpr EightBits kFormats[] = {EightBits::kRowsE4m3, EightBits::kRowsE5m2, EightBits::kColumnsE4m3};

TEST(EightBitOperands, OfEverySize_AreTheDefinitions) {
  for_each_storage([](Storage storage) {
    for (const EightBits format : kFormats) {
      for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 67}, {70, 129}, {5, 1024}}) {
        SCOPED_TRACE(rows);
        std::vector<float> values = random_values(static_cast<std::size_t>(rows * columns), 7);
        // From far below the least code of their row to its largest, so that all of a code's places are rounded at.
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(values[i], -static_cast<int>(i % 17));
        expect_rounded(storage, Array(storage, values), rows, columns, format);
      }
    }
  });
}

TEST(EightBitOperands, BetweenTwoCodes_GoToTheNearestAndTiesToEven) {
  for_each_target([] {
    for (const EightBits format : kFormats) {
      std::vector<float> values;  // halves and quarters of units beside every code, and the largest number once a line
      for (int code = 0; code < 512; ++code) {
        values.push_back(std::ldexp(static_cast<float>(code) + 0.5F, -9));
        values.push_back(std::ldexp(-static_cast<float>(code) - 0.25F, -3));
        values.push_back(255.0F);
        values.push_back(-0.0F);
      }
      const auto rows = static_cast<std::int64_t>(values.size() / 32);
      expect_rounded(Storage::kFloat32, Array(Storage::kFloat32, values), rows, 32, format);
    }
  });
}

TEST(EightBitOperands, WithWhatIsNotFinite_AreNanThereAndWhatIsPastTheRange) {
  for_each_target([] {
    for (const EightBits format : kFormats) {
      std::vector<float> values = random_values(40 * 40, 3, 400.0F);
      values[41] = std::numeric_limits<float>::infinity();
      values[130] = std::numeric_limits<float>::quiet_NaN();
      values[531] = -std::numeric_limits<float>::infinity();
      expect_rounded(Storage::kFloat32, Array(Storage::kFloat32, values), 40, 40, format);
    }
  });
}

}  // namespace
}  // namespace rondo::devices::cpu::testing
