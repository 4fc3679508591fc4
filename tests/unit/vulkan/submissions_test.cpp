// How a program is cut into submissions that no operating system takes for a hung card.
#include "submissions.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "card_test.h"
#include "program.h"

namespace rondo::devices::vulkan {
namespace {

std::vector<Dispatch> of_work(std::initializer_list<double> all) {
  std::vector<Dispatch> dispatches;
  for (const double work : all) {
    dispatches.emplace_back();
    dispatches.back().work = work;
  }
  return dispatches;
}

using Counts = std::vector<std::size_t>;

TEST(Submissions, HoldNoMoreWorkThanAllowed) {
  EXPECT_EQ(submissions_of(of_work({0.4, 0.4, 0.4, 0.1, 0.6}), 1), (Counts{2, 2, 1}));
  EXPECT_EQ(submissions_of(of_work({0.5, 0.5}), 1), (Counts{2}));
}

TEST(Submissions, OfMoreThanThat_HaveOneDispatch) {
  EXPECT_EQ(submissions_of(of_work({0.1, 3, 0.1, 0.1}), 1), (Counts{1, 1, 2}));
  EXPECT_EQ(submissions_of(of_work({0.1, 0.1, 0.1}), 0), (Counts{1, 1, 1}));
}

/// What clears and copies alone, or has nothing to do, is submitted all the same.
TEST(Submissions, OfNothing_AreOne) { EXPECT_EQ(submissions_of({}, 1), (Counts{0})); }

/// Products one behind the other, of x [rows, width] by itself as the weight's shape says.
OpList list_of_products(std::int64_t rows, std::int64_t width, std::size_t count) {
  OpList list;
  list.tokens = static_cast<std::uint32_t>(rows);
  list.tensors = {{"x", {rows, width}, DType::kFloat32, TensorRole::kInput, 0},
                  {"w", {width, width}, DType::kFloat32, TensorRole::kWeight, 0},
                  {"y", {rows, width}, DType::kFloat32, TensorRole::kOutput, 0}};
  list.ops.assign(count, {OpKind::kMatMul, MatMulAttributes{}, {0, 1}, {2}});
  return list;
}

std::vector<Dispatch> products(std::int64_t rows, std::int64_t width, std::size_t count) {
  const OpList list = list_of_products(rows, width, count);
  Lowering lowering(list, {});
  EXPECT_TRUE(lowering.lower_all().ok());
  return lowering.dispatches();
}

/// 2^35 FLOPs each, a third of a second's for the slowest card, and 0.2 GB.
TEST(Submissions, OfLargeProducts_AreSeveral) {
  const std::vector<Dispatch> dispatches = products(4096, 2048, 5);
  ASSERT_EQ(dispatches.size(), 5U);
  EXPECT_NEAR(dispatches[0].work, 0.344 + 0.0084, 1e-3);
  EXPECT_EQ(submissions_of(dispatches, kMostWork), (Counts{2, 2, 1}));
  EXPECT_EQ(submissions_of(products(64, 64, 5), kMostWork), (Counts{5}));
}

Dispatch of_grid(std::array<std::uint32_t, 3> groups, double work, Uneven uneven = {}) {
  Dispatch dispatch;
  dispatch.groups = groups;
  dispatch.work = work;
  dispatch.uneven = uneven;
  return dispatch;
}

std::vector<Dispatch> cut(const Dispatch& dispatch, const Cut& how = {}) { return in_parts({dispatch}, how); }

/// Every workgroup of the grid is in one of them.
void expect_whole(const Dispatch& whole, const std::vector<Dispatch>& parts) {
  std::set<std::array<std::uint32_t, 3>> seen;
  for (const Dispatch& part : parts) {
    EXPECT_TRUE(part.part);
    EXPECT_EQ(part.push.grid, whole.groups[0] + 65536 * whole.groups[2]);
    for (std::uint32_t i = 0; i < part.groups[0] * part.groups[1] * part.groups[2]; ++i) {
      const std::array place = {part.begin[0] + i % part.groups[0], part.begin[1] + i / part.groups[0] % part.groups[1],
                                part.begin[2] + i / part.groups[0] / part.groups[1]};
      for (std::size_t j = 0; j < place.size(); ++j) ASSERT_LT(place[j], whole.groups[j]);
      EXPECT_TRUE(seen.insert(place).second);
    }
  }
  EXPECT_EQ(seen.size(), whole.groups[0] * whole.groups[1] * whole.groups[2]);
}

TEST(Parts, OfWhatIsNotTooMuch_AreNone) {
  const std::vector<Dispatch> same = in_parts({of_grid({7, 5, 3}, 1), of_grid({1, 1, 1}, 99)}, {});
  ASSERT_EQ(same.size(), 2U);
  for (const Dispatch& dispatch : same) {
    EXPECT_FALSE(dispatch.part);
    EXPECT_EQ(dispatch.push.grid, 0U);
  }
}

/// Along each dimension that it takes.
TEST(Parts, OfAGrid_AreAllOfItAndNotTooMuch) {
  for (const auto& groups : {std::array{7U, 50U, 3U}, {7U, 5U, 3U}, {11U, 1U, 1U}, {1U, 13U, 1U}, {2U, 2U, 9U}}) {
    for (const double work : {1.01, 2.5, 10.0, 34.9}) {
      const Dispatch whole = of_grid(groups, work);
      const double one = work / (groups[0] * groups[1] * groups[2]);
      const std::vector<Dispatch> parts = cut(whole);
      expect_whole(whole, parts);
      double sum = 0;
      for (const Dispatch& part : parts) {
        EXPECT_LE(part.work, std::max(1.0, one) + 1e-9);
        sum += part.work;
      }
      EXPECT_NEAR(sum, work, 1e-9);
      EXPECT_EQ(submissions_of(parts, 1).size(), parts.size());
    }
  }
}

TEST(Parts, AreFewAndAlike) {
  const std::vector<Dispatch> parts = cut(of_grid({100, 10, 2}, 2.4));
  ASSERT_EQ(parts.size(), 3U);
  for (const Dispatch& part : parts) {
    EXPECT_GE(part.groups[1], 3U);
    EXPECT_LE(part.groups[1], 4U);
    EXPECT_EQ(part.groups[0] * part.groups[2], 200U);
  }
}

/// The last tenth of a grid may have all of the work.
TEST(Parts, OfUnevenWork_AreAsManyAsTheHeaviestAsksFor) {
  const std::vector<Dispatch> heads = cut(of_grid({100, 4, 1}, 3.9, {0, 10}));  // along the other dimension
  EXPECT_EQ(heads.size(), 4U);
  const Dispatch whole = of_grid({100, 1, 1}, 3, {0, 10});
  const std::vector<Dispatch> parts = cut(whole);
  expect_whole(whole, parts);
  EXPECT_GE(parts.size(), 30U);
  for (const Dispatch& part : parts) {
    EXPECT_LE(part.groups[0], 3U);
    EXPECT_NEAR(part.work, 3 * 10 * part.groups[0] / 100.0, 1e-9);
  }
}

TEST(Parts, Backwards_AreTheSameFromTheLastOn) {
  std::vector<Dispatch> forwards = cut(of_grid({3, 4, 2}, 20));
  const std::vector<Dispatch> backwards = cut(of_grid({3, 4, 2}, 20), {.backwards = true});
  ASSERT_EQ(forwards.size(), 24U);
  ASSERT_EQ(backwards.size(), 24U);
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(forwards[i].begin, backwards[23 - i].begin);
}

TEST(Parts, AskedForByNumber_AreNoFewerWhereThereAreWorkgroups) {
  EXPECT_EQ(cut(of_grid({3, 2, 1}, 0), {.least = 5}).size(), 6U);
  EXPECT_EQ(cut(of_grid({3, 9, 1}, 0), {.least = 5}).size(), 9U);
  EXPECT_EQ(cut(of_grid({1, 100, 1}, 0), {.least = 5}).size(), 5U);
  EXPECT_EQ(cut(of_grid({1, 1, 1}, 0), {.least = 5}).size(), 1U);
}

/// A device's kernels as cards have them, those of matrix units and those of processors.
std::vector<Means> all_means() {
  MatrixUnits units;
  units.api = MatrixUnits::Api::kKhr;
  units.float16 = units.bfloat16 = {16, 16, 16};
  units.subgroup_size = 32;
  units.shared_bytes = 65536;
  units.invocations = 1024;
  return {{}, {.units = units}, {.panel = true, .fetches_all = true}};
}

/// What none of these ops' dispatches may have more of; it is cut into.
void expect_cut(const OpList& list, double most) {
  for (const Means& means : all_means()) {
    Lowering lowering(list, means);
    ASSERT_EQ(lowering.lower_all(), absl::OkStatus());
    double work = 0;
    double before = 0;
    for (const Dispatch& dispatch : lowering.dispatches()) before += dispatch.work;
    const std::vector<Dispatch> parts = in_parts(lowering.dispatches(), {.most_work = most});
    EXPECT_GT(parts.size(), lowering.dispatches().size());
    for (const Dispatch& part : parts) {
      EXPECT_LE(part.work, most + 1e-9) << name_of(part.shader);
      work += part.work;
    }
    EXPECT_GE(work, before * (1 - 1e-9));
    EXPECT_LE(work, before * 2.5);
  }
}

/// A feed-forward's widest product over a long sequence, 2.9e13 FLOPs, and both its gradients.
TEST(Parts, OfTheLargestProducts_AreOfASubmissionEach) {
  constexpr std::int64_t kTokens = 32768;
  constexpr std::int64_t kWidth = 8192;
  constexpr std::int64_t kWide = 53248;
  OpList list;
  list.tokens = kTokens;
  list.tensors = {{"x", {kTokens, kWidth}, DType::kBfloat16, TensorRole::kInput, 0},
                  {"w", {kWide, kWidth}, DType::kBfloat16, TensorRole::kWeight, 0},
                  {"y", {kTokens, kWide}, DType::kBfloat16, TensorRole::kScratch, 0},
                  {"dx", {kTokens, kWidth}, DType::kBfloat16, TensorRole::kOutput, 0},
                  {"dw", {kWide, kWidth}, DType::kFloat32, TensorRole::kGradient, 0}};
  list.ops = {{OpKind::kMatMul, MatMulAttributes{}, {0, 1}, {2}},
              {OpKind::kMatMulInputGradient, MatMulAttributes{}, {2, 1}, {3}},
              {OpKind::kMatMulWeightGradient, MatMulAttributes{}, {2, 0}, {4}}};
  expect_cut(list, kMostWork);
}

/// Of 65,536 tokens, with and without a window, 2.2e12 FLOPs a layer forward.
TEST(Parts, OfLongAttention_AreOfASubmissionEach) {
  constexpr std::int64_t kTokens = 65536;
  for (const std::uint32_t window : {0U, 4096U}) {
    OpList list;
    list.tokens = kTokens;
    const Shape queries = {kTokens, 4, 64}, keys = {kTokens, 2, 64}, scores = {kTokens, 4};
    const auto tensor = [&list](const Shape& shape, DType dtype, TensorRole role) {
      list.tensors.push_back({"t", shape, dtype, role, static_cast<std::uint32_t>(list.tensors.size())});
      return static_cast<TensorId>(list.tensors.size() - 1);
    };
    const TensorId q = tensor(queries, DType::kBfloat16, TensorRole::kSaved);
    const TensorId k = tensor(keys, DType::kBfloat16, TensorRole::kSaved);
    const TensorId v = tensor(keys, DType::kBfloat16, TensorRole::kSaved);
    const TensorId bounds = tensor({kTokens + 2}, DType::kInt32, TensorRole::kBatch);
    const TensorId o = tensor(queries, DType::kBfloat16, TensorRole::kSaved);
    const TensorId lse = tensor(scores, DType::kFloat32, TensorRole::kSaved);
    const TensorId d_o = tensor(queries, DType::kBfloat16, TensorRole::kSaved);
    const TensorId dq = tensor(queries, DType::kBfloat16, TensorRole::kSaved);
    const TensorId dk = tensor(keys, DType::kBfloat16, TensorRole::kSaved);
    const TensorId dv = tensor(keys, DType::kBfloat16, TensorRole::kSaved);
    list.ops = {
        {OpKind::kAttention, AttentionAttributes{.scale = 0.125F, .window = window}, {q, k, v, bounds}, {o, lse}},
        {OpKind::kAttentionBackward,
         AttentionAttributes{.scale = 0.125F, .window = window},
         {q, k, v, o, lse, d_o, bounds},
         {dq, dk, dv}}};
    expect_cut(list, kMostWork / 4);
  }
}

/// 4096 tokens may stand at the end of a cache of 65,536: 5e11 FLOPs.
TEST(Parts, OfAttentionToACache_AreForTheWholeCache) {
  OpList list;
  list.tokens = 4096;
  const Shape queries = {4096, 8, 64}, keys = {4096, 2, 64}, cache = {65536, 2, 64};
  list.tensors = {{"q", queries, DType::kBfloat16, TensorRole::kScratch, 0},
                  {"k", keys, DType::kBfloat16, TensorRole::kScratch, 0},
                  {"v", keys, DType::kBfloat16, TensorRole::kScratch, 0},
                  {"positions", {4096}, DType::kInt32, TensorRole::kBatch, 0},
                  {"bounds", {4098}, DType::kInt32, TensorRole::kBatch, 1},
                  {"key cache", cache, DType::kBfloat16, TensorRole::kState, 0},
                  {"value cache", cache, DType::kBfloat16, TensorRole::kState, 1},
                  {"o", queries, DType::kBfloat16, TensorRole::kScratch, 0},
                  {"lse", {4096, 8}, DType::kFloat32, TensorRole::kScratch, 0}};
  list.ops = {{OpKind::kCachedAttention, AttentionAttributes{}, {0, 1, 2, 3, 4, 5, 6}, {7, 8}}};
  expect_cut(list, kMostWork);
}

class ProgramInParts : public CardTest {};

/// Recorded, under the validation layer.
TEST_F(ProgramInParts, OfTooMuchWork_IsAsManySubmissions) {
  auto instance = Instance::make([](const std::string& message) { ADD_FAILURE() << message; });
  ASSERT_EQ(instance.status(), absl::OkStatus());
  auto context = Context::make(*std::move(instance), card_, "vulkan:0", {});
  ASSERT_EQ(context.status(), absl::OkStatus());
  const auto pipelines = std::make_shared<Pipelines>(*context, "");
  ASSERT_EQ(pipelines->prepare(), absl::OkStatus());
  const OpList list = list_of_products(256, 256, 1);
  const auto made = [&](const VulkanProgram::Style& style) {
    auto program = VulkanProgram::make(*context, pipelines, list, plan_arena(list), style);
    EXPECT_EQ(program.status(), absl::OkStatus());
    return *std::move(program);
  };
  const auto whole = made({});
  EXPECT_EQ(whole->submissions(), 1U);
  const auto parts = made({.most_work = 1e-4});  // of 3.4e-4
  EXPECT_GE(parts->submissions(), 4U);
  EXPECT_GT(parts->dispatches(), whole->dispatches());
}

TEST(Grids, LargerThanCardsTake_AreRefusedByOpAndTokens) {
  constexpr std::int64_t kMost = 65535;
  const Dispatch one = products(1024, 16, 1).front();
  const std::int64_t rows = 1024 / one.groups[1];  // of a workgroup
  EXPECT_EQ(products(kMost * rows, 16, 1).front().groups[1], kMost);
  const OpList list = list_of_products(kMost * rows + 1, 16, 1);
  Lowering lowering(list, {});
  const absl::Status status = lowering.lower_all();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  for (const std::string& part : {std::string(name_of(OpKind::kMatMul)), std::to_string(list.tokens),
                                  std::string("65536 workgroups"), std::string("65535 at most")}) {
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(part));
  }
}

}  // namespace
}  // namespace rondo::devices::vulkan
