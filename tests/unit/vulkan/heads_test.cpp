// Attention of heads of every size: by matrix units, and where there are none wide heads, which go in slices on
// processors that pose as cards.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "both_orders.h"
#include "heads_case.h"
#include "vulkan_card.h"

namespace rondo::devices::testing {
namespace {

class AttentionByMatrixUnits : public OnMatrixUnits {};
class HeadsByMatrixUnits : public OnMatrixUnits, public ::testing::WithParamInterface<std::tuple<HeadsCase, DType>> {};

std::string name_of_heads(const ::testing::TestParamInfo<std::tuple<HeadsCase, DType>>& one) {
  return std::string(std::get<0>(one.param).name) + "_" + name_of(std::get<1>(one.param));
}

TEST_P(HeadsByMatrixUnits, OfEverySize_AgreeWithTheReference) {
  expect(case_of(std::get<0>(GetParam()), std::get<1>(GetParam())));
}

std::vector<HeadsCase> heads_of_units() {
  std::vector<HeadsCase> cases = heads_cases();
  cases.insert(cases.end(), {{"Head8", 80, {33, 40}, 2, 1, 8, 0}, {"Head40", 144, {17, 100, 20}, 4, 2, 40, 0}});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(, HeadsByMatrixUnits,
                         ::testing::Combine(::testing::ValuesIn(heads_of_units()),
                                            ::testing::Values(DType::kBfloat16, DType::kFloat16)),
                         name_of_heads);

/// Scores that grow so much from tile to tile that sums are scaled.
TEST_F(AttentionByMatrixUnits, OfSharpWeights_AgreesWithTheReference) {
  for (const DType storage : {DType::kBfloat16, DType::kFloat16}) {
    for (const std::size_t sharp : {std::size_t{0}, std::size_t{8}}) {
      SCOPED_TRACE(std::string(heads_cases()[sharp].name) + " " + name_of(storage));
      expect(case_of(heads_cases()[sharp], storage, 4));
    }
  }
}

class WideHeads : public ::testing::TestWithParam<std::tuple<HeadsCase, DType>> {};

TEST_P(WideHeads, OnVulkan_AgreeWithTheReference) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto card = shared_card();
  ASSERT_EQ(card.status(), absl::OkStatus());
  expect_reference(**card, case_of(std::get<0>(GetParam()), std::get<1>(GetParam())));
}

/// Of two slices and more, the last of which is narrower or ends within four channels.
std::vector<HeadsCase> wide_heads() {
  return {{"Head132", 48, {17, 29}, 2, 1, 132, 0},
          {"Head150_Window", 40, {40}, 3, 3, 150, 7},
          {"Head192_Cap", 40, {9, 25}, 2, 2, 192, 0, 1.3F},
          {"Head256_Group", 48, {1, 40}, 4, 1, 256, 0},
          {"Head334", 32, {30}, 1, 1, 334, 0},
          {"Head512", 24, {20}, 2, 1, 512, 0}};
}
INSTANTIATE_TEST_SUITE_P(, WideHeads,
                         ::testing::Combine(::testing::ValuesIn(wide_heads()),
                                            ::testing::Values(DType::kFloat32, DType::kBfloat16)),
                         name_of_heads);

}  // namespace
}  // namespace rondo::devices::testing
