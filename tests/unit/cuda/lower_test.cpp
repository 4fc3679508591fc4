// Which steps ops become: chunks and their order, who makes a product, what is refused by name.
#include "lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapted_layer.h"
#include "kernels/params.h"
#include "kernels/product.h"
#include "rondo/devices/product_pairs.h"

namespace rondo::devices::cuda {
namespace {

using ::testing::HasSubstr;

/// A library of products that has what a case says.
class FakeEngine final : public ProductEngine {
 public:
  absl::StatusOr<std::uint32_t> plan(const ProductShape& shape) override {
    if (refuses || (refuses_scales && shape.has_scales)) return absl::NotFoundError("no");
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (shapes[i] == shape) return static_cast<std::uint32_t>(i);
    }
    shapes.push_back(shape);
    return static_cast<std::uint32_t>(shapes.size() - 1);
  }
  absl::Status run(std::uint32_t, const Operands&, DevicePointer, StreamHandle) override { return absl::OkStatus(); }
  Bytes workspace_bytes(std::uint32_t plan) const override { return workspaces.empty() ? 0 : workspaces[plan]; }
  std::string name() const override { return "fake"; }

  bool refuses = false;
  bool refuses_scales = false;
  std::vector<ProductShape> shapes;
  std::vector<Bytes> workspaces;  // by plan; none: no plan needs any
};

OpList weight_gradient(std::int64_t tokens, DType x_type) {
  OpList list;
  list.tokens = static_cast<std::uint32_t>(tokens);
  list.tensors = {{"dy", {tokens, 24}, DType::kBfloat16, TensorRole::kInput, 0},
                  {"x", {tokens, 16}, x_type, TensorRole::kInput, 1},
                  {"dw", {24, 16}, DType::kFloat32, TensorRole::kGradient, 0}};
  list.ops = {{OpKind::kMatMulWeightGradient, MatMulAttributes{}, {0, 1}, {2}}};
  return list;
}

/// y = x w^T in eight bits and the gradient of its input.
OpList eight_bits(Fp8Format format) {
  OpList list;
  list.tokens = 32;
  list.tensors = {{"x", {32, 64}, DType::kBfloat16, TensorRole::kInput, 0},
                  {"w", {48, 64}, DType::kBfloat16, TensorRole::kWeight, 0},
                  {"y", {32, 48}, DType::kBfloat16, TensorRole::kOutput, 0},
                  {"dy", {32, 48}, DType::kBfloat16, TensorRole::kInput, 1},
                  {"dx", {32, 64}, DType::kBfloat16, TensorRole::kOutput, 1}};
  list.ops = {{OpKind::kMatMul, MatMulAttributes{.fp8 = format}, {0, 1}, {2}},
              {OpKind::kMatMulInputGradient, MatMulAttributes{.fp8 = format}, {3, 1}, {4}}};
  return list;
}

TEST(CudaLower_Fp8, WhereTheLibraryScalesSums_IsOneProductWithTheScalesOfBothOperands) {
  FakeEngine engine;
  const auto steps = lower(eight_bits(Fp8Format::kHybrid), {.engine = &engine, .fp8 = true, .fp8_scales = true});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(engine.shapes.size(), 2U);
  EXPECT_EQ(engine.shapes[0].operands, Storage::kE4m3);
  EXPECT_EQ(engine.shapes[1].operands, Storage::kE5m2);
  std::size_t products = 0;
  for (const Step& step : steps->steps) {
    const auto* product = std::get_if<ProductStep>(&step);
    if (product == nullptr) continue;
    const ProductShape& shape = engine.shapes[products++];
    EXPECT_TRUE(shape.has_scales);
    EXPECT_EQ(shape.result, Storage::kBfloat16);
    EXPECT_TRUE(shape.b_transposed);
    EXPECT_EQ(product->row_scales.kind, Place::Kind::kWorkspace);
    EXPECT_EQ(product->column_scales.kind, Place::Kind::kWorkspace);
    EXPECT_NE(product->row_scales.offset, product->column_scales.offset);
    EXPECT_EQ(product->c.kind, Place::Kind::kTensor);
  }
  EXPECT_EQ(products, 2U);
}

TEST(CudaLower_Fp8, WhereTheLibraryRefusesScales_SumsInFp32AreScaledByAKernel) {
  FakeEngine engine;
  engine.refuses_scales = true;
  const auto steps = lower(eight_bits(Fp8Format::kE4m3), {.engine = &engine, .fp8 = true, .fp8_scales = true});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(engine.shapes.size(), 2U);
  for (const ProductShape& shape : engine.shapes) {
    EXPECT_FALSE(shape.has_scales);
    EXPECT_EQ(shape.result, Storage::kFloat32);
  }
  EXPECT_TRUE(std::holds_alternative<LaunchStep>(steps->steps.back()));
}

/// Of x [rows, 16] and a weight, where no library has it.
absl::StatusOr<Steps> lowered_product(std::int64_t rows) {
  OpList list;
  list.tokens = static_cast<std::uint32_t>(rows);
  list.tensors = {{"x", {rows, 16}, DType::kFloat32, TensorRole::kInput, 0},
                  {"w", {16, 16}, DType::kFloat32, TensorRole::kWeight, 0},
                  {"y", {rows, 16}, DType::kFloat32, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kMatMul, MatMulAttributes{}, {0, 1}, {2}}};
  return lower(list, {});
}

TEST(CudaLower_Grids, LargerThanCardsTake_AreRefusedByOpAndTokens) {
  constexpr std::int64_t kMost = 65535;
  const auto largest = lowered_product(kMost * kTile);
  ASSERT_EQ(largest.status(), absl::OkStatus());
  EXPECT_EQ(std::get<LaunchStep>(largest->steps[0]).grid_y, kMost);
  const absl::Status status = lowered_product(kMost * kTile + 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  for (const std::string& part : {std::string(name_of(OpKind::kMatMul)), std::to_string(kMost * kTile + 1),
                                  std::string("65536 blocks"), std::string("65535 at most")}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

/// Only a product can leave out what is there.
TEST(CudaLower_Gradients, OfWhatIsNoProduct_AreClearedWhereTheyAreSet) {
  OpList list;
  list.tokens = 16;
  list.tensors = {{"dy", {16, 24}, DType::kBfloat16, TensorRole::kInput, 0},
                  {"db", {24}, DType::kFloat32, TensorRole::kGradient, 0}};
  list.ops = {{OpKind::kBiasGradient, NoAttributes{}, {0}, {1}}};
  const auto steps = lower(list, {});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(steps->unset.size(), 1U);
  EXPECT_EQ(steps->unset[0].to.tensor, 1U);
  EXPECT_EQ(steps->unset[0].size, 24 * sizeof(float));
}

/// Of three experts; `before`: a product that one of the gradients is of comes first.
OpList group_gradients(bool before) {
  OpList list;
  list.tokens = 64;
  list.tensors = {{"dy", {64, 24}, DType::kBfloat16, TensorRole::kInput, 0},
                  {"x", {64, 16}, DType::kBfloat16, TensorRole::kInput, 1},
                  {"offsets", {4}, DType::kInt32, TensorRole::kInput, 2}};
  for (std::uint32_t e = 0; e < 3; ++e) {
    list.tensors.push_back({"dw", {24, 16}, DType::kFloat32, TensorRole::kGradient, e});
  }
  if (before) list.ops.push_back({OpKind::kMatMulWeightGradient, MatMulAttributes{}, {0, 1}, {4}});
  list.ops.push_back({OpKind::kGroupedMatMulWeightGradient, GroupAttributes{}, {0, 1, 2}, {3, 4, 5}});
  return list;
}

TEST(CudaLower_GroupGradients, ThatComeFirst_AreSetByOneLaunch) {
  const OpList list = group_gradients(false);
  ASSERT_EQ(validate(list), absl::OkStatus());
  for (const bool units : {false, true}) {
    const auto steps = lower(list, {.bfloat16_units = units});
    ASSERT_EQ(steps.status(), absl::OkStatus());
    ASSERT_EQ(steps->steps.size(), 1U);
    const auto& launch = std::get<LaunchStep>(steps->steps[0]);
    EXPECT_TRUE(is_grouped_gradient(launch.kernel));
    ASSERT_TRUE(launch.sum.has_value());
    EXPECT_EQ(launch.patches[*launch.sum].offset, offsetof(GroupedGradientParams, addend));
    EXPECT_TRUE(steps->unset.empty());
  }
}

/// One tensor of all experts is set by a launch that knows all of them; where there are more, it is cleared.
TEST(CudaLower_GroupGradients, InOneTensor_AreSetByOneLaunchOrCleared) {
  for (const std::int64_t experts : {std::int64_t{kMostGroup}, kMostExperts}) {
    OpList list = group_gradients(false);
    list.tensors[2].shape = {experts + 1};
    list.tensors.resize(3);
    list.tensors.push_back({"dw", {experts, 24, 16}, DType::kFloat32, TensorRole::kGradient, 0});
    list.ops[0].attributes = GroupAttributes{false, 1.0F, experts};
    list.ops[0].writes = {3};
    ASSERT_EQ(validate(list), absl::OkStatus());
    const auto steps = lower(list, {});
    ASSERT_EQ(steps.status(), absl::OkStatus());
    const bool one = experts == kMostGroup;
    EXPECT_EQ(steps->steps.size(), one ? 1U : 2U);
    EXPECT_EQ(std::get<LaunchStep>(steps->steps[0]).sum.has_value(), one);
    ASSERT_EQ(steps->unset.size(), one ? 0U : 1U);
    if (one) continue;
    EXPECT_EQ(steps->unset[0].size, list.tensors[3].bytes());
  }
}

TEST(CudaLower_GroupGradients, OfWhichOneIsThere_AreAddedToZeros) {
  const OpList list = group_gradients(true);
  ASSERT_EQ(validate(list), absl::OkStatus());
  const auto steps = lower(list, {});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(steps->steps.size(), 2U);
  EXPECT_TRUE(std::get<LaunchStep>(steps->steps[0]).sum.has_value());
  EXPECT_FALSE(std::get<LaunchStep>(steps->steps[1]).sum.has_value());
  ASSERT_EQ(steps->unset.size(), 2U);
  EXPECT_EQ(steps->unset[0].to.tensor, 3U);
  EXPECT_EQ(steps->unset[1].to.tensor, 5U);
}

TEST(CudaLower_WeightGradient, OfAllTokens_IsOneProductThatAddsToWhatIsThere) {
  FakeEngine engine;
  const OpList list = weight_gradient(1100, DType::kBfloat16);
  ASSERT_EQ(validate(list), absl::OkStatus());
  const auto steps = lower(list, {&engine});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(steps->steps.size(), 1U);
  const auto& step = std::get<ProductStep>(steps->steps[0]);
  EXPECT_EQ(step.addend.tensor, 2U);
  EXPECT_EQ(step.c.tensor, 2U);
  EXPECT_TRUE(step.sets);
  EXPECT_TRUE(steps->unset.empty());
  ASSERT_EQ(engine.shapes.size(), 1U);
  EXPECT_EQ(engine.shapes[0].inner, 1100);
  EXPECT_TRUE(engine.shapes[0].a_transposed);
  EXPECT_FALSE(engine.shapes[0].b_transposed);
  EXPECT_EQ(engine.shapes[0].result, Storage::kFloat32);
}

/// Of so many products that have nothing to do with each other.
OpList weight_gradients(std::int64_t count) {
  OpList list;
  list.tokens = 64;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto first = static_cast<TensorId>(list.tensors.size());
    list.tensors.push_back({"dy", {64, 8 * (i + 1)}, DType::kBfloat16, TensorRole::kInput, 0});
    list.tensors.push_back({"x", {64, 16}, DType::kBfloat16, TensorRole::kInput, 1});
    list.tensors.push_back({"dw", {8 * (i + 1), 16}, DType::kFloat32, TensorRole::kGradient, 0});
    list.ops.push_back({OpKind::kMatMulWeightGradient, MatMulAttributes{}, {first, first + 1}, {first + 2}});
  }
  return list;
}

/// So that they can run beside each other, as far as the room goes that they may take together.
TEST(CudaLower_Workspace, OfEachOp_IsItsOwn) {
  FakeEngine engine;
  engine.workspaces = {20_MiB, 0, 10_MiB + 1, 30_MiB, 8_MiB};
  const auto steps = lower(weight_gradients(5), {&engine});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  EXPECT_EQ(steps->workspace, 64_MiB);
  const std::vector<Bytes> begins = {0, 20_MiB, 20_MiB, 30_MiB + 256, 0};  // the last has no place behind the others
  for (std::size_t i = 0; i < 5; ++i) {
    const auto& product = std::get<ProductStep>(steps->steps[i]);
    EXPECT_EQ(steps->ops[i].workspace_begin, begins[i]) << i;
    EXPECT_EQ(steps->ops[i].workspace_end - begins[i], round_up(engine.workspaces[i], 256)) << i;
    if (i == 1) {
      EXPECT_EQ(product.workspace, Place{});
    } else {
      EXPECT_EQ(product.workspace, (Place{Place::Kind::kWorkspace, 0, begins[i]}));
    }
  }
}

TEST(CudaLower_Workspace, OfAnOpLargerThanTheRoom_IsWhatItNeeds) {
  FakeEngine engine;
  engine.workspaces = {200_MiB, 1_MiB};
  const auto steps = lower(weight_gradients(2), {&engine});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  EXPECT_EQ(steps->workspace, 200_MiB);
  EXPECT_EQ(steps->ops[1].workspace_begin, 0U);
}

TEST(CudaLower_LogitsChunk, FollowsTheRoom) {
  EXPECT_EQ(logits_chunk(151936, 0), 256);
  EXPECT_EQ(logits_chunk(151936, Bytes{4} * 1024 * 151936), 1024);
  EXPECT_EQ(logits_chunk(151936, Bytes{4} * 1024 * 151936 - 1), 768);
  EXPECT_EQ(logits_chunk(32000, ~Bytes{0} / 4), 2048);
}

TEST(CudaLower_Product, ThatTheLibraryHasNot_IsMadeByOurKernel) {
  FakeEngine engine;
  engine.refuses = true;
  const auto steps = lower(weight_gradient(64, DType::kBfloat16), {&engine});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(steps->steps.size(), 1U);
  EXPECT_EQ(std::get<LaunchStep>(steps->steps[0]).kernel, KernelId::k_product_bf16);
}

TEST(CudaLower_Product, OfTwoDtypes_IsRefusedByName) {
  const absl::Status status = lower(weight_gradient(64, DType::kFloat32), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'dy' in bf16 and 'x' in fp32"));
}

TEST(CudaLower_Product, WithABiasOfAnotherDtype_IsMadeByOurKernel) {
  FakeEngine engine;
  OpList list;
  list.tokens = 8;
  list.tensors = {{"x", {8, 16}, DType::kBfloat16, TensorRole::kInput, 0},
                  {"w", {24, 16}, DType::kBfloat16, TensorRole::kWeight, 0},
                  {"bias", {24}, DType::kFloat32, TensorRole::kWeight, 1},
                  {"y", {8, 24}, DType::kBfloat16, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kMatMul, MatMulAttributes{1, true, false}, {0, 1, 2}, {3}}};
  ASSERT_EQ(validate(list), absl::OkStatus());
  auto steps = lower(list, {&engine});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  EXPECT_TRUE(std::holds_alternative<LaunchStep>(steps->steps[0]));
  list.tensors[2].dtype = DType::kBfloat16;
  steps = lower(list, {&engine});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  EXPECT_TRUE(std::holds_alternative<ProductStep>(steps->steps[0]));
  EXPECT_TRUE(engine.shapes[0].has_bias);
}

Place tensor(TensorId id) { return {Place::Kind::kTensor, id, 0}; }

TEST(CudaLower_ProductPair, AddsTheWideOneToTheNarrowOneAndThenWhatElseIsAdded) {
  FakeEngine engine;
  const auto steps = lower(test::adapted_layer(DType::kBfloat16), {&engine});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(steps->steps.size(), 3U);
  const auto& narrow = std::get<ProductStep>(steps->steps[0]);
  EXPECT_EQ(engine.shapes[narrow.plan].inner, 8);
  EXPECT_EQ(narrow.alpha, 2.0F);
  EXPECT_EQ(narrow.a, tensor(test::kLayerLow));
  EXPECT_EQ(narrow.addend.kind, Place::Kind::kNull);
  EXPECT_EQ(narrow.c, tensor(test::kLayerZ));
  const auto& wide = std::get<ProductStep>(steps->steps[1]);
  EXPECT_EQ(engine.shapes[wide.plan].inner, 320);
  EXPECT_EQ(wide.a, tensor(test::kLayerX));
  EXPECT_EQ(wide.addend, tensor(test::kLayerZ));
  EXPECT_EQ(wide.c, tensor(test::kLayerZ));
  const auto& sum = std::get<LaunchStep>(steps->steps[2]);
  EXPECT_EQ(sum.kernel, KernelId::k_add_bf16);
  ASSERT_EQ(sum.patches.size(), 3U);
  EXPECT_EQ(sum.patches[0].place, tensor(test::kLayerZ));
  EXPECT_EQ(sum.patches[1].place, tensor(test::kLayerMore));
  EXPECT_EQ(sum.patches[2].place, tensor(test::kLayerZ));
  ASSERT_EQ(steps->ops.size(), 1U);
  EXPECT_EQ(steps->ops[0].op, 1U);
  EXPECT_EQ(steps->ops[0].first, 0U);
}

TEST(CudaLower_ProductPair, WhoseWideOneIsInFp8_EncodesItAlone) {
  FakeEngine engine;
  const auto steps = lower(test::adapted_layer(DType::kBfloat16, Fp8Format::kHybrid),
                           {.engine = &engine, .fp8 = true, .fp8_scales = true});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(steps->steps.size(), 5U);  // the narrow one, codes of both operands, the wide one, the sum
  EXPECT_EQ(std::get<ProductStep>(steps->steps[0]).a, tensor(test::kLayerLow));
  const auto& codes = std::get<LaunchStep>(steps->steps[1]);
  EXPECT_EQ(codes.patches[0].place, tensor(test::kLayerX));
  const auto& wide = std::get<ProductStep>(steps->steps[3]);
  EXPECT_TRUE(engine.shapes[wide.plan].has_scales);
  EXPECT_EQ(wide.addend, tensor(test::kLayerZ));
}

/// The adapter's product runs beside others then, and nothing goes over the result once more.
TEST(CudaLower_ProductPair, InFp32_StaysTwoOps) {
  FakeEngine engine;
  const auto steps = lower(test::adapted_layer(DType::kFloat32), {&engine});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(steps->steps.size(), 2U);
  EXPECT_EQ(std::get<ProductStep>(steps->steps[0]).addend, tensor(test::kLayerMore));
  EXPECT_EQ(std::get<ProductStep>(steps->steps[1]).addend, tensor(test::kLayerY));
  EXPECT_EQ(steps->ops.size(), 2U);
}

TEST(CudaLower_ProductPair, OfGradients_StaysTwoOps) {
  FakeEngine engine;
  OpList list = test::adapted_layer(DType::kBfloat16);
  list.tensors[test::kLayerW].shape = {320, 48};
  list.tensors[test::kLayerB].shape = {8, 48};
  for (Op& op : list.ops) op.kind = OpKind::kMatMulInputGradient;
  ASSERT_EQ(product_pairs(list).size(), 1U);
  const auto steps = lower(list, {&engine});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  EXPECT_EQ(steps->ops.size(), 2U);
}

/// What a run is known by: each tensor once, wherever in it the steps begin; all scratch by one address.
TEST(CudaLower_Roots, OfAProgram_NameEveryPlaceOnce) {
  FakeEngine engine;
  OpList list = weight_gradient(1100, DType::kBfloat16);
  auto steps = lower(list, {&engine});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  const auto tensor = [](TensorId id) { return Place{Place::Kind::kTensor, id, 0}; };
  EXPECT_THAT(steps->roots, ::testing::UnorderedElementsAre(tensor(0), tensor(1), tensor(2)));
  list.tensors[0].role = TensorRole::kScratch;
  list.tensors[1].role = TensorRole::kScratch;
  steps = lower(list, {&engine});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  EXPECT_THAT(steps->roots, ::testing::UnorderedElementsAre(::testing::AnyOf(tensor(0), tensor(1)), tensor(2)));
}

TEST(CudaLower_Fault, OfAProgramThatMayMeetOne_IsClearedFirst) {
  OpList list;
  list.tokens = 8;
  list.tensors = {{"ids", {8}, DType::kInt32, TensorRole::kBatch, 0},
                  {"table", {7, 16}, DType::kFloat32, TensorRole::kWeight, 0},
                  {"x", {8, 16}, DType::kFloat32, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kEmbedding, EmbeddingAttributes{}, {0, 1}, {2}}};
  const auto steps = lower(list, {});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  EXPECT_TRUE(steps->may_fault);
  const auto* clear = std::get_if<ClearStep>(steps->steps.data());
  ASSERT_NE(clear, nullptr);
  EXPECT_EQ(clear->to, (Place{Place::Kind::kFault, 0, 0}));
  EXPECT_EQ(clear->size, sizeof(Fault));
  EXPECT_FALSE(lower(weight_gradient(64, DType::kBfloat16), {})->may_fault);
}

TEST(CudaLower_Attention, WithHeadsPastTheLargest_IsRefusedByName) {
  OpList list;
  list.tokens = 16;
  list.tensors = {{"q", {16, 2, 544}, DType::kBfloat16, TensorRole::kInput, 0},
                  {"k", {16, 1, 544}, DType::kBfloat16, TensorRole::kInput, 1},
                  {"v", {16, 1, 544}, DType::kBfloat16, TensorRole::kInput, 2},
                  {"bounds", {18}, DType::kInt32, TensorRole::kBatch, 3},
                  {"o", {16, 2, 544}, DType::kBfloat16, TensorRole::kOutput, 0},
                  {"lse", {16, 2}, DType::kFloat32, TensorRole::kSaved, 0}};
  list.ops = {{OpKind::kAttention, AttentionAttributes{}, {0, 1, 2, 3}, {4, 5}}};
  const absl::Status status = lower(list, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("544"));
}

/// It does not look at the heads as attention does, which keeps them in shared memory.
TEST(CudaLower_SinkGradient, OfLargeHeads_IsAddedChunkByChunk) {
  OpList list;
  list.tokens = 1025;
  list.tensors = {{"o", {1025, 2, 544}, DType::kBfloat16, TensorRole::kInput, 0},
                  {"lse", {1025, 2}, DType::kFloat32, TensorRole::kInput, 1},
                  {"sinks", {2}, DType::kBfloat16, TensorRole::kWeight, 0},
                  {"do", {1025, 2, 544}, DType::kBfloat16, TensorRole::kInput, 2},
                  {"dsinks", {2}, DType::kFloat32, TensorRole::kGradient, 0}};
  list.ops = {{OpKind::kAttentionSinkGradient, NoAttributes{}, {0, 1, 2, 3}, {4}}};
  ASSERT_EQ(validate(list), absl::OkStatus());
  const auto steps = lower(list, {});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(steps->steps.size(), 2U);
  const auto& sums = std::get<LaunchStep>(steps->steps[0]);
  EXPECT_EQ(sums.kernel, KernelId::k_attention_sink_gradient_bf16);
  EXPECT_EQ(sums.grid_x, 2U);
  EXPECT_EQ(sums.grid_y, 3U);
  EXPECT_EQ(std::get<LaunchStep>(steps->steps[1]).kernel, KernelId::k_column_totals);
  EXPECT_GE(steps->workspace, 3U * 2 * sizeof(float));
  ASSERT_EQ(steps->unset.size(), 1U);
}

/// How an expert's rows lie in chunks is known on the card alone: one more for each expert, and what is left of
/// padding.
TEST(CudaLower_GroupBiasGradient, HasRoomForTheChunksOfEveryLayout) {
  OpList list;
  list.tokens = 1100;
  list.tensors = {{"dy", {1100, 24}, DType::kBfloat16, TensorRole::kInput, 0},
                  {"offsets", {6}, DType::kInt32, TensorRole::kInput, 1},
                  {"db", {5, 24}, DType::kFloat32, TensorRole::kGradient, 0}};
  list.ops = {{OpKind::kGroupedBiasGradient, NoAttributes{}, {0, 1}, {2}}};
  ASSERT_EQ(validate(list), absl::OkStatus());
  const auto steps = lower(list, {});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(steps->steps.size(), 2U);
  const auto& sums = std::get<LaunchStep>(steps->steps[0]);
  EXPECT_EQ(sums.kernel, KernelId::k_grouped_bias_sums_bf16);
  EXPECT_EQ(sums.grid_y, 2U + 5 + 1);
  EXPECT_GE(steps->workspace, (2U + 5 + 1) * 24 * sizeof(float));
  const auto& totals = std::get<LaunchStep>(steps->steps[1]);
  EXPECT_EQ(totals.kernel, KernelId::k_grouped_bias_totals);
  EXPECT_EQ(totals.grid_y, 5U);
  ASSERT_EQ(steps->unset.size(), 1U);
  EXPECT_EQ(steps->unset[0].size, 5 * 24 * sizeof(float));
}

/// Scratch of 256 chunks of heads at most, and what is carried from one segment to the next, twice.
TEST(CudaLower_DeltaRuleBackward, OfManyTokens_GoesBackwardBySegments) {
  OpList list;
  list.tokens = 4000;
  const Shape keys = {4000, 16, 128};
  const Shape values = {4000, 32, 128};
  const Shape gates = {4000, 32};
  const auto add = [&](const char* name, const Shape& shape, DType dtype, TensorRole role) {
    list.tensors.push_back({name, shape, dtype, role, static_cast<std::uint32_t>(list.tensors.size())});
  };
  add("q", keys, DType::kBfloat16, TensorRole::kInput);
  add("k", keys, DType::kBfloat16, TensorRole::kInput);
  add("v", values, DType::kBfloat16, TensorRole::kInput);
  add("g", gates, DType::kFloat32, TensorRole::kInput);
  add("beta", gates, DType::kFloat32, TensorRole::kInput);
  add("checkpoints", {63, 32, 128, 128}, DType::kFloat32, TensorRole::kInput);
  add("bounds", {4002}, DType::kInt32, TensorRole::kBatch);
  add("do", values, DType::kBfloat16, TensorRole::kInput);
  add("dq", keys, DType::kBfloat16, TensorRole::kOutput);
  add("dk", keys, DType::kBfloat16, TensorRole::kOutput);
  add("dv", values, DType::kBfloat16, TensorRole::kOutput);
  add("dg", gates, DType::kFloat32, TensorRole::kOutput);
  add("dbeta", gates, DType::kFloat32, TensorRole::kOutput);
  list.ops = {{OpKind::kDeltaRuleBackward, DeltaAttributes{}, {0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12}}};
  ASSERT_EQ(validate(list), absl::OkStatus());
  const auto steps = lower(list, {});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(steps->steps.size(), 8U * 4);  // eight chunks a segment, the last one of seven
  const auto first_of = [&](std::size_t segment) {
    const auto& launch = std::get<LaunchStep>(steps->steps[4 * segment]);
    EXPECT_EQ(launch.kernel, KernelId::k_rule_errors_bf16);
    EXPECT_EQ(launch.grid_x, 32U * 4);
    EXPECT_EQ(launch.grid_y, segment == 0 ? 7U : 8U);
    RuleParams params{};
    std::memcpy(&params, launch.params.data(), sizeof(params));
    EXPECT_EQ(params.length, segment == 0 ? 4000 - 7 * 512 : 512);
    return params.first;
  };
  for (std::size_t segment = 0; segment < 8; ++segment) {
    EXPECT_EQ(first_of(segment), static_cast<std::int32_t>(7 - segment) * 512);
  }
  EXPECT_LE(steps->workspace, 256 * 192_KiB + 2 * 32 * 64_KiB);
}

TEST(CudaLower_VocabularyLoss, OverALargeVocabulary_HasTheLogitsOfOneChunkAlone) {
  OpList list;
  list.tokens = 2048;
  list.tensors = {{"x", {2048, 64}, DType::kBfloat16, TensorRole::kInput, 0},
                  {"w", {150000, 64}, DType::kBfloat16, TensorRole::kWeight, 0},
                  {"targets", {2048}, DType::kInt32, TensorRole::kBatch, 2},
                  {"loss", {1}, DType::kFloat64, TensorRole::kLoss, 0},
                  {"dx", {2048, 64}, DType::kBfloat16, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kVocabularyLoss, VocabularyAttributes{150000, 0, 1, true, false}, {0, 2, 1}, {3, 4}}};
  ASSERT_EQ(validate(list), absl::OkStatus());
  FakeEngine engine;
  const auto steps = lower(list, {&engine});
  ASSERT_EQ(steps.status(), absl::OkStatus());
  const Bytes logits = Bytes{256} * 150000 * (4 + 2);
  EXPECT_GE(steps->workspace, logits);
  EXPECT_LT(steps->workspace, logits + 1_MiB);
  EXPECT_EQ(engine.shapes.size(), 2U);  // logits and dx, each for all eight chunks
}

}  // namespace
}  // namespace rondo::devices::cuda
