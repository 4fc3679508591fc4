// Recorders' mistakes are named by op and tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lists.h"

namespace rondo::devices {
namespace {

using testing::HasSubstr;
using testing_lists::chain_of_adds;
using testing_lists::one_attention;
using testing_lists::one_matmul;
using testing_lists::tensor;

std::string complaint(const OpList& list) {
  const absl::Status status = validate(list);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  return std::string(status.message());
}

TEST(Validate, GoodLists_Pass) {
  EXPECT_TRUE(validate(chain_of_adds(16, 8, 3)).ok());
  EXPECT_TRUE(validate(one_matmul(16, 8, 4)).ok());
  EXPECT_TRUE(validate(one_attention(16, 2, 8)).ok());
}

TEST(Validate, MatMulIntoHeads_Passes) {
  OpList list = one_matmul(16, 8, 12);
  list.tensors[2].shape = {16, 3, 4};
  EXPECT_TRUE(validate(list).ok()) << validate(list);
}

TEST(Validate, WrongInnerDimension_NamesOpAndTensor) {
  OpList list = one_matmul(16, 8, 12);
  list.tensors[1].shape = {12, 9};
  EXPECT_THAT(complaint(list), HasSubstr("op 0 (matmul): tensor 'x' has shape [16, 8], expected [16, 9]"));
}

TEST(Validate, MissingRead_StatesTheCounts) {
  OpList list = one_matmul(16, 8, 12);
  list.ops[0].attributes = MatMulAttributes{1.0F, true, false};
  EXPECT_THAT(complaint(list), HasSubstr("expected 3 reads and 1 writes, found 2 and 1"));
}

TEST(Validate, WrongAttributes_AreNamed) {
  OpList list = one_matmul(16, 8, 12);
  list.ops[0].attributes = NoAttributes{};
  EXPECT_THAT(complaint(list), HasSubstr("attributes"));
}

TEST(Validate, ScratchReadBeforeItIsWritten_IsNamed) {
  OpList list = chain_of_adds(16, 8, 3);
  list.ops = {list.ops[1], list.ops[0], list.ops[2]};
  EXPECT_THAT(complaint(list), HasSubstr("op 0 (add) reads tensor 't0' before anything wrote it"));
}

TEST(Validate, TensorWrittenTwice_IsNamed) {
  OpList list = chain_of_adds(16, 8, 3);
  list.ops.push_back(list.ops.back());
  EXPECT_THAT(complaint(list), HasSubstr("op 3 (add) writes tensor 'y', which was written or read before"));
}

TEST(Validate, GradientAddedTwice_Passes) {
  OpList list;
  list.tokens = 16;
  const TensorId dy = tensor(list, "dy", {16, 4}, DType::kBfloat16, TensorRole::kInput);
  const TensorId db = tensor(list, "db", {4}, DType::kFloat32, TensorRole::kGradient);
  list.ops.push_back({OpKind::kBiasGradient, NoAttributes{}, {dy}, {db}});
  list.ops.push_back({OpKind::kBiasGradient, NoAttributes{}, {dy}, {db}});
  EXPECT_TRUE(validate(list).ok()) << validate(list);
  list.tensors[db].dtype = DType::kBfloat16;
  EXPECT_THAT(complaint(list), HasSubstr("tensor 'db' is bf16, expected fp32"));
}

TEST(Validate, ChoicesOfExperts_HaveTheirBiasAndGroups) {
  OpList list;
  list.tokens = 16;
  const TensorId logits = tensor(list, "logits", {16, 6}, DType::kBfloat16, TensorRole::kInput);
  const TensorId bias = tensor(list, "bias", {6}, DType::kFloat32, TensorRole::kWeight);
  const TensorId bounds =
      tensor(list, "bounds", {18}, DType::kInt32, TensorRole::kBatch, static_cast<std::uint32_t>(BatchTensor::kBounds));
  const TensorId shares = tensor(list, "shares", {16, 2}, DType::kFloat32, TensorRole::kScratch);
  const TensorId experts = tensor(list, "experts", {16, 2}, DType::kInt32, TensorRole::kScratch);
  const TensorId rows = tensor(list, "rows", {16, 2}, DType::kInt32, TensorRole::kScratch);
  const TensorId offsets = tensor(list, "offsets", {7}, DType::kInt32, TensorRole::kScratch);
  list.ops.push_back({OpKind::kRoute,
                      RouteAttributes{.normalised = true, .sigmoid = true, .has_bias = true},
                      {logits, bounds, bias},
                      {shares, experts, rows, offsets}});
  EXPECT_TRUE(validate(list).ok()) << validate(list);
  const auto complaint_of = [&](const RouteAttributes& route) {
    list.ops[0].attributes = route;
    return complaint(list);
  };
  EXPECT_THAT(complaint_of({.has_bias = true, .groups = 4}), HasSubstr("op 0 (route): 6 experts in 4 groups"));
  EXPECT_THAT(complaint_of({.has_bias = true, .groups = 6}), HasSubstr("6 experts in 6 groups"));
  EXPECT_THAT(complaint_of({.has_bias = true, .groups = 2, .chosen_groups = 3}), HasSubstr("3 of 2 groups"));
  EXPECT_THAT(complaint_of({.has_bias = true, .groups = 2, .chosen_groups = 0}), HasSubstr("0 of 2 groups"));
  EXPECT_THAT(complaint_of({}), HasSubstr("op 0 (route)"));
  list.tensors[bias].dtype = DType::kBfloat16;
  EXPECT_THAT(complaint_of({.has_bias = true}), HasSubstr("bias"));
}

TEST(Validate, MagnitudesInBf16_AreNamed) {
  OpList list;
  list.tokens = 16;
  const TensorId w = tensor(list, "w", {6, 8}, DType::kBfloat16, TensorRole::kWeight);
  const TensorId a = tensor(list, "a", {3, 8}, DType::kBfloat16, TensorRole::kWeight);
  const TensorId b = tensor(list, "b", {6, 3}, DType::kBfloat16, TensorRole::kWeight);
  const TensorId m = tensor(list, "m", {6}, DType::kFloat32, TensorRole::kWeight);
  const TensorId scale = tensor(list, "scale", {6}, DType::kFloat32, TensorRole::kOutput);
  const TensorId inverse = tensor(list, "inverse", {6}, DType::kFloat32, TensorRole::kOutput);
  list.ops.push_back({OpKind::kMagnitudeScale, MagnitudeAttributes{2.0F}, {w, a, b, m}, {scale, inverse}});
  EXPECT_TRUE(validate(list).ok()) << validate(list);
  EXPECT_EQ(cost_of(list, 1).flops, 2.0 * 6 * 8 * (3 + 1));
  list.tensors[m].dtype = DType::kBfloat16;
  EXPECT_THAT(complaint(list), HasSubstr("op 0 (magnitude_scale): tensor 'm' is bf16, expected fp32"));
  list.tensors[m].dtype = DType::kFloat32;
  list.tensors[b].shape = {6, 4};
  EXPECT_THAT(complaint(list), HasSubstr("tensor 'b' has shape [6, 4], expected [6, 3]"));
}

TEST(Validate, LossOverAVocabulary_IsOfItsLastPartAndHasItsScale) {
  OpList list;
  list.tokens = 16;
  const TensorId x = tensor(list, "x", {16, 8}, DType::kFloat16, TensorRole::kInput);
  const TensorId targets = tensor(list, "targets", {16}, DType::kInt32, TensorRole::kBatch, 2);
  const TensorId w = tensor(list, "w", {100, 8}, DType::kFloat16, TensorRole::kWeight);
  const TensorId scale = tensor(list, "scale", {1}, DType::kFloat32, TensorRole::kBatch, 5);
  const TensorId loss = tensor(list, "loss", {1}, DType::kFloat64, TensorRole::kLoss);
  const TensorId dx = tensor(list, "dx", {16, 8}, DType::kFloat16, TensorRole::kOutput);
  VocabularyAttributes attributes{100, 0, 1, true, false, true};
  list.ops.push_back({OpKind::kVocabularyLoss, attributes, {x, targets, w, scale}, {loss, dx}});
  EXPECT_TRUE(validate(list).ok()) << validate(list);
  list.tensors[scale].dtype = DType::kFloat16;
  EXPECT_THAT(complaint(list), HasSubstr("tensor 'scale' is fp16, expected fp32"));
  list.tensors[scale].dtype = DType::kFloat32;
  attributes.vocabulary = 120;
  list.ops[0].attributes = attributes;
  EXPECT_THAT(complaint(list), HasSubstr("its parts end at row 100 of 120"));
  attributes = {100, 0, 1, true, false, false};
  list.ops[0].attributes = attributes;
  EXPECT_THAT(complaint(list), HasSubstr("expected 3 reads and 2 writes, found 4 and 2"));
  list.ops[0].attributes = VocabularyAttributes{100, 0, 1, false, true, true};
  EXPECT_THAT(complaint(list), HasSubstr("it gives dw without dx"));
}

TEST(Validate, WriteToAWeight_IsNamed) {
  OpList list = chain_of_adds(16, 8, 2);
  list.tensors[1].role = TensorRole::kWeight;
  EXPECT_THAT(complaint(list), HasSubstr("writes tensor 't0', which is given from outside"));
}

TEST(Validate, UnknownTensor_IsRefused) {
  OpList list = chain_of_adds(16, 8, 2);
  list.ops[1].reads[0] = 77;
  EXPECT_THAT(complaint(list), HasSubstr("names a tensor"));
}

TEST(Validate, HeadsThatDoNotShareOut_AreNamed) {
  OpList list = one_attention(16, 4, 8);
  for (const TensorId id : {1U, 2U}) list.tensors[id].shape = {16, 3, 8};
  EXPECT_THAT(complaint(list), HasSubstr("4 query heads do not share out over 3 key heads"));
}

TEST(Validate, BoundsOfTheWrongLength_AreNamed) {
  OpList list = one_attention(16, 4, 8);
  list.tensors[3].shape = {16};
  EXPECT_THAT(complaint(list), HasSubstr("tensor 'bounds' has shape [16], expected [18]"));
}

/// A part of heads is of as many as there are, or of one.
TEST(Validate, JoinedHeads_AreOfPartsThatFit) {
  OpList list;
  list.tokens = 16;
  const TensorId a = tensor(list, "a", {16, 1, 4}, DType::kFloat32, TensorRole::kInput);
  const TensorId b = tensor(list, "b", {16, 6, 8}, DType::kFloat32, TensorRole::kInput, 1);
  const TensorId y = tensor(list, "y", {16, 6, 20}, DType::kFloat32, TensorRole::kOutput);
  list.ops = {{OpKind::kJoinHeads, NoAttributes{}, {a, b}, {y}}};
  EXPECT_TRUE(validate(list).ok()) << validate(list);
  list.tensors[b].shape = {16, 2, 8};
  EXPECT_THAT(complaint(list), HasSubstr("op 0 (join_heads): tensor 'b' has shape [16, 2, 8], expected [16, 6, 8]"));
  list.tensors[b].shape = {16, 6, 8};
  list.tensors[a].dtype = DType::kBfloat16;
  EXPECT_THAT(complaint(list), HasSubstr("tensor 'a'"));
}

}  // namespace
}  // namespace rondo::devices
