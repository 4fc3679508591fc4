// Costs follow from shapes; buckets hold their tokens without much air.
#include "rondo/devices/op.h"

#include <gtest/gtest.h>

#include "lists.h"
#include "rondo/devices/op_shape.h"

namespace rondo::devices {
namespace {

using testing_lists::chain_of_adds;
using testing_lists::one_attention;
using testing_lists::one_matmul;
using testing_lists::tensor;

TEST(CostOf, MatMul_CountsTwoMnk) {
  const OpCost cost = cost_of(one_matmul(48, 32, 96), 48);
  EXPECT_EQ(cost.flops, 2.0 * 48 * 32 * 96);
  EXPECT_EQ(cost.bytes, 4.0 * (48 * 32 + 96 * 32 + 48 * 96));
}

TEST(CostOf, MatMulIntoHeads_CountsLikeTheMatrix) {
  OpList list = one_matmul(48, 32, 96);
  list.tensors[2].shape = {48, 3, 32};
  EXPECT_EQ(cost_of(list, 48).flops, 2.0 * 48 * 32 * 96);
}

TEST(CostOf, MatMulGradients_CostWhatTheForwardDoes) {
  OpList list;
  list.tokens = 48;
  const TensorId dy = tensor(list, "dy", {48, 96}, DType::kBfloat16, TensorRole::kInput);
  const TensorId w = tensor(list, "w", {96, 32}, DType::kBfloat16, TensorRole::kWeight);
  const TensorId x = tensor(list, "x", {48, 32}, DType::kBfloat16, TensorRole::kInput);
  const TensorId dx = tensor(list, "dx", {48, 32}, DType::kBfloat16, TensorRole::kOutput);
  const TensorId dw = tensor(list, "dw", {96, 32}, DType::kFloat32, TensorRole::kGradient);
  list.ops.push_back({OpKind::kMatMulInputGradient, MatMulAttributes{}, {dy, w}, {dx}});
  list.ops.push_back({OpKind::kMatMulWeightGradient, MatMulAttributes{}, {dy, x}, {dw}});
  for (const Op& op : list.ops) EXPECT_EQ(cost_of(list, op, 48).flops, 2.0 * 48 * 32 * 96);
  // The gradient is read and written.
  EXPECT_EQ(cost_of(list, list.ops[1], 48).bytes, 2.0 * (48 * 96 + 48 * 32) + 2 * 4.0 * 96 * 32);
}

TEST(CostOf, Attention_CountsCausally) {
  EXPECT_EQ(cost_of(one_attention(64, 4, 16), 64).flops, 2.0 * 64 * 4 * 16 * 64);
  // Two sequences of 32 cost half as much as one of 64.
  EXPECT_EQ(cost_of(one_attention(64, 4, 16), 32).flops, 2.0 * 64 * 4 * 16 * 32);
}

TEST(CostOf, AttentionWithWindow_CountsTheBandOfTheTriangle) {
  // 64 tokens, window 16: 64 * 16 - 16 * 16 / 2 pairs, 2 products of 2 H D a pair.
  EXPECT_EQ(cost_of(one_attention(64, 4, 16, 16), 64).flops, 4.0 * 4 * 16 * (64 * 16 - 128));
  EXPECT_EQ(cost_of(one_attention(64, 4, 16, 64), 64).flops, cost_of(one_attention(64, 4, 16), 64).flops);
}

TEST(CostOf, VocabularyLoss_CountsAProductForTheLossAndOneForEachGradient) {
  OpList list;
  list.tokens = 16;
  const TensorId x = tensor(list, "x", {16, 8}, DType::kBfloat16, TensorRole::kInput);
  const TensorId w = tensor(list, "w", {100, 8}, DType::kBfloat16, TensorRole::kWeight);
  const TensorId targets = tensor(list, "targets", {16}, DType::kInt32, TensorRole::kBatch, 2);
  const TensorId loss = tensor(list, "loss", {1}, DType::kFloat64, TensorRole::kLoss);
  const TensorId dx = tensor(list, "dx", {16, 8}, DType::kBfloat16, TensorRole::kOutput);
  const TensorId dw = tensor(list, "dw", {100, 8}, DType::kFloat32, TensorRole::kGradient);
  const VocabularyAttributes attributes{100, 0, 1, true, true};
  list.ops.push_back({OpKind::kVocabularyLoss, attributes, {x, targets, w}, {loss, dx, dw}});
  EXPECT_TRUE(validate(list).ok()) << validate(list);
  EXPECT_EQ(cost_of(list, 16).flops, 3 * 2.0 * 16 * 8 * 100);
}

TEST(CostOf, Embedding_ReadsOnlyTheRowsItLooksUp) {
  OpList list;
  list.tokens = 16;
  const TensorId ids = tensor(list, "ids", {16}, DType::kInt32, TensorRole::kBatch, 0);
  const TensorId table = tensor(list, "table", {50000, 8}, DType::kBfloat16, TensorRole::kWeight);
  const TensorId x = tensor(list, "x", {16, 8}, DType::kBfloat16, TensorRole::kOutput);
  list.ops.push_back({OpKind::kEmbedding, EmbeddingAttributes{}, {ids, table}, {x}});
  EXPECT_EQ(cost_of(list, 16).bytes, 16 * 4 + 2 * 16 * 8 * 2.0);
  EXPECT_EQ(cost_of(list, 16).flops, 0.0);
}

TEST(CostOf, ProductOfEightBits_HasTheWorkOfAnyOtherAndConversions) {
  OpList list;
  list.tokens = 16;
  const TensorId x = tensor(list, "x", {16, 8}, DType::kBfloat16, TensorRole::kInput, 0);
  const TensorId w = tensor(list, "w", {32, 8}, DType::kBfloat16, TensorRole::kWeight);
  const TensorId y = tensor(list, "y", {16, 32}, DType::kBfloat16, TensorRole::kOutput);
  list.ops.push_back({OpKind::kMatMul, MatMulAttributes{}, {x, w}, {y}});
  list.ops.push_back({OpKind::kMatMul, MatMulAttributes{.fp8 = Fp8Format::kE4m3}, {x, w}, {y}});
  const OpCost sixteen = cost_of(list, list.ops[0], 16);
  const OpCost eight = cost_of(list, list.ops[1], 16);
  EXPECT_EQ(eight.flops, sixteen.flops);
  EXPECT_EQ(eight.bytes, sixteen.bytes);
  EXPECT_EQ(sixteen.conversion_bytes, 0);
  EXPECT_EQ(eight.conversion_bytes, 2 * (16 * 8 + 32 * 8) + 8 * 16 * 32);
  EXPECT_EQ(cost_of(list, 16).conversion_bytes, eight.conversion_bytes);
  EXPECT_FALSE(shape_of(list, list.ops[0], 16) == shape_of(list, list.ops[1], 16));
}

TEST(CostOf, List_IsTheSumOfItsOps) {
  const OpList list = chain_of_adds(16, 4, 5);
  EXPECT_EQ(cost_of(list, 16).bytes, 5 * 3 * 16 * 4 * 4.0);
}

TEST(TokenBucket, EveryCount_IsHeldByTheSmallestBucketAndAtMostAnEighthIsAir) {
  for (std::uint32_t tokens = 1; tokens < 9000; ++tokens) {
    const std::uint32_t bucket = token_bucket(tokens);
    EXPECT_GE(bucket, tokens);
    EXPECT_EQ(token_bucket(bucket), bucket);
    if (tokens > 128) {
      EXPECT_LE(bucket, tokens + tokens / 8) << tokens;
    }
    if (tokens <= 256) {
      EXPECT_LT(bucket, tokens + 16);
    }
  }
  EXPECT_EQ(token_bucket(0), 16U);
}

}  // namespace
}  // namespace rondo::devices
