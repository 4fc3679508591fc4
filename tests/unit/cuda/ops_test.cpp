// Every op on a CUDA device through the contract, against the reference: on the fake card everywhere, on the first real
// card where there is one.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "check_case.h"
#include "expert_descriptions.h"
#include "fp8_case.h"
#include "rule_cases.h"

namespace rondo::devices::testing {
namespace {

using Parameter = std::tuple<std::size_t, DType>;
std::string name_of_case(const ::testing::TestParamInfo<Parameter>& instance) {
  return std::string(op_descriptions()[std::get<0>(instance.param)].name) + "_" + name_of(std::get<1>(instance.param));
}
const auto kAllCases = ::testing::Combine(::testing::Range<std::size_t>(0, op_descriptions().size()),
                                          ::testing::Values(DType::kFloat32, DType::kBfloat16, DType::kFloat16));

OpCase case_of(const Parameter& parameter, Scale scale) {
  return op_descriptions()[std::get<0>(parameter)].make(std::get<1>(parameter), scale);
}

/// At odd sizes the longest heads alone are of whole eights, which go by the matrix units.
void check_odd(Device& device, const Parameter& parameter) {
  const OpCase op_case = case_of(parameter, Scale::kOdd);
  const std::string name = op_descriptions()[std::get<0>(parameter)].name;
  check_case(device, op_case, {.narrow_attention = name == "Attention_Wide"});
}

class CudaOps : public ::testing::TestWithParam<Parameter> {};

TEST_P(CudaOps, OnTheFakeCard_AgreeWithTheReference) {
  cuda::testing::reset_fake();
  auto device = cuda::testing::open_fake({});
  ASSERT_EQ(device.status(), absl::OkStatus());
  check_odd(**device, GetParam());
}
INSTANTIATE_TEST_SUITE_P(, CudaOps, kAllCases, name_of_case);

/// Of each op that adds to gradients: set in place of whatever is there they are what is added to zeros. Returns how
/// many.
std::size_t check_set_gradients(Device& device, const OpCase& op_case) {
  std::size_t found = 0;
  const auto is_gradient = [&](TensorId id) { return op_case.list.tensors[id].role == TensorRole::kGradient; };
  for (std::size_t place = 0; place < op_case.list.ops.size(); ++place) {
    const Op& op = op_case.list.ops[place];
    if (std::ranges::none_of(op.writes, is_gradient)) continue;
    ++found;
    SCOPED_TRACE(name_of(op.kind));
    const OpList list = single_op(op_case.list, place);
    std::vector<CaseMemory> results;
    for (const bool sets : {false, true}) {
      results.push_back(*CaseMemory::make(op_case, 1));
      CaseMemory& memory = results.back();
      for (const TensorId id : op.writes) {
        if (!is_gradient(id)) continue;
        std::memset(memory.data(id), sets ? 0xFF : 0, op_case.list.tensors[id].bytes());  // NaN
      }
      Loaded loaded(device, op_case.list);
      loaded.upload(memory);
      loaded.run(list, sets);
      loaded.download(memory);
    }
    for (const TensorId id : op.writes) {
      if (!is_gradient(id)) continue;
      for (std::int64_t i = 0; i < op_case.list.tensors[id].elements(); ++i) {
        EXPECT_EQ(results[0].get(id, i), results[1].get(id, i)) << op_case.list.tensors[id].name << " " << i;
        if (::testing::Test::HasFailure()) return found;
      }
    }
  }
  return found;
}

void check_set_gradients(Device& device) {
  ASSERT_TRUE(device.caps().sets_gradients);
  std::size_t found = 0;
  for (const OpDescription& description : op_descriptions()) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16}) {
      SCOPED_TRACE(std::string(description.name) + " " + name_of(storage));
      found += check_set_gradients(device, description.make(storage, Scale::kOdd));
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GE(found, 10U);
}

TEST(CudaGradients, ThatAreSetOnTheFakeCard_AreWhatIsAddedToZeros) {
  cuda::testing::reset_fake();
  auto device = cuda::testing::open_fake({});
  ASSERT_EQ(device.status(), absl::OkStatus());
  check_set_gradients(**device);
}

/// Every number is its operations, each rounded: there is nothing to be near to.
void expect_reference_bits(Device& device, const OpCase& op_case) {
  absl::StatusOr<CaseMemory> want = CaseMemory::make(op_case, 1);
  absl::StatusOr<CaseMemory> got = CaseMemory::make(op_case, 2);
  ASSERT_EQ(want.status(), absl::OkStatus());
  ASSERT_EQ(got.status(), absl::OkStatus());
  Loaded loaded(device, op_case.list);
  ASSERT_NO_FATAL_FAILURE(loaded.upload(*want));
  ASSERT_NO_FATAL_FAILURE(loaded.run(op_case.list));
  ASSERT_NO_FATAL_FAILURE(loaded.download(*got));
  ASSERT_EQ(run_reference(op_case.list, want->bindings()), absl::OkStatus());
  const TensorId y = op_case.list.ops[0].writes[0];
  EXPECT_EQ(std::memcmp(got->data(y), want->data(y), op_case.list.tensors[y].bytes()), 0);
}

/// The short last block of odd sizes, and many groups of scales.
void expand_all(Device& device) {
  std::size_t cases = 0;
  for (const OpDescription& description : op_descriptions()) {
    for (const Scale scale : {Scale::kOdd, Scale::kModel}) {
      for (const DType storage : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
        const OpCase op_case = description.make(storage, scale);
        if (op_case.list.ops[0].kind != OpKind::kExpand) break;
        SCOPED_TRACE(std::string(description.name) + " " + name_of(storage));
        expect_reference_bits(device, op_case);
        ++cases;
      }
    }
  }
  EXPECT_EQ(cases, 30U);  // five encodings, two sizes and three dtypes each
}

TEST(CudaEncodedWeights, OnTheFakeCard_ExpandToTheReferencesBits) {
  cuda::testing::reset_fake();
  auto device = cuda::testing::open_fake({});
  ASSERT_EQ(device.status(), absl::OkStatus());
  expand_all(**device);
}

void check_fp8(Device& device, const Allowing& allowing = {}) {
  for (const Fp8Case& one : fp8_cases()) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16}) {
      for (const Fp8Format format : {Fp8Format::kE4m3, Fp8Format::kHybrid}) {
        SCOPED_TRACE(std::string(one.name) + " " + name_of(storage) + (format == Fp8Format::kHybrid ? " hybrid" : ""));
        check_case(device, case_of(one, storage, format), allowing);
      }
    }
  }
}

TEST(CudaFp8, OnTheFakeCard_AgreesWithTheReference) {
  cuda::testing::reset_fake();
  auto device = cuda::testing::open_fake({});
  ASSERT_EQ(device.status(), absl::OkStatus());
  ASSERT_TRUE((*device)->caps().fp8);
  check_fp8(**device);
}

TEST(CudaFp8, RowsAndColumnsOfUnlikeSizes_HavePowersOfTheirOwn) {
  cuda::testing::reset_fake();
  auto device = cuda::testing::open_fake({});
  ASSERT_EQ(device.status(), absl::OkStatus());
  const OpCase op_case = case_of(kUnlike, DType::kFloat32);
  check_case(**device, op_case, {}, [&](CaseMemory& memory) { make_unlike(op_case, memory); });
}

TEST(CudaFp8, OnAnEarlierCard_IsRefusedByName) {
  auto device = open_fake_of(8, 6);
  ASSERT_EQ(device.status(), absl::OkStatus());
  EXPECT_FALSE((*device)->caps().fp8);
  const OpList list = case_of(fp8_cases()[0], DType::kBfloat16).list;
  const absl::Status status = (*device)->compile(list, plan_arena(list)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("'w'"), std::string::npos) << status;
}

/// Products and biases of a group in sizes that tiles do not divide: experts of several tiles, of one row and of none,
/// padding.
struct GroupCase {
  const char* name;
  std::uint32_t tokens;
  std::vector<std::int32_t> sequences;
  std::int64_t experts, choices, in, out;
  double spread;  // of logits; 0: the first experts get everything
};
void PrintTo(const GroupCase& group_case, std::ostream* stream) { *stream << group_case.name; }
const std::vector<GroupCase> kGroupCases = {
    {"SeveralTiles", 300, {180, 110}, 3, 2, 264, 152, 1.0},
    {"OneHasAll", 1060, {1060}, 3, 1, 136, 40, 0.0},
    {"Most", 24, {20}, kMostExperts, kMostChoices, 40, 24, 1.0},
    {"OneExpert", 130, {129}, 1, 1, 8, 16, 1.0},
    {"PaddingAlone", 16, {}, 4, 2, 16, 8, 1.0},
};

OpCase case_of(const GroupCase& group, DType storage) {
  CaseBuilder b(storage, group.tokens);
  b.sequences(group.sequences);
  const std::int64_t rows = group.tokens * group.choices;
  const TensorId offsets = add_route(b, group.experts, group.choices, {true}, group.spread).offsets;
  const TensorId x = b.input("x", {rows, group.in});
  const TensorId dy = b.input("dy", {rows, group.out});
  const TensorId addend = b.input("addend", {rows, group.in});
  std::vector<TensorId> forward = {x, offsets};
  std::vector<TensorId> backward = {dy, offsets};
  std::vector<TensorId> gradients;
  for (std::int64_t e = 0; e < group.experts; ++e) {
    forward.push_back(b.weight("w", {group.out, group.in}, 1.0 / std::sqrt(static_cast<double>(group.in))));
    backward.push_back(forward.back());
    gradients.push_back(b.gradient("dw", {group.out, group.in}));
  }
  b.op(OpKind::kGroupedMatMul, forward, {b.output("y", {rows, group.out})}, GroupAttributes{});
  b.op(OpKind::kGroupedMatMulInputGradient, backward, {b.output("dx", {rows, group.in})}, GroupAttributes{});
  backward.push_back(addend);
  b.op(OpKind::kGroupedMatMulInputGradient, backward, {b.output("more dx", {rows, group.in})}, GroupAttributes{true});
  b.op(OpKind::kGroupedMatMulWeightGradient, {dy, x, offsets}, gradients, GroupAttributes{});
  const TensorId bias = b.weight("bias", {group.experts, group.out});
  b.op(OpKind::kGroupedBias, {dy, offsets, bias}, {b.output("biased", {rows, group.out})});
  b.op(OpKind::kGroupedBiasGradient, {dy, offsets}, {b.gradient("db", {group.experts, group.out})});
  b.result().reduction = std::max({group.in, group.out, rows});
  return b.result();
}

class CudaGroups : public ::testing::TestWithParam<GroupCase> {};

void check_group(const GroupCase& group, int major, int minor) {
  auto device = open_fake_of(major, minor);
  ASSERT_EQ(device.status(), absl::OkStatus());
  for (const DType storage : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
    SCOPED_TRACE(name_of(storage));
    check_case(**device, case_of(group, storage));
  }
  check_set_gradients(**device, case_of(group, DType::kBfloat16));
}

TEST_P(CudaGroups, ByMatrixUnitsOfTheFakeCard_AgreeWithTheReference) { check_group(GetParam(), 8, 9); }
TEST_P(CudaGroups, WithoutMatrixUnits_AgreeWithTheReference) { check_group(GetParam(), 7, 5); }
INSTANTIATE_TEST_SUITE_P(, CudaGroups, ::testing::ValuesIn(kGroupCases),
                         [](const auto& one) { return std::string(one.param.name); });

/// What a model that went astray gives still leads each token to experts that there are, and each row to one token.
TEST(CudaRoute, OfLogitsThatAreNoNumbers_SendsTokensToExpertsThatDiffer) {
  cuda::testing::reset_fake();
  auto device = cuda::testing::open_fake({});
  ASSERT_EQ(device.status(), absl::OkStatus());
  const GroupCase group{"", 12, {9}, 5, 3, 8, 8, 1.0};
  const OpCase op_case = case_of(group, DType::kFloat32);
  const OpList list = single_op(op_case.list, 0);
  absl::StatusOr<CaseMemory> memory = CaseMemory::make(op_case, 1);
  ASSERT_EQ(memory.status(), absl::OkStatus());
  const Op& route = list.ops[0];
  auto* logits = reinterpret_cast<float*>(memory->data(route.reads[0]));
  for (std::size_t i = 0; i < 60; ++i) {
    if (i % 7 == 1 || i / 5 == 2 || i == 21) logits[i] = std::nanf("");
    if (i % 11 == 3) logits[i] = i % 2 == 0 ? -INFINITY : INFINITY;
  }
  Loaded loaded(**device, op_case.list);
  ASSERT_NO_FATAL_FAILURE(loaded.upload(*memory));
  ASSERT_NO_FATAL_FAILURE(loaded.run(list));
  ASSERT_NO_FATAL_FAILURE(loaded.download(*memory));
  const auto* experts = reinterpret_cast<const std::int32_t*>(memory->data(route.writes[1]));
  const auto* rows = reinterpret_cast<const std::int32_t*>(memory->data(route.writes[2]));
  const auto* offsets = reinterpret_cast<const std::int32_t*>(memory->data(route.writes[3]));
  std::vector<int> taken(36, 0);
  for (std::size_t i = 0; i < 36; ++i) {
    ASSERT_TRUE(rows[i] >= 0 && rows[i] < 36);
    ++taken[static_cast<std::size_t>(rows[i])];
    if (i >= 27) continue;
    ASSERT_TRUE(experts[i] >= 0 && experts[i] < 5);
    EXPECT_TRUE(rows[i] >= offsets[experts[i]] && rows[i] < offsets[experts[i] + 1]);
    for (std::size_t j = i / 3 * 3; j < i; ++j) EXPECT_NE(experts[i], experts[j]);
  }
  EXPECT_EQ(taken, std::vector<int>(36, 1));
  EXPECT_EQ(offsets[5], 27);
}

void check_rule(Device& device, const RuleCase& rule, DType storage) {
  const RuleOps ops = case_of(rule, storage);
  check_case(device, ops.op_case, {}, [&](CaseMemory& memory) {
    if (rule.far_gates) set_far_gates(rule, ops, memory);
  });
}

class CudaRules : public ::testing::TestWithParam<RuleCase> {};

TEST_P(CudaRules, OnTheFakeCard_AgreeWithTheReference) {
  auto device = open_fake_of(7, 5);
  ASSERT_EQ(device.status(), absl::OkStatus());
  for (const DType storage : {DType::kFloat32, DType::kBfloat16}) {
    SCOPED_TRACE(name_of(storage));
    check_rule(**device, GetParam(), storage);
  }
}
INSTANTIATE_TEST_SUITE_P(, CudaRules, ::testing::ValuesIn(kRuleCases),
                         [](const auto& one) { return std::string(one.param.name); });

/// Sums over several chunks of tokens, of more heads than a block takes.
TEST(CudaGates, OfManyTokensOnTheFakeCard_AgreeWithTheReference) {
  auto device = open_fake_of(7, 5);
  ASSERT_EQ(device.status(), absl::OkStatus());
  for (const Recurrence recurrence : {Recurrence::kDeltaRule, Recurrence::kStateSpace}) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16})
      check_case(**device, gates_case(storage, recurrence));
  }
}

/// As text is generated: linear attention goes on from its states by one token, at a model's sizes.
TEST(CudaRulesOfOneToken, OnTheFakeCard_GoOnFromTheState) {
  auto device = open_fake_of(7, 5);
  ASSERT_EQ(device.status(), absl::OkStatus());
  std::size_t found = 0;
  for (const OpDescription& description : op_descriptions()) {
    const OpCase op_case = description.make(DType::kBfloat16, Scale::kModel);
    const auto* delta = std::get_if<DeltaAttributes>(&op_case.list.ops.back().attributes);
    if (delta == nullptr || !delta->has_state) continue;
    SCOPED_TRACE(description.name);
    check_case(**device, op_case);
    ++found;
  }
  EXPECT_EQ(found, 13U);
}

class CudaEncodedWeightsOnHardware : public OnHardware {};
class CudaFp8OnHardware : public OnHardware {};
class CudaGroupsOnHardware : public OnHardware {};
class CudaGradientsOnHardware : public OnHardware {};
class CudaRulesOnHardware : public OnHardware {};
class CudaOpsOnHardware : public OnHardware, public ::testing::WithParamInterface<Parameter> {};

TEST_F(CudaGroupsOnHardware, OfEverySize_AgreeWithTheReference) {
  for (const GroupCase& group : kGroupCases) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
      SCOPED_TRACE(std::string(group.name) + " " + name_of(storage));
      check_case(*device_, case_of(group, storage));
    }
    check_set_gradients(*device_, case_of(group, DType::kBfloat16));
  }
}

TEST_F(CudaFp8OnHardware, OfEverySize_AgreesWithTheReference) {
  if (!device_->caps().fp8) GTEST_SKIP() << "the card is of an earlier compute capability than 8.9";
  check_fp8(*device_, {.short_sums = true});
}

TEST_F(CudaGradientsOnHardware, ThatAreSet_AreWhatIsAddedToZeros) { check_set_gradients(*device_); }

TEST_F(CudaRulesOnHardware, OfEverySize_AgreeWithTheReference) {
  for (const RuleCase& rule : kRuleCases) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
      SCOPED_TRACE(std::string(rule.name) + " " + name_of(storage));
      check_rule(*device_, rule, storage);
    }
  }
}

TEST_F(CudaRulesOnHardware, OfManyTokens_HaveTheGatesOfTheReference) {
  for (const Recurrence recurrence : {Recurrence::kDeltaRule, Recurrence::kStateSpace}) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16})
      check_case(*device_, gates_case(storage, recurrence));
  }
}

TEST_F(CudaEncodedWeightsOnHardware, OfEveryEncoding_ExpandToTheReferencesBits) { expand_all(*device_); }

TEST_P(CudaOpsOnHardware, AtOddSizes_AgreeWithTheReference) { check_odd(*device_, GetParam()); }
/// What a model has: rows that are whole numbers of 16 bytes, tiles that are full. Not what the reference takes minutes
/// for.
TEST_P(CudaOpsOnHardware, AtModelSizes_AgreeWithTheReference) {
  const OpCase op_case = case_of(GetParam(), Scale::kModel);
  double flops = 0;
  for (const Op& op : op_case.list.ops) flops += cost_of(op_case.list, op, op_case.list.tokens).flops;
  if (flops > 3e9) GTEST_SKIP() << "the reference would take minutes: " << flops << " FLOPs in plain loops";
  check_case(*device_, op_case, {.narrow_attention = true});
}
INSTANTIATE_TEST_SUITE_P(, CudaOpsOnHardware, kAllCases, name_of_case);

}  // namespace
}  // namespace rondo::devices::testing
