// Which products go to a card's matrix units, and the SPIR-V that they run by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "adapted_layer.h"
#include "cooperative_code.h"
#include "expert_descriptions.h"
#include "heads_case.h"
#include "lowering.h"
#include "op_case.h"

namespace rondo::devices::vulkan {
namespace {

using Code = std::vector<std::uint32_t>;

// Numbers of the SPIR-V registry.
constexpr std::uint32_t kName = 5, kExtension = 10, kCapability = 17, kTypeInt = 21, kTypeFloat = 22, kConstant = 43,
                        kSpecConstantOp = 52;
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

std::vector<Shader> kernels_by_units() {
  std::vector<Shader> all;
  for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(Shader::kCount); ++i) {
    if (uses_matrix_units(static_cast<Shader>(i))) all.push_back(static_cast<Shader>(i));
  }
  return all;
}

std::vector<Code> translated(Shader shader, bool bfloat16) {
  const auto code = khr_cooperative_code(code_of(shader), bfloat16);
  EXPECT_TRUE(code.ok()) << code.status();
  return code.ok() ? instructions(*code) : std::vector<Code>();
}

TEST(CooperativeCode, OfProducts_SaysWhatEachMatrixIsUsedAs) {
  const std::vector<Code> all = translated(Shader::kMatMulCooperative, false);
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

void expect_nothing_of_the_other_extension(Shader shader, bool bfloat16) {
  const std::vector<Code> all = translated(shader, bfloat16);
  for (const Code& one : all) {
    EXPECT_FALSE(one[0] >= kTypeNv && one[0] <= kLengthNv) << one[0];
    EXPECT_FALSE(one[0] == kSpecConstantOp && one[3] == kLengthNv);  // is translated nowhere
  }
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

TEST(CooperativeCode, OfEveryKernel_HasNothingOfTheOtherExtension) {
  EXPECT_EQ(kernels_by_units().size(), 4U);
  for (const Shader shader : kernels_by_units()) {
    for (const bool bfloat16 : {false, true}) {
      SCOPED_TRACE(std::string(name_of(shader)) + (bfloat16 ? ", bf16" : ", fp16"));
      expect_nothing_of_the_other_extension(shader, bfloat16);
    }
  }
}

TEST(CooperativeCode, EveryIdLiesBelowTheBound) {
  for (const Shader shader : kernels_by_units()) {
    SCOPED_TRACE(name_of(shader));
    const auto code = khr_cooperative_code(code_of(shader), true);
    ASSERT_TRUE(code.ok()) << code.status();
    std::set<std::uint32_t> declared;
    for (const Code& one : instructions(*code)) {
      if (one[0] != kConstant) continue;
      EXPECT_TRUE(declared.insert(one[2]).second) << one[2];
    }
    EXPECT_LT(*declared.rbegin(), (*code)[3]);
  }
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

MatrixUnits large_card() {
  MatrixUnits units;
  units.api = MatrixUnits::Api::kKhr;
  units.float16 = {16, 16, 16};
  units.subgroup_size = 32;
  units.shared_bytes = 65536;
  units.invocations = 1024;
  return units;
}

/// One product of `storage`, lowered.
Dispatch lowered(DType storage, std::int64_t rows, std::int64_t columns, const MatrixUnits& units) {
  OpList list;
  list.tokens = static_cast<std::uint32_t>(rows);
  list.tensors = {{"x", {rows, 40}, storage, TensorRole::kInput, 0},
                  {"w", {columns, 40}, storage, TensorRole::kWeight, 0},
                  {"y", {rows, columns}, storage, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kMatMul, MatMulAttributes{}, {0, 1}, {2}}};
  Lowering lowering(list, {.units = units});
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
  EXPECT_EQ(lowered(DType::kFloat16, 8, 100, units).shader, Shader::kMatMulFew);
  EXPECT_EQ(lowered(DType::kFloat16, 9, 100, units).shader, Shader::kMatMul);
  const Dispatch wide = lowered(DType::kFloat16, 100, 100, units);
  EXPECT_EQ(wide.shader, Shader::kMatMulCooperative);
  EXPECT_EQ(wide.groups, (std::array<std::uint32_t, 3>{2, 2, 1}));  // of 64 columns and rows
  EXPECT_EQ(wide.constants[18], 256U);                              // invocations: four subgroups across, two down
  const Dispatch slim = lowered(DType::kFloat16, 100, 16, units);
  EXPECT_EQ(slim.groups, (std::array<std::uint32_t, 3>{1, 2, 1}));  // of 32 columns
  units.bfloat16 = {16, 16, 16};
  EXPECT_EQ(lowered(DType::kBfloat16, 100, 100, units).shader, Shader::kMatMulCooperative);
}

/// The largest numbers of both operands are found first.
TEST(MatrixUnitsLowering, ProductsOfBf16OnUnitsForFp16_AreScaled) {
  MatrixUnits units = large_card();
  OpList list;
  list.tokens = 100;
  list.tensors = {{"x", {100, 4096}, DType::kBfloat16, TensorRole::kInput, 0},
                  {"w", {70, 4096}, DType::kBfloat16, TensorRole::kWeight, 0},
                  {"y", {100, 70}, DType::kBfloat16, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kMatMul, MatMulAttributes{}, {0, 1}, {2}}};
  Lowering lowering(list, {.units = units});
  ASSERT_TRUE(lowering.lower_all().ok());
  const std::vector<Dispatch>& all = lowering.dispatches();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].shader, Shader::kLargest);
  EXPECT_EQ(all[0].groups, (std::array<std::uint32_t, 3>{50, 2, 1}));
  EXPECT_EQ(all[1].shader, Shader::kMatMulCooperative);
  EXPECT_EQ(all[1].constants[kProductConstants.scaled], 1U);
  for (std::size_t operand = 0; operand < 2; ++operand) {
    EXPECT_EQ(all[0].push.slots[operand], OpLowering::slot(static_cast<TensorId>(operand)));
    EXPECT_EQ(all[0].push.sizes[operand], operand == 0 ? 100U : 70U);
    EXPECT_EQ(all[0].push.sizes[4 + operand], 4096U);
    EXPECT_EQ(all[1].push.slots[6 + operand], all[0].push.slots[4]);
    EXPECT_EQ(all[1].push.sizes[9 + operand], 50U);
  }
  EXPECT_EQ(all[1].push.sizes[12] - all[1].push.sizes[11], 128U);
  units.bfloat16 = {16, 16, 16};
  Lowering with(list, {.units = units});
  ASSERT_TRUE(with.lower_all().ok());
  ASSERT_EQ(with.dispatches().size(), 1U);
  EXPECT_EQ(with.dispatches()[0].constants[kProductConstants.scaled], 0U);
}

/// The gradient of logits ends with the list of tokens that have a target, behind which anything may lie. What is known
/// of a tensor is not looked for again.
TEST(MatrixUnitsLowering, GradientsOfLogits_AreScaledByWhatIsListed) {
  const auto dispatches = [](DType storage) {
    testing::CaseBuilder b(storage, 512);
    const TensorId x = b.input("x", {512, 72}), w = b.weight("w", {128, 72}),
                   targets = b.integers("targets", BatchTensor::kTargets, std::vector<std::int32_t>(512, 3));
    const TensorId loss = b.output("loss", {1}, DType::kFloat64, TensorRole::kLoss), dx = b.output("dx", {512, 72}),
                   dw = b.gradient("dw", {128, 72});
    b.op(OpKind::kVocabularyLoss, {x, targets, w, b.loss_scale(65536)}, {loss, dx, dw},
         VocabularyAttributes{128, 0, 1, true, true, true});
    const testing::OpCase op_case = b.result();
    Lowering lowering(op_case.list, {.units = large_card()});
    EXPECT_TRUE(lowering.lower_all().ok());
    std::vector<Dispatch> found;
    std::ranges::copy_if(lowering.dispatches(), std::back_inserter(found), [](const Dispatch& dispatch) {
      return dispatch.shader == Shader::kLargest || dispatch.shader == Shader::kMatMulCooperative;
    });
    return found;
  };
  const auto is_search = [](const Dispatch& dispatch, std::uint32_t tensors, bool ends) {
    return dispatch.shader == Shader::kLargest && dispatch.groups[1] == tensors && (dispatch.constants[2] != 0) == ends;
  };
  const auto is_product = [](const Dispatch& dispatch, bool scaled) {
    return dispatch.shader == Shader::kMatMulCooperative &&
           (dispatch.constants[kProductConstants.scaled] != 0) == scaled;
  };
  const std::vector<Dispatch> wide = dispatches(DType::kBfloat16);
  ASSERT_EQ(wide.size(), 5U);
  EXPECT_TRUE(is_search(wide[0], 2, false));  // x and w
  EXPECT_TRUE(is_product(wide[1], true));
  EXPECT_TRUE(is_search(wide[2], 1, true));
  EXPECT_TRUE(is_product(wide[3], true));
  EXPECT_TRUE(is_product(wide[4], true));
  const std::vector<Dispatch> half = dispatches(DType::kFloat16);
  ASSERT_EQ(half.size(), 4U);
  EXPECT_TRUE(is_product(half[0], false));
  EXPECT_TRUE(is_search(half[1], 1, true));
  EXPECT_TRUE(is_product(half[2], true));
  EXPECT_TRUE(is_product(half[3], true));
}

/// Experts' products from 72 to 40 columns and their gradients, lowered.
std::vector<Dispatch> products_of_experts(DType storage, std::vector<std::int32_t> rows, const MatrixUnits& units) {
  const testing::OpCase op_case = testing::grouped_case(storage, {std::move(rows), 4, 72, 40});
  Lowering lowering(op_case.list, {.units = units});
  EXPECT_TRUE(lowering.lower_all().ok());
  return lowering.dispatches();
}
std::vector<Shader> shaders_of(const std::vector<Dispatch>& dispatches) {
  std::vector<Shader> all;
  for (const Dispatch& dispatch : dispatches) all.push_back(dispatch.shader);
  return all;
}

/// There are tiles for whatever each expert gets.
TEST(MatrixUnitsLowering, ProductsOfExperts_GoThereWhereEachHasRowsEnough) {
  const MatrixUnits units = large_card();
  const std::vector<Dispatch> all = products_of_experts(DType::kFloat16, {60, 40, 80}, units);
  EXPECT_EQ(shaders_of(all), std::vector<Shader>(4, Shader::kMatMulCooperative));
  EXPECT_EQ(all[0].constants[23], 1U);                                // groups rows, of which tiles have 64
  EXPECT_EQ(all[0].groups, (std::array<std::uint32_t, 3>{1, 6, 1}));  // two whole ones, three experts, padding
  EXPECT_EQ(all[2].groups, (std::array<std::uint32_t, 3>{2, 6, 1}));
  EXPECT_EQ(all[3].constants[23], 2U);  // the inner extent
  EXPECT_EQ(all[3].groups, (std::array<std::uint32_t, 3>{2, 1, 3}));
  EXPECT_EQ(all[3].push.sizes[6], 512U);
  // Fifteen rows each; gradients of weights have as many as ever.
  const std::vector<Dispatch> few = products_of_experts(DType::kFloat16, {11, 0, 30}, units);
  EXPECT_EQ(shaders_of(few), (std::vector<Shader>{Shader::kMatMulGrouped, Shader::kMatMulGrouped,
                                                  Shader::kMatMulGrouped, Shader::kMatMulCooperative}));
  EXPECT_EQ(shaders_of(products_of_experts(DType::kFloat16, {60, 40, 80}, {})),
            std::vector<Shader>(4, Shader::kMatMulGrouped));
  EXPECT_EQ(shaders_of(products_of_experts(DType::kFloat32, {60, 40, 80}, units)),
            std::vector<Shader>(4, Shader::kMatMulGrouped));
}

/// Each expert's tensor by its own largest number.
TEST(MatrixUnitsLowering, ProductsOfExpertsInBf16OnUnitsForFp16_AreScaled) {
  testing::OpCase op_case = testing::grouped_case(DType::kBfloat16, {{300, 100}, 0, 72, 80});
  Lowering lowering(op_case.list, {.units = large_card()});
  ASSERT_TRUE(lowering.lower_all().ok());
  const std::vector<Dispatch>& all = lowering.dispatches();
  const std::vector<Shader> one = {Shader::kLargest, Shader::kLargest, Shader::kMatMulCooperative};
  std::vector<Shader> want;
  for (int product = 0; product < 3; ++product) want.insert(want.end(), one.begin(), one.end());
  want.insert(want.end(), {Shader::kLargest, Shader::kMatMulCooperative});
  ASSERT_EQ(shaders_of(all), want);
  EXPECT_EQ(all[1].constants[4], 1U);
  EXPECT_EQ(all[1].groups[1], 2U);
  EXPECT_EQ(all[1].push.sizes[0], 80U);
  EXPECT_EQ(all[1].push.sizes[4], 72U);
  EXPECT_EQ(all[2].push.slots[6], all[0].push.slots[4]);
  EXPECT_EQ(all[2].push.slots[7], all[1].push.slots[4]);
  EXPECT_EQ(all[2].push.slots[9], all[1].push.slots[9]);
  EXPECT_EQ(all[2].constants[kProductConstants.scaled], 1U);
  EXPECT_EQ(all[9].groups[1], 2U);  // both operands of the gradient of weights at once
  EXPECT_EQ(all[9].constants[4], 0U);
  EXPECT_EQ(
      shaders_of(products_of_experts(DType::kBfloat16, {60, 40, 80}, large_card())),  // reading twice does not pay
      std::vector<Shader>(4, Shader::kMatMulGrouped));
}

/// An adapter's product and its layer's: nothing is rounded that the smaller one would be lost in.
TEST(ProductLowering, OfAPair_AddsTheWideOneToTheNarrowOne) {
  constexpr std::size_t kAddend = 8;
  constexpr std::size_t kAccumulate = 9;
  const OpList list = test::adapted_layer(DType::kBfloat16);
  Lowering lowering(list, {});
  ASSERT_TRUE(lowering.lower_all().ok());
  const std::vector<Dispatch>& all = lowering.dispatches();
  ASSERT_EQ(all.size(), 2U);
  const auto slot = [](TensorId id) { return OpLowering::slot(id); };
  EXPECT_EQ(all[0].push.slots[0], slot(test::kLayerLow));
  EXPECT_EQ(all[0].push.slots[2], slot(test::kLayerZ));
  EXPECT_EQ(all[0].push.factors[0], 2.0F);
  EXPECT_EQ(all[0].constants[kAddend] + all[0].constants[kAccumulate], 0U);
  EXPECT_EQ(all[1].push.slots[0], slot(test::kLayerX));
  EXPECT_EQ(all[1].push.slots[2], slot(test::kLayerZ));
  EXPECT_EQ(all[1].push.slots[4], slot(test::kLayerMore));
  EXPECT_EQ(all[1].constants[kAddend], 1U);
  EXPECT_EQ(all[1].constants[kAccumulate], 1U);
  EXPECT_EQ(all[1].push.sizes[6], 320U);  // in one chunk
}

TEST(MatrixUnitsTiling, OfLargeProducts_IsLargeWhereTheCardHasRoom) {
  const auto groups = [](const MatrixUnits& units, std::int64_t rows, std::int64_t columns) {
    const MatrixUnits::Tiling tiling = units.tiling(units.float16, rows, columns);
    EXPECT_TRUE(units.fits(units.float16, tiling));
    return std::array{tiling.rows(units.float16), tiling.columns(units.float16),
                      tiling.parts_m * tiling.parts_n * units.subgroup_size};
  };
  using Groups = std::array<std::uint32_t, 3>;
  MatrixUnits units;
  units.api = MatrixUnits::Api::kKhr;
  units.float16 = {16, 16, 16};
  units.shared_bytes = 49152;
  units.invocations = 1024;
  for (const std::uint32_t size : {32U, 64U}) {
    SCOPED_TRACE(size);
    units.subgroup_size = size;
    EXPECT_EQ(groups(units, 4096, 4096), (Groups{128, 128, 256}));
    EXPECT_EQ(groups(units, 1024, 1000), (Groups{128, 128, 256}));
    EXPECT_EQ(groups(units, 1024, 512), (Groups{64, 64, 4 * size}));   // 32 workgroups
    EXPECT_EQ(groups(units, 65536, 160), (Groups{64, 64, 4 * size}));  // a third would be past the end
    EXPECT_EQ(groups(units, 65536, 16), (Groups{64, 32, 4 * size}));
  }
  units.subgroup_size = 16;  // of few registers
  EXPECT_EQ(groups(units, 4096, 4096), (Groups{64, 64, 64}));
  units.subgroup_size = 32;
  units.float16 = {8, 8, 16};
  EXPECT_EQ(groups(units, 4096, 4096), (Groups{128, 128, 256}));
  units.shared_bytes = 16384;
  EXPECT_EQ(groups(units, 4096, 4096), (Groups{64, 64, 512}));
  units.shared_bytes = 65536;
  units.float16 = {48, 16, 16};  // 128 is none of its multiples
  EXPECT_EQ(groups(units, 4096, 4096), (Groups{96, 64, 64}));
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
    Lowering lowering(op_case.list, {.units = units});
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

/// Attention and its gradient, lowered.
std::vector<Dispatch> attention(DType storage, std::int64_t width, const MatrixUnits& units, float cap = 0) {
  const testing::OpCase op_case = testing::case_of({"", 96, {96}, 4, 2, width, 0, cap}, storage);
  Lowering lowering(op_case.list, {.units = units});
  EXPECT_TRUE(lowering.lower_all().ok());
  return lowering.dispatches();
}
std::vector<Shader> shaders_of_attention(DType storage, std::int64_t width, const MatrixUnits& units) {
  std::vector<Shader> all;
  for (const Dispatch& dispatch : attention(storage, width, units)) all.push_back(dispatch.shader);
  return all;
}

const std::vector<Shader> kAttentionByUnits = {Shader::kAttentionUnits, Shader::kAttentionDelta,
                                               Shader::kAttentionQueryUnits, Shader::kAttentionKeyUnits};
const std::vector<Shader> kAttentionByTiles = {Shader::kAttention, Shader::kAttentionDelta,
                                               Shader::kAttentionQueryGradient, Shader::kAttentionKeyGradient};

TEST(MatrixUnitsLowering, CappedAttention_GoesThereWithItsCap) {
  for (const float cap : {0.0F, 1.5F}) {
    for (const Dispatch& dispatch : attention(DType::kFloat16, 64, large_card(), cap)) {
      if (dispatch.shader == Shader::kAttentionDelta) continue;
      EXPECT_EQ(dispatch.constants.at(11), cap > 0 ? 1U : 0U);
      EXPECT_EQ(dispatch.push.factors[1], cap);
    }
  }
}

TEST(MatrixUnitsLowering, AttentionOfTheirTypes_GoesThere) {
  const MatrixUnits units = large_card();
  EXPECT_EQ(shaders_of_attention(DType::kFloat16, 64, units), kAttentionByUnits);
  EXPECT_EQ(shaders_of_attention(DType::kFloat16, 72, units), kAttentionByUnits);
  EXPECT_EQ(shaders_of_attention(DType::kFloat16, 128, units), kAttentionByUnits);
  EXPECT_EQ(shaders_of_attention(DType::kFloat16, 64, {}), kAttentionByTiles);
  EXPECT_EQ(shaders_of_attention(DType::kFloat32, 64, units), kAttentionByTiles);
  EXPECT_EQ(shaders_of_attention(DType::kBfloat16, 64, {}), kAttentionByTiles);
  EXPECT_EQ(shaders_of_attention(DType::kFloat16, 60, units), kAttentionByTiles);  // no eights
}

/// What its tensors are scaled by is found once forward and once for both gradients.
TEST(MatrixUnitsLowering, AttentionOfBf16OnUnitsForFp16_IsScaled) {
  const std::vector<Dispatch> all = attention(DType::kBfloat16, 64, large_card());
  ASSERT_EQ(all.size(), 6U);
  EXPECT_EQ(all[0].shader, Shader::kLargest);
  EXPECT_EQ(all[0].groups[1], 3U);
  EXPECT_EQ(all[1].shader, Shader::kAttentionUnits);
  EXPECT_EQ(all[1].push.slots[6], all[0].push.slots[4]);
  EXPECT_EQ(all[3].shader, Shader::kLargest);
  EXPECT_EQ(all[3].groups[1], 4U);
  EXPECT_EQ(all[4].shader, Shader::kAttentionQueryUnits);
  EXPECT_EQ(all[4].push.slots[8], all[3].push.slots[4]);
  EXPECT_EQ(all[5].shader, Shader::kAttentionKeyUnits);
  EXPECT_EQ(all[5].push.slots[9], all[3].push.slots[4]);
  EXPECT_TRUE(all[5].beside);
  for (const std::size_t place : {1U, 4U, 5U}) {
    EXPECT_EQ(all[place].constants[kAttentionConstants.scaled], 1U);
    EXPECT_EQ(all[place].push.sizes[4], all[place == 1 ? 0 : 3].groups[0]);
  }
}

TEST(MatrixUnitsLowering, Attention_IsCutToWhatTheCardHas) {
  MatrixUnits units = large_card();
  const std::vector<Dispatch> all = attention(DType::kFloat16, 64, units);
  ASSERT_EQ(all.size(), 4U);
  // 64 queries, 32 queries and 32 keys a workgroup, two subgroups across and two down; reads ahead.
  EXPECT_EQ(all[0].constants, (Constants{kFloat16Storage, 64, 32, 16, 16, 16, 2, 2, 128, 1, 0, 0}));
  EXPECT_EQ(all[0].groups, (std::array<std::uint32_t, 3>{2, 4, 1}));
  EXPECT_EQ(all[2].constants, (Constants{kFloat16Storage, 64, 32, 16, 16, 16, 2, 1, 128, 1, 0, 0}));
  EXPECT_EQ(all[2].groups, (std::array<std::uint32_t, 3>{3, 4, 1}));
  EXPECT_EQ(all[3].groups, (std::array<std::uint32_t, 3>{3, 2, 1}));  // heads of keys
  // A gradient holds the rows of two tensors.
  units.shared_bytes = 32768;
  EXPECT_EQ(shaders_of_attention(DType::kFloat16, 64, units), kAttentionByUnits);
  std::vector<Shader> forward_alone = kAttentionByTiles;
  forward_alone[0] = Shader::kAttentionUnits;
  EXPECT_EQ(shaders_of_attention(DType::kFloat16, 128, units), forward_alone);
  // Four small tiles make 32 columns; narrow subgroups have no registers for what is under way.
  units = large_card();
  units.float16 = {8, 8, 16};
  units.subgroup_size = 8;
  EXPECT_EQ(attention(DType::kFloat16, 64, units)[0].constants,
            (Constants{kFloat16Storage, 64, 32, 8, 8, 16, 4, 2, 64, 0, 0, 0}));
  units.invocations = 32;
  EXPECT_EQ(shaders_of_attention(DType::kFloat16, 64, units), kAttentionByTiles);
}

}  // namespace
}  // namespace rondo::devices::vulkan
