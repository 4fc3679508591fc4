// Which products go to a card's matrix units, and the SPIR-V that they run by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "cooperative_code.h"
#include "lowering.h"
#include "op_case.h"

namespace rondo::devices::vulkan {
namespace {

using Code = std::vector<std::uint32_t>;

// Numbers of the SPIR-V registry.
constexpr std::uint32_t kName = 5, kExtension = 10, kCapability = 17, kTypeInt = 21, kTypeFloat = 22, kConstant = 43;
constexpr std::uint32_t kTypeNv = 5358, kLoadNv = 5359, kLengthNv = 5362;
constexpr std::uint32_t kTypeKhr = 4456, kLoadKhr = 4457, kStoreKhr = 4458, kMulAddKhr = 4459;

/// The instructions of a module, each with its number in place of the first word.
std::vector<Code> instructions(std::span<const std::uint32_t> code) {
  std::vector<Code> all;
  for (std::size_t at = 5; at < code.size(); at += code[at] >> 16U) {
    all.emplace_back(code.begin() + static_cast<std::ptrdiff_t>(at),
                     code.begin() + static_cast<std::ptrdiff_t>(at + (code[at] >> 16U)));
    all.back()[0] &= 0xFFFFU;
  }
  return all;
}
std::vector<Code> of_number(const std::vector<Code>& all, std::uint32_t number) {
  std::vector<Code> found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found), [=](const Code& one) { return one[0] == number; });
  return found;
}
bool has_capability(const std::vector<Code>& all, std::uint32_t capability) {
  return std::count(all.begin(), all.end(), Code{kCapability, capability}) == 1;
}
std::set<std::string> extensions(const std::vector<Code>& all) {
  std::set<std::string> names;
  for (const Code& one : of_number(all, kExtension)) names.insert(reinterpret_cast<const char*>(one.data() + 1));
  return names;
}

std::vector<Code> translated(bool bfloat16) {
  const auto code = khr_cooperative_code(code_of(Shader::kMatMulCooperative), bfloat16);
  EXPECT_TRUE(code.ok()) << code.status();
  return code.ok() ? instructions(*code) : std::vector<Code>();
}

TEST(CooperativeCode, OfTheKernel_SaysWhatEachMatrixIsUsedAs) {
  const std::vector<Code> all = translated(false);
  std::map<std::uint32_t, std::uint32_t> numbers;  // constants of 32 bits
  for (const Code& one : of_number(all, kConstant)) numbers[one[2]] = one[3];
  std::map<std::uint32_t, std::uint32_t> use_of;  // by type
  for (const Code& one : of_number(all, kTypeKhr)) {
    ASSERT_EQ(one.size(), 7U);
    use_of[one[1]] = numbers.at(one[6]);
  }
  EXPECT_EQ(use_of.size(), 3U);
  std::map<std::uint32_t, std::uint32_t> type_of;
  for (const Code& one : all) {
    if (one.size() > 2 && one[0] != kName && use_of.contains(one[1])) type_of[one[2]] = one[1];
  }
  const std::vector<Code> products = of_number(all, kMulAddKhr);
  ASSERT_FALSE(products.empty());
  for (const Code& one : products) {
    EXPECT_EQ(use_of.at(type_of.at(one[3])), 0U);
    EXPECT_EQ(use_of.at(type_of.at(one[4])), 1U);
    EXPECT_EQ(use_of.at(type_of.at(one[5])), 2U);
    EXPECT_EQ(use_of.at(one[1]), 2U);
  }
  // A lies by rows, B by columns; the sums are stored by rows. The stride comes behind, and is more than a layout.
  for (const Code& one : of_number(all, kLoadKhr)) {
    EXPECT_EQ(numbers.at(one[4]), use_of.at(one[1]));
    EXPECT_GT(numbers.at(one[5]), 1U);
  }
  for (const Code& one : of_number(all, kStoreKhr)) EXPECT_EQ(numbers.at(one[3]), 0U);
}

TEST(CooperativeCode, OfTheKernel_HasNothingOfTheOtherExtension) {
  for (const bool bfloat16 : {false, true}) {
    SCOPED_TRACE(bfloat16);
    const std::vector<Code> all = translated(bfloat16);
    for (const Code& one : all) EXPECT_FALSE(one[0] >= kTypeNv && one[0] <= kLengthNv) << one[0];
    EXPECT_FALSE(has_capability(all, 5357));
    EXPECT_TRUE(has_capability(all, 6022));
    EXPECT_EQ(has_capability(all, 9), !bfloat16);
    EXPECT_EQ(has_capability(all, 5116), bfloat16);
    EXPECT_EQ(has_capability(all, 5118), bfloat16);
    std::set<std::string> wanted = {"SPV_KHR_cooperative_matrix"};
    if (bfloat16) wanted.insert("SPV_KHR_bfloat16");
    const std::set<std::string> found = extensions(all);
    EXPECT_TRUE(std::includes(found.begin(), found.end(), wanted.begin(), wanted.end()));
    EXPECT_FALSE(found.contains("SPV_NV_cooperative_matrix"));
    std::size_t narrow = 0;
    for (const Code& one : of_number(all, kTypeFloat)) {
      if (one[2] != 16) continue;
      ++narrow;
      EXPECT_EQ(one.size(), bfloat16 ? 4U : 3U);
    }
    EXPECT_EQ(narrow, 1U);
  }
}

TEST(CooperativeCode, EveryIdLiesBelowTheBound) {
  const auto code = khr_cooperative_code(code_of(Shader::kMatMulCooperative), true);
  ASSERT_TRUE(code.ok()) << code.status();
  std::set<std::uint32_t> declared;
  for (const Code& one : instructions(*code)) {
    if (one[0] != kConstant) continue;
    EXPECT_TRUE(declared.insert(one[2]).second) << one[2];
  }
  EXPECT_LT(*declared.rbegin(), (*code)[3]);
}

/// A module of a header and these instructions, whose first word lacks the length.
Code module(const std::vector<Code>& all) {
  Code code = {0x07230203, 0x00010500, 0, 100, 0};
  for (Code one : all) {
    one[0] |= static_cast<std::uint32_t>(one.size()) << 16U;
    code.insert(code.end(), one.begin(), one.end());
  }
  return code;
}

TEST(CooperativeCode, ThatIsMalformed_IsRefused) {
  const Code integer = {kTypeInt, 1, 32, 0};
  const Code matrix = {kTypeNv, 3, 2, 1, 1, 1};
  const std::map<std::string, Code> modules = {
      {"no SPIR-V", {1, 2, 3}},
      {"an instruction is cut", {0x07230203, 0, 0, 9, 0, 0x00050011}},
      {"never multiplied", module({integer, matrix})},
      {"what is no matrix", module({integer, matrix, {5361, 3, 7, 4, 5, 6}})},
      {"used in two ways", module({integer, matrix, {kLoadNv, 3, 4, 8, 9, 10}, {5361, 3, 7, 4, 4, 4}})},
      {"not three operands", module({integer, matrix, {5361, 3, 7, 4, 4}})},
  };
  for (const auto& [why, code] : modules) {
    const auto result = khr_cooperative_code(code, false);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_THAT(std::string(result.status().message()), ::testing::HasSubstr(why));
  }
  // The layout is that of a variable.
  const Code types = {kTypeNv, 13, 2, 1, 1, 1};
  const auto result = khr_cooperative_code(module({integer,
                                                   matrix,
                                                   types,
                                                   {kTypeNv, 23, 2, 1, 1, 1},
                                                   {kLoadNv, 3, 4, 8, 9, 10},
                                                   {kLoadNv, 13, 14, 8, 9, 10},
                                                   {kLoadNv, 23, 24, 8, 9, 10},
                                                   {5361, 23, 7, 4, 14, 24}}),
                                           false);
  EXPECT_THAT(std::string(result.status().message()), ::testing::HasSubstr("a layout is no constant"));
}

/// One product of `storage`, lowered.
Dispatch lowered(DType storage, std::int64_t rows, std::int64_t columns, const MatrixUnits& units) {
  OpList list;
  list.tokens = static_cast<std::uint32_t>(rows);
  list.tensors = {{"x", {rows, 40}, storage, TensorRole::kInput, 0},
                  {"w", {columns, 40}, storage, TensorRole::kWeight, 0},
                  {"y", {rows, columns}, storage, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kMatMul, MatMulAttributes{}, {0, 1}, {2}}};
  Lowering lowering(list, false, false, units);
  EXPECT_TRUE(lowering.lower_all().ok());
  EXPECT_EQ(lowering.dispatches().size(), 1U);
  return lowering.dispatches().front();
}

TEST(MatrixUnitsLowering, ProductsOfTheirTypes_GoThere) {
  MatrixUnits units;
  EXPECT_EQ(lowered(DType::kFloat16, 100, 100, units).shader, Shader::kMatMul);
  units.api = MatrixUnits::Api::kKhr;
  units.float16 = {16, 8, 16};
  units.subgroup_size = 32;
  EXPECT_EQ(lowered(DType::kFloat32, 100, 100, units).shader, Shader::kMatMul);
  EXPECT_EQ(lowered(DType::kBfloat16, 100, 100, units).shader, Shader::kMatMul);
  EXPECT_EQ(lowered(DType::kFloat16, 8, 100, units).shader, Shader::kMatMul);
  const Dispatch wide = lowered(DType::kFloat16, 100, 100, units);
  EXPECT_EQ(wide.shader, Shader::kMatMulCooperative);
  EXPECT_EQ(wide.groups, (std::array<std::uint32_t, 3>{4, 2, 1}));  // of 32 columns and 64 rows
  EXPECT_EQ(wide.constants[18], 128U);                              // invocations
  const Dispatch slim = lowered(DType::kFloat16, 100, 16, units);
  EXPECT_EQ(slim.groups, (std::array<std::uint32_t, 3>{1, 2, 1}));  // of 16 columns
  units.bfloat16 = {16, 16, 16};
  EXPECT_EQ(lowered(DType::kBfloat16, 100, 100, units).shader, Shader::kMatMulCooperative);
}

/// Products of a head's loss and its two gradients.
std::ptrdiff_t products_on_units(const char* name, DType storage) {
  MatrixUnits units;
  units.api = MatrixUnits::Api::kKhr;
  units.float16 = units.bfloat16 = {16, 16, 16};
  units.subgroup_size = 32;
  for (const testing::OpDescription& description : testing::op_descriptions()) {
    if (std::string(description.name) != name) continue;
    const testing::OpCase op_case = description.make(storage, testing::Scale::kOdd);
    Lowering lowering(op_case.list, false, false, units);
    EXPECT_TRUE(lowering.lower_all().ok());
    return std::ranges::count(lowering.dispatches(), Shader::kMatMulCooperative, &Dispatch::shader);
  }
  ADD_FAILURE() << name;
  return 0;
}

/// Their gradients come as fp32, which scaled for fp16 may be more than it holds.
TEST(MatrixUnitsLowering, GradientsOfLogits_AreRoundedWhereTheTypeHoldsThem) {
  EXPECT_EQ(products_on_units("CrossEntropy", DType::kBfloat16), 3);
  EXPECT_EQ(products_on_units("CrossEntropy", DType::kFloat16), 3);
  EXPECT_EQ(products_on_units("CrossEntropy_Scaled", DType::kBfloat16), 3);
  EXPECT_EQ(products_on_units("CrossEntropy_Scaled", DType::kFloat16), 1);
  EXPECT_EQ(products_on_units("CrossEntropy", DType::kFloat32), 0);
}

}  // namespace
}  // namespace rondo::devices::vulkan
