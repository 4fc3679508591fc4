// Which products are found to add up to one result, and what the arena keeps for them.
#include "rondo/devices/product_pairs.h"

#include <gtest/gtest.h>

#include <functional>

#include "lists.h"

namespace rondo::devices {
namespace {

using testing_lists::tensor;

constexpr std::int64_t kTokens = 32;
constexpr std::int64_t kWidth = 48;

enum Ids : TensorId { kX, kW, kA, kB, kBase, kLow, kY };

/// y = x w^T + alpha (x a^T) b^T, as a linear layer with an adapter of `rank` is recorded.
OpList adapted_linear(std::int64_t rank = 8) {
  OpList list;
  list.tokens = kTokens;
  tensor(list, "x", {kTokens, 300}, DType::kFloat32, TensorRole::kInput);
  tensor(list, "w", {kWidth, 300}, DType::kFloat32, TensorRole::kWeight);
  tensor(list, "a", {rank, 300}, DType::kFloat32, TensorRole::kWeight, 1);
  tensor(list, "b", {kWidth, rank}, DType::kFloat32, TensorRole::kWeight, 2);
  tensor(list, "base", {kTokens, kWidth}, DType::kFloat32, TensorRole::kScratch);
  tensor(list, "low", {kTokens, rank}, DType::kFloat32, TensorRole::kScratch);
  tensor(list, "y", {kTokens, kWidth}, DType::kFloat32, TensorRole::kOutput);
  list.ops.push_back({OpKind::kMatMul, MatMulAttributes{}, {kX, kW}, {kBase}});
  list.ops.push_back({OpKind::kMatMul, MatMulAttributes{}, {kX, kA}, {kLow}});
  list.ops.push_back({OpKind::kMatMul, MatMulAttributes{2.0F, false, true}, {kLow, kB, kBase}, {kY}});
  return list;
}

TEST(ProductPairs, LinearWithAdapter_IsOnePair) {
  const OpList list = adapted_linear();
  ASSERT_EQ(validate(list), absl::OkStatus());
  const std::vector<ProductPair> pairs = product_pairs(list);
  ASSERT_EQ(pairs.size(), 1U);
  EXPECT_EQ(pairs[0].first, 0U);
  EXPECT_EQ(pairs[0].second, 2U);
  EXPECT_EQ(pairs[0].narrow(), 2U);
  EXPECT_EQ(pairs[0].wide(), 0U);
}

TEST(ProductPairs, WhatLiesBetweenIsNeededOrScaledOrWide_IsNoPair) {
  const std::pair<const char*, std::function<void(OpList&)>> changes[] = {
      {"saved", [](OpList& list) { list.tensors[kBase].role = TensorRole::kSaved; }},
      {"read again",
       [](OpList& list) {
         const TensorId z = tensor(list, "z", {kTokens, kWidth}, DType::kFloat32, TensorRole::kOutput, 1);
         list.ops.push_back({OpKind::kAdd, NoAttributes{}, {kBase, kBase}, {z}});
       }},
      {"scaled", [](OpList& list) { std::get<MatMulAttributes>(list.ops[0].attributes).alpha = 0.5F; }},
      {"no addend",
       [](OpList& list) {
         std::get<MatMulAttributes>(list.ops[2].attributes).has_addend = false;
         list.ops[2].reads.pop_back();
       }},
  };
  for (const auto& [name, change] : changes) {
    OpList list = adapted_linear();
    change(list);
    ASSERT_EQ(validate(list), absl::OkStatus()) << name;
    EXPECT_TRUE(product_pairs(list).empty()) << name;
  }
  EXPECT_EQ(product_pairs(adapted_linear(kNarrowInner)).size(), 1U);
  EXPECT_TRUE(product_pairs(adapted_linear(kNarrowInner + 1)).empty());
}

TEST(ProductPairs, ChainOfGradients_IsPairedTwoByTwo) {
  OpList list;
  list.tokens = kTokens;
  TensorId sum = 0;
  for (int i = 0; i < 4; ++i) {
    const std::int64_t inner = i % 2 == 0 ? 8 : 64;  // an adapter's, then its layer's
    const auto dy = tensor(list, "dy", {kTokens, inner}, DType::kFloat32, TensorRole::kInput, static_cast<unsigned>(i));
    const auto w = tensor(list, "w", {inner, kWidth}, DType::kFloat32, TensorRole::kWeight, static_cast<unsigned>(i));
    const auto dx =
        tensor(list, "dx", {kTokens, kWidth}, DType::kFloat32, i == 3 ? TensorRole::kOutput : TensorRole::kScratch);
    Op op{OpKind::kMatMulInputGradient, MatMulAttributes{1.0F, false, i > 0}, {dy, w}, {dx}};
    if (i > 0) op.reads.push_back(sum);
    list.ops.push_back(op);
    sum = dx;
  }
  ASSERT_EQ(validate(list), absl::OkStatus());
  const std::vector<ProductPair> pairs = product_pairs(list);
  ASSERT_EQ(pairs.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(pairs[i].first, 2 * i);
    EXPECT_EQ(pairs[i].second, 2 * i + 1);
    EXPECT_TRUE(pairs[i].narrow_first);
  }
}

TEST(ProductPairs, OperandsOfTheFirst_StayAliveUntilTheSecond) {
  OpList list = adapted_linear();
  // x in the arena, and a result that would fit into its place.
  list.tensors[kX].role = TensorRole::kScratch;
  list.tensors[kY].role = TensorRole::kScratch;
  const auto given = tensor(list, "given", {kTokens, 300}, DType::kFloat32, TensorRole::kInput);
  const auto out = tensor(list, "out", {kTokens, kWidth}, DType::kFloat32, TensorRole::kOutput);
  list.ops.insert(list.ops.begin(), {OpKind::kAdd, NoAttributes{}, {given, given}, {kX}});
  list.ops.push_back({OpKind::kAdd, NoAttributes{}, {kY, kY}, {out}});
  ASSERT_EQ(validate(list), absl::OkStatus());
  ASSERT_EQ(product_pairs(list).size(), 1U);
  const auto overlap = [&](const ArenaLayout& layout) {
    return layout.offsets[kX] < layout.offsets[kY] + list.tensors[kY].bytes() &&
           layout.offsets[kY] < layout.offsets[kX] + list.tensors[kX].bytes();
  };
  EXPECT_FALSE(overlap(plan_arena(list)));
  std::get<MatMulAttributes>(list.ops[1].attributes).alpha = 0.5F;  // no pair
  EXPECT_TRUE(overlap(plan_arena(list)));
}

}  // namespace
}  // namespace rondo::devices
