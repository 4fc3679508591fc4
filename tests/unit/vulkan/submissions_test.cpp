// How a program is cut into submissions that no operating system takes for a hung card.
#include <gmock/gmock.h>

#include <numeric>
#include <string>

#include "lowering.h"

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
