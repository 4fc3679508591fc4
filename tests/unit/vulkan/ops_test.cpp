// Every op on a Vulkan card against the reference, in fp32 and bf16, each op on the reference's own inputs, under the
// validation layer; and the same bits whichever part of the work comes first.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "both_orders.h"
#include "comparison.h"
#include "every_op.h"
#include "expert_descriptions.h"
#include "rondo/base/status.h"
#include "rondo/devices/reference/reference.h"
#include "vulkan_case.h"

namespace rondo::devices::testing {
namespace {

class EveryOp : public OpTest {
 protected:
  void SetUp() override {
    if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  }
};

TEST_P(EveryOp, OnVulkan_AgreesWithTheReference) {
  const auto card = shared_card();
  ASSERT_EQ(card.status(), absl::OkStatus());
  expect_reference(**card, op_case());
}

INSTANTIATE_TEST_SUITE_P(, EveryOp, every_op(), name_of_op_test);

class ProductsByMatrixUnits : public OnMatrixUnits {};

/// Descriptions with products, of which the head's loss is one.
std::vector<std::size_t> with_products() {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < op_descriptions().size(); ++i) {
    const OpCase op_case = op_descriptions()[i].make(DType::kFloat16, Scale::kOdd);
    const auto is_product = [](const Op& op) {
      return op.kind == OpKind::kMatMul || op.kind == OpKind::kGroupedMatMul || op.kind == OpKind::kVocabularyLoss;
    };
    if (std::ranges::any_of(op_case.list.ops, is_product)) all.push_back(i);
  }
  return all;
}
class EveryOpByMatrixUnits : public OnMatrixUnits, public ::testing::WithParamInterface<OpTest::ParamType> {};

TEST_P(EveryOpByMatrixUnits, AgreesWithTheReference) {
  const auto& [description, storage] = GetParam();
  expect(op_descriptions()[description].make(storage, Scale::kOdd));
}
INSTANTIATE_TEST_SUITE_P(, EveryOpByMatrixUnits,
                         ::testing::Combine(::testing::ValuesIn(with_products()),
                                            ::testing::Values(DType::kBfloat16, DType::kFloat16)),
                         name_of_op_test);

/// In the sizes of a model.
TEST_F(ProductsByMatrixUnits, OfWholeTiles_AgreeWithTheReference) {
  for (const OpDescription& description : op_descriptions()) {
    if (std::string_view(description.name) != "MatMul_LowRankOut") continue;  // others are large
    for (const DType storage : {DType::kBfloat16, DType::kFloat16}) {
      SCOPED_TRACE(name_of(storage));
      expect(description.make(storage, Scale::kModel));
    }
  }
}

/// Of so many rows and columns that workgroups take large tiles, the last of which are not full.
TEST_F(ProductsByMatrixUnits, OfLargeTiles_AgreeWithTheReference) {
  for (const DType storage : {DType::kBfloat16, DType::kFloat16}) {
    SCOPED_TRACE(name_of(storage));
    CaseBuilder b(storage, 1030);
    const TensorId x = b.input("x", {1030, 72}), w = b.weight("w", {1100, 72}), bias = b.weight("bias", {1100});
    const TensorId residual = b.input("residual", {1030, 1100}), y = b.output("y", {1030, 1100});
    const TensorId dy = b.input("dy", {1030, 40}), v = b.weight("v", {40, 1100}), dx = b.output("dx", {1030, 1100});
    const TensorId wide = b.input("wide", {1030, 1030}), gradient = b.gradient("gradient", {1100, 1030});
    b.op(OpKind::kMatMul, {x, w, bias, residual}, {y}, MatMulAttributes{0.5F, true, true});
    b.op(OpKind::kMatMulInputGradient, {dy, v}, {dx}, MatMulAttributes{});
    b.op(OpKind::kMatMulWeightGradient, {residual, wide}, {gradient}, MatMulAttributes{});
    b.result().reduction = 1030;
    expect(b.result());
  }
}

/// The loss over two parts of a vocabulary, large enough to be scaled; every fifth token has no target. All rows of the
/// gradients are sums of as many large terms.
OpCase scaled_loss(DType storage, std::uint32_t tokens, double loss_scale) {
  std::vector<std::int32_t> ids;
  for (std::uint32_t t = 0; t < tokens; ++t) ids.push_back(t % 5 == 2 ? -100 : static_cast<std::int32_t>(t % 128));
  CaseBuilder b(storage, tokens);
  const TensorId x = b.input("x", {tokens, 72}), targets = b.integers("targets", BatchTensor::kTargets, ids);
  const TensorId low = b.weight("low", {64, 72}, 0.05), high = b.weight("high", {64, 72}, 0.05);
  const TensorId loss = b.output("loss", {1}, DType::kFloat64, TensorRole::kLoss), dx = b.output("dx", {tokens, 72});
  const TensorId dlow = b.gradient("dlow", {64, 72}), dhigh = b.gradient("dhigh", {64, 72});
  std::vector<TensorId> reads = {x, targets, low, high};
  if (loss_scale > 0) reads.push_back(b.loss_scale(loss_scale));
  b.op(OpKind::kVocabularyLoss, reads, {loss, dx, dlow, dhigh},
       VocabularyAttributes{128, 0, 2, true, true, loss_scale > 0});
  b.result().reduction = tokens;
  return b.result();
}

/// Of rows that are those of a list: one chunk that is not full, and three. With the last scale gradients are more than
/// fp16 holds.
TEST_F(ProductsByMatrixUnits, OfTheLoss_AgreeWithTheReference) {
  for (const DType storage : {DType::kBfloat16, DType::kFloat16}) {
    for (const std::uint32_t tokens : {500U, 1664U}) {
      for (const double loss_scale : {0.0, 131072.0}) {
        SCOPED_TRACE(fmt::format("{}, {} tokens, loss scale {}", name_of(storage), tokens, loss_scale));
        expect(scaled_loss(storage, tokens, loss_scale));
      }
    }
  }
}

/// Operands that fp16 does not hold as they are, of rows that differ much. Results are near one.
TEST_F(ProductsByMatrixUnits, OfNumbersFarFromOne_AgreeWithTheReference) {
  constexpr int kUp = 90;
  constexpr int kDown = -70;
  CaseBuilder b(DType::kBfloat16, 96);
  const TensorId x = b.input("x", {96, 136}), w = b.weight("w", {80, 136}), y = b.output("y", {96, 80});
  b.op(OpKind::kMatMul, {x, w}, {y}, MatMulAttributes{std::ldexp(1.0F, -kUp - kDown)});
  const auto scale = [](CaseMemory& memory, TensorId id, std::size_t rows, std::size_t columns, int exponent) {
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t i = 0; i < columns; ++i) {
        auto* const bits = reinterpret_cast<std::uint16_t*>(memory.data(id)) + row * columns + i;
        const float value = std::bit_cast<float>(static_cast<std::uint32_t>(*bits) << 16U);
        const float scaled = std::ldexp(value, exponent - (row % 3 == 0 ? 12 : 0));
        *bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(scaled) >> 16U);
      }
    }
  };
  expect(b.result(), [&](CaseMemory& memory) {
    scale(memory, x, 96, 136, kUp);
    scale(memory, w, 80, 136, kDown);
  });
}

/// Tiles that are not full, chunks of an expert's rows with and without a rest, experts without rows and one with all.
std::vector<GroupedCase> grouped_cases() {
  std::vector<std::int32_t> of_many;
  for (std::int32_t i = 0; i < 24; ++i) of_many.push_back(i % 5 == 3 ? 0 : 9 * i);
  return {{{0, 200, 0, 57, 1, 0, 222}, 31, 75, 53},
          {{0, 0, 260, 0}, 0, 72, 40},
          {{64, 64, 64, 64}, 64, 128, 96},
          {{700, 5, 1031}, 3, 40, 72},
          {{512, 1024, 513, 0}, 0, 64, 80},
          {{44, 0, 5}, 6, 20, 24},
          {{33, 20, 91}, 1, 30, 17},
          {of_many, 20, 66, 100},
          {{0, 200, 0, 57, 1, 0, 222}, 31, 75, 53, 1.0F, true},
          {{512, 1024, 513, 0}, 0, 64, 80, 0.625F, true},
          {{33, 20, 91}, 1, 32, 16, 2.0F, true}};
}

TEST_F(ProductsByMatrixUnits, OfExperts_AgreeWithTheReference) {
  for (const GroupedCase& grouped : grouped_cases()) {
    for (const DType storage : {DType::kBfloat16, DType::kFloat16}) {
      SCOPED_TRACE(fmt::format("{}, {} to {}", name_of(storage), grouped.in, grouped.out));
      expect(grouped_case(storage, grouped));
    }
  }
}

/// So many that workgroups take large tiles, where subgroups are wide.
TEST_F(ProductsByMatrixUnits, OfLargeTilesOfExperts_AgreeWithTheReference) {
  for (const DType storage : {DType::kBfloat16, DType::kFloat16}) {
    SCOPED_TRACE(name_of(storage));
    expect(grouped_case(storage, {{130, 0, 390, 250}, 20, 260, 1020}));
  }
}

/// Whole tiles and fours: other kernels, or other ways through them, than odd sizes take.
void expect_products_of_whole_tiles(const BothOrders& card) {
  for (const OpDescription& description : op_descriptions()) {
    const std::string name = description.name;
    if (name != "MatMul_LowRankIn" && name != "MatMul_LowRankOut") continue;
    for (const DType storage : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
      SCOPED_TRACE(name + " " + name_of(storage));
      expect_reference(card, description.make(storage, Scale::kModel));
    }
  }
}

TEST(ProductsOfWholeTiles, OnVulkan_AgreeWithTheReference) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto card = shared_card();
  ASSERT_EQ(card.status(), absl::OkStatus());
  expect_products_of_whole_tiles(**card);
}

/// Nine tiles of rows are dealt to two groups; sums that grow would show a tile that two groups take.
TEST(ProductsOfUnevenGroups, OnVulkan_AgreeWithTheReference) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto card = shared_card();
  ASSERT_EQ(card.status(), absl::OkStatus());
  CaseBuilder b(DType::kFloat32, 260);
  const TensorId x = b.input("x", {260, 24}), w = b.weight("w", {72, 24}), y = b.output("y", {260, 72});
  const TensorId wide = b.input("wide", {260, 288}), gradient = b.gradient("gradient", {288, 24});
  b.op(OpKind::kMatMul, {x, w}, {y}, MatMulAttributes{});
  b.op(OpKind::kMatMulWeightGradient, {wide, x}, {gradient}, MatMulAttributes{});
  b.result().reduction = 260;
  expect_reference(**card, b.result());
}

/// Sinks whose share is all or nothing, and scores whose sum has no digits but the sink's, in whole fours of channels.
TEST(Sinks, FarFromTheScores_AgreeWithTheReference) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto card = shared_card();
  ASSERT_EQ(card.status(), absl::OkStatus());
  constexpr std::array kSinks = {0.0, 200.0, -200.0, 87.5};
  constexpr std::array kNormalisers = {0.0, 90.0, -90.0, 87.5, 1e30};
  for (const DType storage : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
    SCOPED_TRACE(name_of(storage));
    CaseBuilder b(storage, kNormalisers.size());
    const Shape heads = {kNormalisers.size(), kSinks.size(), 8};
    const TensorId o = b.input("o", heads), lse = b.wide_input("lse", {heads[0], heads[1]});
    const TensorId sinks = b.weight("sinks", {heads[1]}), dsinks = b.gradient("dsinks", {heads[1]});
    const TensorId with_sink = b.saved("with sink", heads), total = b.saved_wide("total", {heads[0], heads[1]});
    const TensorId d_o = b.input("do", heads);
    b.op(OpKind::kAttentionSink, {o, lse, sinks}, {with_sink, total});
    b.op(OpKind::kAttentionSinkGradient, {with_sink, total, sinks, d_o}, {dsinks});
    expect_reference(**card, b.result(), false, [&](CaseMemory& memory) {
      for (std::size_t i = 0; i < kNormalisers.size() * kSinks.size(); ++i) {
        memory.set(sinks, static_cast<std::int64_t>(i % kSinks.size()), kSinks[i % kSinks.size()]);
        memory.set(lse, static_cast<std::int64_t>(i), kNormalisers[i / kSinks.size()]);
      }
    });
  }
}

/// The delta rule forward and backward, with gates that are given.
struct RecurrentCase {
  std::uint32_t tokens;
  std::vector<std::int32_t> sequences;
  std::int64_t key_heads, heads, size, width;
  Recurrence recurrence = Recurrence::kDeltaRule;
};

void expect_recurrence(const BothOrders& card, DType storage, const RecurrentCase& s,
                       const std::function<double(std::int64_t)>& gate,
                       const std::function<double(std::int64_t)>& beta) {
  CaseBuilder b(storage, s.tokens);
  b.sequences(s.sequences);
  const Shape of_keys = {s.tokens, s.key_heads, s.size}, of_values = {s.tokens, s.heads, s.width};
  const Shape of_gates = {s.tokens, s.heads};
  const TensorId q = b.input("q", of_keys), k = b.input("k", of_keys), v = b.input("v", of_values);
  const TensorId g = b.wide_input("g", of_gates), betas = b.wide_input("beta", of_gates);
  const TensorId d_o = b.input("do", of_values), o = b.output("o", of_values);
  const TensorId states =
      b.saved_wide("states", {(s.tokens + kDeltaChunk - 1) / kDeltaChunk, s.heads, s.size, s.width});
  const TensorId dq = b.output("dq", of_keys), dk = b.output("dk", of_keys), dv = b.output("dv", of_values);
  const TensorId dg = b.saved_wide("dg", of_gates), dbeta = b.saved_wide("dbeta", of_gates);
  DeltaAttributes attributes;
  attributes.recurrence = s.recurrence;
  b.op(OpKind::kDeltaRule, {q, k, v, g, betas, b.bounds()}, {o, states}, attributes);
  b.op(OpKind::kDeltaRuleBackward, {q, k, v, g, betas, states, b.bounds(), d_o}, {dq, dk, dv, dg, dbeta}, attributes);
  b.result().reduction = std::max<std::int64_t>(s.tokens, s.size);
  expect_reference(card, b.result(), false, [&](CaseMemory& memory) {
    for (std::int64_t i = 0; i < s.tokens * s.heads; ++i) {
      memory.set(g, i, gate(i / s.heads));
      memory.set(betas, i, beta(i));
    }
  });
}

/// The largest heads; sizes that no four divides, over several of the ranges that the gradient is made of.
TEST(DeltaRules, OfEverySize_AgreeWithTheReference) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto card = shared_card();
  ASSERT_EQ(card.status(), absl::OkStatus());
  const auto gate = [](std::int64_t token) { return -0.02 * static_cast<double>(token % 7); };
  const auto beta = [](std::int64_t i) { return 0.1 * static_cast<double>(i % 11); };
  expect_recurrence(**card, DType::kBfloat16, {80, {70}, 1, 1, 128, 128}, gate, beta);
  expect_recurrence(**card, DType::kFloat32, {96, {90}, 2, 2, 33, 65}, gate, beta);
  expect_recurrence(**card, DType::kFloat32, {2240, {1100, 3, 1087}, 2, 4, 5, 3}, gate, beta);
  expect_recurrence(**card, DType::kFloat32, {64, {}, 1, 1, 4, 4}, gate, beta);
  constexpr Recurrence kSpace = Recurrence::kStateSpace;
  expect_recurrence(**card, DType::kBfloat16, {80, {70}, 1, 3, 128, 64, kSpace}, gate, beta);
  expect_recurrence(**card, DType::kFloat32, {96, {90}, 1, 17, 33, 65, kSpace}, gate, beta);
  expect_recurrence(**card, DType::kFloat32, {2240, {1100, 3, 1087}, 1, 4, 5, 3, kSpace}, gate, beta);
}

/// All is forgotten, then nothing: differences between sums of gates would have no digits left.
TEST(DeltaRules, OfGatesFarApart_AgreeWithTheReference) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto card = shared_card();
  ASSERT_EQ(card.status(), absl::OkStatus());
  const auto gate = [](std::int64_t token) { return token % 40 == 0 ? -1e30 : token % 80 < 40 ? -90.0 : -0.001; };
  const auto beta = [](std::int64_t i) { return static_cast<double>(i % 3) / 2; };
  expect_recurrence(**card, DType::kFloat32, {208, {200}, 1, 2, 8, 8}, gate, beta);
  expect_recurrence(**card, DType::kFloat32, {208, {200}, 1, 2, 8, 8, Recurrence::kStateSpace}, gate, beta);
}

/// Each expert's weights are a million times as large as those of the one before, as far as their type goes.
void spread_experts(CaseMemory& memory, const OpList& list, const Op& op) {
  for (std::size_t expert = 0; expert < experts_of(op); ++expert) {
    const TensorId w = op.reads[2 + expert];
    if (list.tensors[w].dtype == DType::kFloat16) return;
    for (std::int64_t i = 0; i < list.tensors[w].elements(); ++i) {
      memory.set(w, i, std::ldexp(memory.get(w, i), 20 * static_cast<int>(expert) - 40));
    }
  }
}

/// The bits of a row of its expert are those of the expert's product with all rows.
void expect_bits_of_dense_products(Device& device, const OpCase& op_case, std::size_t place) {
  const Op& op = op_case.list.ops[place];
  const OpList list = single_op(op_case.list, place);
  auto grouped = CaseMemory::make(op_case, 1);
  auto dense = CaseMemory::make(op_case, 1);
  ASSERT_EQ(grouped.status(), absl::OkStatus());
  ASSERT_EQ(dense.status(), absl::OkStatus());
  for (CaseMemory* memory : {&*grouped, &*dense}) spread_experts(*memory, list, op);
  ASSERT_EQ(run_on_card(device, list, *grouped), absl::OkStatus());
  const TensorId out = op.writes[0];
  const TensorDesc& desc = list.tensors[out];
  const auto* const offsets = reinterpret_cast<const std::int32_t*>(grouped->data(op.reads[1]));
  for (std::size_t expert = 0; expert < experts_of(op); ++expert) {
    OpList one = list;
    const bool forward = op.kind == OpKind::kGroupedMatMul;
    const bool added = std::get<GroupAttributes>(op.attributes).has_addend;
    one.ops = {{forward ? OpKind::kMatMul : OpKind::kMatMulInputGradient,
                MatMulAttributes{1.0F, false, added},
                {op.reads[0], op.reads[2 + expert]},
                {out}}};
    if (added) one.ops[0].reads.push_back(op.reads.back());
    ASSERT_EQ(run_on_card(device, one, *dense), absl::OkStatus());
    const Bytes row = desc.bytes() / static_cast<Bytes>(desc.shape[0]);
    const Bytes begin = static_cast<Bytes>(offsets[expert]) * row;
    const Bytes size = static_cast<Bytes>(offsets[expert + 1] - offsets[expert]) * row;
    EXPECT_EQ(std::memcmp(grouped->data(out) + begin, dense->data(out) + begin, size), 0)
        << "expert " << expert << " of '" << desc.name << "'";
  }
}

TEST(GroupedProducts, OfMoreExpertsThanRows_AgreeWithTheReference) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto card = shared_card();
  ASSERT_EQ(card.status(), absl::OkStatus());
  std::vector<std::int32_t> rows(60, 0);
  for (const std::size_t expert : {3U, 4U, 31U, 58U}) rows[expert] = expert == 31 ? 7 : 1;
  for (const DType storage : {DType::kFloat32, DType::kBfloat16}) {
    SCOPED_TRACE(name_of(storage));
    expect_reference(**card, grouped_case(storage, {rows, 2, 24, 20}));
    expect_reference(**card, grouped_case(storage, {std::vector<std::int32_t>(60, 0), 5, 24, 20}));
  }
}

TEST(GroupedProducts, OfEveryRow_AreThoseOfItsExpertAlone) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  for (const Units units : {Units::kNone, Units::kAll, Units::kForFp16}) {
    const auto card = shared_card(units);
    ASSERT_EQ(card.status(), absl::OkStatus());
    for (const DType storage : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
      if (units != Units::kNone && !(*card)->forwards->caps().multiplies_by_units(storage)) continue;
      SCOPED_TRACE(fmt::format("{}, units {}", name_of(storage), static_cast<int>(units)));
      const OpCase op_case = grouped_case(storage, {{100, 0, 90, 1, 209}, 20, 104, 68});
      for (const std::size_t place : {0U, 1U, 2U}) expect_bits_of_dense_products(*(*card)->forwards, op_case, place);
    }
  }
}

/// Most experts have no rows: nothing is added to their gradients, and rows find their expert past such.
TEST(GroupedBias, OfMoreExpertsThanRows_AgreesWithTheReference) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto card = shared_card();
  ASSERT_EQ(card.status(), absl::OkStatus());
  for (const DType storage : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
    SCOPED_TRACE(name_of(storage));
    CaseBuilder b(storage, 8);
    b.sequences({2, 3});
    const Routed routed = add_route(b, 60, 2, {true});
    const TensorId x = b.input("x", {16, 24}), dy = b.input("dy", {16, 24}), y = b.output("y", {16, 24});
    const TensorId bias = b.weight("bias", {60, 24}), db = b.gradient("db", {60, 24});
    b.op(OpKind::kGroupedBias, {x, routed.offsets, bias}, {y});
    b.op(OpKind::kGroupedBiasGradient, {dy, routed.offsets}, {db});
    b.result().reduction = 16;
    expect_reference(**card, b.result());
  }
}

/// As on cards whose memory no view of texels reaches whole.
TEST(ProductsOfWholeTiles, OfSeparateBlocks_AgreeWithTheReference) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto card = open_both({.separate_blocks = true});
  ASSERT_EQ(card.status(), absl::OkStatus());
  expect_products_of_whole_tiles(*card);
}

/// Many groups of scales, and the short last block of odd sizes.
TEST(EncodedWeights, OnVulkan_ExpandToTheReferencesBits) {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto card = shared_card();
  ASSERT_EQ(card.status(), absl::OkStatus());
  std::size_t cases = 0;
  for (const OpDescription& description : op_descriptions()) {
    for (const Scale scale : {Scale::kOdd, Scale::kModel}) {
      for (const DType storage : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
        const OpCase op_case = description.make(storage, scale);
        if (op_case.list.ops[0].kind != OpKind::kExpand) break;
        SCOPED_TRACE(std::string(description.name) + " " + name_of(storage));
        absl::StatusOr<CaseMemory> want = CaseMemory::make(op_case, 1);
        absl::StatusOr<CaseMemory> got = CaseMemory::make(op_case, 2);
        ASSERT_EQ(want.status(), absl::OkStatus());
        ASSERT_EQ(got.status(), absl::OkStatus());
        got->copy_from(*want);
        ASSERT_EQ(run_on_card(*(*card)->forwards, op_case.list, *got), absl::OkStatus());
        ASSERT_EQ(run_reference(op_case.list, want->bindings()), absl::OkStatus());
        const TensorId y = op_case.list.ops[0].writes[0];
        EXPECT_EQ(std::memcmp(got->data(y), want->data(y), op_case.list.tensors[y].bytes()), 0);
        ++cases;
      }
    }
  }
  EXPECT_EQ(cases, 30U);  // five encodings, two sizes and three dtypes each
}

/// llvmpipe says in its name how wide its registers are; a subgroup has an invocation for each 32 bits. Seen with the
/// variable set, as in CMakeLists.txt here: what else runs in that process then had such subgroups.
TEST(Subgroups, OfTheRasteriser_AreAsWideAsIsAskedFor) {
  const char* bits = std::getenv("LP_NATIVE_VECTOR_WIDTH");
  if (bits == nullptr) GTEST_SKIP() << "LP_NATIVE_VECTOR_WIDTH is not set";
  const auto card = test::usable_vulkan_card();
  if (!card || card->name.find("llvmpipe") == std::string::npos) GTEST_SKIP() << "llvmpipe is not the card here";
  EXPECT_THAT(card->name, ::testing::HasSubstr(std::string(bits) + " bits"));
}

/// With guarded_memory.cpp in front of the C library, as in CMakeLists.txt here: what else runs in that process then
/// had such memory.
TEST(Memory, OfTheRasteriser_EndsWhereNothingMayBeRead) {
  const char* loaded = std::getenv("LD_PRELOAD");
  if (loaded == nullptr || std::string_view(loaded).find("rondo_guarded_memory") == std::string_view::npos) {
    GTEST_SKIP() << "LD_PRELOAD does not name it";
  }
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto last_guard = reinterpret_cast<const std::byte* (*)()>(::dlsym(RTLD_DEFAULT, "rondo_last_guard"));
  ASSERT_NE(last_guard, nullptr);
  const auto card = shared_card();
  ASSERT_EQ(card.status(), absl::OkStatus());
  const auto block = (*card)->forwards->allocate(5000, MemoryKind::kDevice);
  ASSERT_EQ(block.status(), absl::OkStatus());
  const std::byte* const guard = last_guard();
  if (guard == nullptr) GTEST_SKIP() << "this driver gets its memory in another way";
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  EXPECT_EQ(::write(ends[1], guard - 1, 1), 1);
  EXPECT_EQ(::write(ends[1], guard, 1), -1);
  EXPECT_EQ(errno, EFAULT);
  for (const int end : ends) ::close(end);
}

}  // namespace
}  // namespace rondo::devices::testing
