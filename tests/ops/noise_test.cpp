// NEFTune's noise: as large as the length of each sequence asks for, and none on padding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "op_case.h"
#include "rondo/devices/reference/reference.h"

namespace rondo::devices::testing {
namespace {

TEST(Noise, OfEachSequence_IsUniformUpToAmountOverTheRootOfItsNumbers) {
  constexpr std::int64_t kWidth = 512;
  constexpr float kAmount = 5.0F;
  CaseBuilder b(DType::kFloat32, 128);
  b.sequences({96, 1, 24});
  const TensorId keys = b.keys();
  const TensorId x = b.input("x", {128, kWidth}, 0.0);
  const TensorId y = b.output("y", {128, kWidth});
  b.op(OpKind::kNoise, {x, keys, b.bounds()}, {y}, NoiseAttributes{kAmount});
  const OpCase op_case = b.result();
  const CaseMemory memory = *CaseMemory::make(op_case, 3);
  ASSERT_EQ(run_reference(op_case.list, memory.bindings()), absl::OkStatus());
  std::int64_t first = 0;
  for (const std::int64_t length : {96, 1, 24}) {
    const double most = static_cast<double>(kAmount) / std::sqrt(static_cast<double>(length * kWidth));
    const double numbers = static_cast<double>(length * kWidth);
    double squares = 0;
    double largest = 0;
    for (std::int64_t i = first * kWidth; i < (first + length) * kWidth; ++i) {
      const double noise = memory.get(y, i);
      squares += noise * noise;
      largest = std::max(largest, std::abs(noise));
    }
    EXPECT_LE(largest, most * (1 + 0x1p-22));
    EXPECT_GT(largest, most * 0.98);
    EXPECT_NEAR(squares / numbers / (most * most), 1.0 / 3, 5 * std::sqrt(4.0 / 45 / numbers));
    first += length;
  }
  for (std::int64_t i = first * kWidth; i < 128 * kWidth; ++i) ASSERT_EQ(memory.get(y, i), 0.0);
}

}  // namespace
}  // namespace rondo::devices::testing
