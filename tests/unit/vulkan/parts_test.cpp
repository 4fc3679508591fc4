// Every op on a Vulkan card in parts: the bits of the whole, under the validation layer. What is cut of which work, and
// where, is in submissions_test.cpp.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>

#include "comparison.h"
#include "every_op.h"
#include "expert_descriptions.h"
#include "heads_case.h"
#include "program.h"
#include "rondo/base/status.h"
#include "rondo/devices/reference/reference.h"
#include "vulkan_case.h"

namespace rondo::devices::testing {
namespace {

using vulkan::Use;
using vulkan::VulkanOptions;

/// A card opened three times. Five parts are ranges of two dimensions of most grids here.
struct Cards {
  std::unique_ptr<Device> whole;
  std::unique_ptr<Device> parts;
  std::unique_ptr<Device> backwards;
};

absl::StatusOr<Cards> open_cards(VulkanOptions options) {
  const vulkan::CardInfo card = *test::usable_vulkan_card();
  Cards cards;
  RONDO_ASSIGN_OR_RETURN(cards.whole, open_card(card, true, options));
  options.parts = 5;
  RONDO_ASSIGN_OR_RETURN(cards.parts, open_card(card, true, options));
  options.short_submissions = true;
  options.backwards = true;
  RONDO_ASSIGN_OR_RETURN(cards.backwards, open_card(card, true, options));
  return cards;
}

/// What kernels are made for: as cards are found, without memory that is one buffer, and matrix units.
enum class Kernels : std::uint8_t { kAsFound, kSeparate, kUnits, kUnitsForFp16 };
constexpr std::size_t kKinds = 4;

/// One for all cases: the layer takes longer to start than most of them. Closed while its driver is still there.
class SharedCards : public ::testing::Environment {
 public:
  static absl::StatusOr<const Cards*> get(Kernels kernels) {
    absl::StatusOr<Cards>& cards = opened(kernels);
    if (cards.ok() && cards->whole == nullptr) {
      const bool units = kernels == Kernels::kUnits || kernels == Kernels::kUnitsForFp16;
      cards = open_cards({.separate_blocks = kernels == Kernels::kSeparate,
                          .no_bfloat16_units = kernels == Kernels::kUnitsForFp16,
                          .matrix_units = units ? Use::kAlways : Use::kNever});
    }
    if (!cards.ok()) return cards.status();
    return &*cards;
  }
  void TearDown() override {
    for (std::size_t i = 0; i < kKinds; ++i) opened(static_cast<Kernels>(i)) = Cards{};
  }

 private:
  static absl::StatusOr<Cards>& opened(Kernels kernels) {
    static std::array<absl::StatusOr<Cards>, kKinds> opened = {Cards{}, Cards{}, Cards{}, Cards{}};
    return opened[static_cast<std::size_t>(kernels)];
  }
};
const ::testing::Environment* const kShared = ::testing::AddGlobalTestEnvironment(new SharedCards);

std::size_t dispatches_of(Device& device, const OpList& list) {
  const auto program = device.compile(list, plan_arena(list));
  EXPECT_EQ(program.status(), absl::OkStatus());
  return program.ok() ? dynamic_cast<const vulkan::VulkanProgram&>(**program).dispatches() : 0;
}

/// Everything that the case's ops leave. Returns by how many dispatches those in parts are more.
std::size_t expect_bits_of_the_whole(const Cards& cards, const OpCase& op_case) {
  const OpList& list = op_case.list;
  const auto want = CaseMemory::make(op_case, 1);
  EXPECT_EQ(want.status(), absl::OkStatus());
  if (!want.ok()) return 0;
  EXPECT_EQ(run_on_card(*cards.whole, list, *want), absl::OkStatus());
  for (Device* device : {cards.parts.get(), cards.backwards.get()}) {
    const auto got = CaseMemory::make(op_case, 1);
    EXPECT_EQ(run_on_card(*device, list, *got), absl::OkStatus());
    for (std::size_t id = 0; id < list.tensors.size(); ++id) {
      const TensorDesc& tensor = list.tensors[id];
      if (tensor.role == TensorRole::kScratch) continue;
      EXPECT_EQ(
          std::memcmp(got->data(static_cast<TensorId>(id)), want->data(static_cast<TensorId>(id)), tensor.bytes()), 0)
          << "'" << tensor.name << "' depends on the parts" << (device == cards.parts.get() ? "" : ", the last first");
    }
  }
  return dispatches_of(*cards.parts, list) - dispatches_of(*cards.whole, list);
}

class EveryOpInParts : public OpTest {
 protected:
  void SetUp() override {
    if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  }
};

TEST_P(EveryOpInParts, HasTheBitsOfTheWhole) {
  const auto cards = SharedCards::get(Kernels::kAsFound);
  ASSERT_EQ(cards.status(), absl::OkStatus());
  expect_bits_of_the_whole(**cards, op_case());
}
/// What a dispatch is cut by is the same whatever is stored.
INSTANTIATE_TEST_SUITE_P(, EveryOpInParts,
                         ::testing::Combine(::testing::Range<std::size_t>(0, op_descriptions().size()),
                                            ::testing::Values(DType::kFloat32)),
                         name_of_op_test);

/// Of so many workgroups that all of their kernels are cut.
class InParts : public ::testing::TestWithParam<Kernels> {
 protected:
  void SetUp() override {
    if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
    const auto cards = SharedCards::get(GetParam());
    ASSERT_EQ(cards.status(), absl::OkStatus());
    cards_ = *cards;
    const DeviceCaps& caps = cards_->whole->caps();
    if (GetParam() == Kernels::kUnits && caps.matrix_dtypes.empty()) GTEST_SKIP() << "no cooperative matrices";
    if (GetParam() == Kernels::kUnitsForFp16 && !caps.multiplies_by_units(DType::kFloat16)) {
      GTEST_SKIP() << "no cooperative matrices of fp16";
    }
  }
  void expect(const OpCase& op_case, std::size_t more) const {
    EXPECT_GE(expect_bits_of_the_whole(*cards_, op_case), more);
  }

  /// Kernels as found by one type, all others by another.
  static DType storage() { return GetParam() == Kernels::kAsFound ? DType::kFloat32 : DType::kBfloat16; }

  const Cards* cards_ = nullptr;
};

/// Tiles that are not full, of both dimensions of the grid; sums that grow would show one that two parts take.
TEST_P(InParts, Products_HaveTheBitsOfTheWhole) {
  CaseBuilder b(storage(), 300);
  const TensorId x = b.input("x", {300, 40}), w = b.weight("w", {290, 40}), bias = b.weight("bias", {290});
  const TensorId residual = b.input("residual", {300, 290}), y = b.output("y", {300, 290});
  const TensorId dy = b.input("dy", {300, 40}), v = b.weight("v", {40, 290}), dx = b.output("dx", {300, 290});
  const TensorId gradient = b.gradient("gradient", {290, 40});
  const TensorId low = b.weight("low", {16, 40}), narrow = b.output("narrow", {300, 16});
  b.op(OpKind::kMatMul, {x, w, bias, residual}, {y}, MatMulAttributes{0.5F, true, true});
  b.op(OpKind::kMatMulInputGradient, {dy, v}, {dx}, MatMulAttributes{});
  b.op(OpKind::kMatMulWeightGradient, {residual, x}, {gradient}, MatMulAttributes{});
  b.op(OpKind::kMatMul, {x, low}, {narrow}, MatMulAttributes{});
  b.result().reduction = 300;
  expect(b.result(), 4 * 4);
}

/// Of one tile of columns and several groups of tiles of rows: those are the grid's third dimension, where there are
/// groups.
TEST_P(InParts, ProductsOfFewColumns_HaveTheBitsOfTheWhole) {
  CaseBuilder b(storage(), 200);
  const TensorId x = b.input("x", {200, 4096}), w = b.weight("w", {60, 4096}), y = b.output("y", {200, 60});
  b.op(OpKind::kMatMul, {x, w}, {y}, MatMulAttributes{});
  b.result().reduction = 4096;
  expect(b.result(), 3);
}

/// More workgroups than a dimension has, so that they go along two.
TEST_P(InParts, RowsOfAGridOfTwoDimensions_HaveTheBitsOfTheWhole) {
  if (GetParam() != Kernels::kAsFound) GTEST_SKIP() << "the kernel is the same";
  constexpr std::int64_t kRows = 130000;
  CaseBuilder b(storage(), 1);
  const TensorId w = b.weight("w", {kRows, 2}), low = b.weight("a", {1, 2}), high = b.weight("b", {kRows, 1});
  const TensorId m = b.weight("m", {kRows});
  const TensorId factor = b.saved_wide("scale", {kRows}), inverse = b.saved_wide("inverse", {kRows});
  b.result().list.tensors[m].dtype = DType::kFloat32;
  b.op(OpKind::kMagnitudeScale, {w, low, high, m}, {factor, inverse}, MagnitudeAttributes{0.75F});
  expect(b.result(), 5);
}

TEST_P(InParts, ProductsOfExperts_HaveTheBitsOfTheWhole) {
  expect(grouped_case(storage(), {{100, 0, 90, 1, 209}, 31, 75, 268}), 3 * 4);
}

/// Of several heads and of one, by all kernels that there are for their widths.
TEST_P(InParts, Attention_HasTheBitsOfTheWhole) {
  for (const HeadsCase& heads_case :
       {HeadsCase{"Head24", 144, {17, 100, 20}, 4, 2, 24, 0}, HeadsCase{"OneHead_Window", 160, {150}, 1, 1, 16, 21},
        HeadsCase{"Head132", 80, {60, 15}, 1, 1, 132, 0}}) {
    SCOPED_TRACE(heads_case.name);
    expect(case_of(heads_case, storage()), 3 * 4);
  }
}

/// Of parts of a vocabulary, over several chunks of tokens; every fifth token has no target.
TEST_P(InParts, TheLoss_HasTheBitsOfTheWhole) {
  constexpr std::uint32_t kTokens = 1100;
  std::vector<std::int32_t> ids;
  for (std::uint32_t t = 0; t < kTokens; ++t) ids.push_back(t % 5 == 2 ? -100 : static_cast<std::int32_t>(t % 128));
  CaseBuilder b(storage(), kTokens);
  const TensorId x = b.input("x", {kTokens, 72}), targets = b.integers("targets", BatchTensor::kTargets, ids);
  const TensorId low = b.weight("low", {64, 72}, 0.05), high = b.weight("high", {64, 72}, 0.05);
  const TensorId loss = b.output("loss", {1}, DType::kFloat64, TensorRole::kLoss), dx = b.output("dx", {kTokens, 72});
  const TensorId dlow = b.gradient("dlow", {64, 72}), dhigh = b.gradient("dhigh", {64, 72});
  b.op(OpKind::kVocabularyLoss, {x, targets, low, high}, {loss, dx, dlow, dhigh},
       VocabularyAttributes{128, 0, 2, true, true});
  expect(b.result(), 6 * 4);
}

std::string name_of_kernels(const ::testing::TestParamInfo<Kernels>& info) {
  constexpr std::array kNames = {"AsFound", "OfSeparateBlocks", "OfMatrixUnits", "OfMatrixUnitsForFp16"};
  return kNames[static_cast<std::size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(, InParts,
                         ::testing::Values(Kernels::kAsFound, Kernels::kSeparate, Kernels::kUnits,
                                           Kernels::kUnitsForFp16),
                         name_of_kernels);

/// Over several of the ranges that the gradient is made of.
TEST(DeltaRuleInParts, HasTheBitsOfTheWhole) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto cards = SharedCards::get(Kernels::kAsFound);
  ASSERT_EQ(cards.status(), absl::OkStatus());
  constexpr std::int64_t kTokens = 1200;
  CaseBuilder b(DType::kFloat32, kTokens);
  b.sequences({500, 3, 690});
  const Shape of_keys = {kTokens, 2, 8}, of_values = {kTokens, 4, 20}, of_gates = {kTokens, 4};
  const TensorId q = b.input("q", of_keys), k = b.input("k", of_keys), v = b.input("v", of_values);
  const TensorId g = b.wide_input("g", of_gates), betas = b.wide_input("beta", of_gates);
  const TensorId d_o = b.input("do", of_values), o = b.output("o", of_values);
  const TensorId states = b.saved_wide("states", {(kTokens + kDeltaChunk - 1) / kDeltaChunk, 4, 8, 20});
  const TensorId dq = b.output("dq", of_keys), dk = b.output("dk", of_keys), dv = b.output("dv", of_values);
  const TensorId dg = b.saved_wide("dg", of_gates), dbeta = b.saved_wide("dbeta", of_gates);
  b.op(OpKind::kDeltaRule, {q, k, v, g, betas, b.bounds()}, {o, states}, DeltaAttributes{});
  b.op(OpKind::kDeltaRuleBackward, {q, k, v, g, betas, states, b.bounds(), d_o}, {dq, dk, dv, dg, dbeta},
       DeltaAttributes{});
  EXPECT_GE(expect_bits_of_the_whole(**cards, b.result()), 4U * 9);
}

/// A sequence longer than a workgroup walks along in a dispatch, of one narrow head.
constexpr std::uint32_t kLongTokens = 33000;

struct LongSequence {
  CaseBuilder b{DType::kFloat32, kLongTokens};
  TensorId q = b.input("q", {kLongTokens, 1, 4}), k = b.input("k", {kLongTokens, 1, 4});
  TensorId v = b.input("v", {kLongTokens, 1, 3}), o = b.output("o", {kLongTokens, 1, 3});
  TensorId g = b.wide_input("g", {kLongTokens, 1}), beta = b.wide_input("beta", {kLongTokens, 1});
};

void expect_reference(Device& device, LongSequence& of) {
  const OpCase& op_case = of.b.result();
  auto want = CaseMemory::make(op_case, 1);
  auto got = CaseMemory::make(op_case, 2);
  ASSERT_EQ(want.status(), absl::OkStatus());
  ASSERT_EQ(got.status(), absl::OkStatus());
  for (std::int64_t i = 0; i < kLongTokens; ++i) {
    want->set(of.g, i, -0.02 * static_cast<double>(i % 7));
    want->set(of.beta, i, 0.1 * static_cast<double>(i % 11));
  }
  got->copy_from(*want);
  ASSERT_EQ(run_on_card(device, op_case.list, *got), absl::OkStatus());
  ASSERT_EQ(run_reference(op_case.list, want->bindings()), absl::OkStatus());
  const Compared compared{op_case, op_case.list.ops[0], false};
  for (std::size_t id = 0; id < op_case.list.tensors.size(); ++id) {
    expect_close(compared, static_cast<TensorId>(id), *got, *want);
  }
}

TEST(DeltaRuleInParts, OfLongSequences_AgreesWithTheReference) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto cards = SharedCards::get(Kernels::kAsFound);
  ASSERT_EQ(cards.status(), absl::OkStatus());
  LongSequence of;
  of.b.sequences({100, 16284, 16500, 20});
  const TensorId states = of.b.saved_wide("states", {(kLongTokens + kDeltaChunk - 1) / kDeltaChunk, 1, 4, 3});
  of.b.op(OpKind::kDeltaRule, {of.q, of.k, of.v, of.g, of.beta, of.b.bounds()}, {of.o, states}, DeltaAttributes{});
  of.b.result().reduction = kLongTokens;
  expect_reference(*(*cards)->whole, of);
  EXPECT_GE(dispatches_of(*(*cards)->whole, of.b.result().list), 3U);
}

/// From a state, which the end of the sequence leaves behind. The last range is padding.
TEST(DeltaRuleInParts, OfALongSequenceFromAState_AgreesWithTheReference) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto cards = SharedCards::get(Kernels::kAsFound);
  ASSERT_EQ(cards.status(), absl::OkStatus());
  for (const std::int32_t position : {0, 7}) {
    LongSequence of;
    std::vector<std::int32_t> positions(kLongTokens);
    std::iota(positions.begin(), positions.end(), position);
    of.b.sequences({32700});
    const TensorId at = of.b.integers("positions", BatchTensor::kPositions, positions);
    const TensorId state = of.b.wide_state("state", {1, 4, 3});
    of.b.op(OpKind::kDeltaRule, {of.q, of.k, of.v, of.g, of.beta, of.b.bounds(), at, state}, {of.o},
            DeltaAttributes{true});
    of.b.result().reduction = kLongTokens;
    expect_reference(*(*cards)->whole, of);
  }
}

}  // namespace
}  // namespace rondo::devices::testing
