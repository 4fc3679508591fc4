// Attention on a CUDA device against the reference, of heads that the matrix units take in ways of their own: on the
// fake card everywhere, on the first real card where there is one.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "check_case.h"
#include "heads_case.h"
#include "lower.h"

namespace rondo::devices::testing {
namespace {

/// Heads that the matrix units take: sequences that begin and end anywhere in the blocks, groups of heads, padding.
class CudaHeads : public ::testing::TestWithParam<HeadsCase> {};

/// The kernels of forward and gradient, of a card of those abilities.
std::vector<cuda::KernelId> kernels_of(const HeadsCase& heads, DType storage, const cuda::LowerOptions& options) {
  const auto steps = cuda::lower(case_of(heads, storage).list, options);
  std::vector<cuda::KernelId> kernels;
  if (!steps.ok()) return kernels;
  for (const cuda::Step& step : steps->steps) {
    if (const auto* launch = std::get_if<cuda::LaunchStep>(&step)) kernels.push_back(launch->kernel);
  }
  return kernels;
}

/// What some cards offer.
const cuda::LowerOptions kTuring = {.float16_units = true, .multiprocessors = 4, .most_shared = 64_KiB};
const cuda::LowerOptions kAda = {
    .float16_units = true, .bfloat16_units = true, .multiprocessors = 4, .most_shared = 99_KiB};
const cuda::LowerOptions kHopper = {
    .float16_units = true, .bfloat16_units = true, .warpgroups = true, .multiprocessors = 4, .most_shared = 227_KiB};

/// Forward and both halves of the gradient, where there are warpgroups to do it.
TEST(CudaHeadsByWarpgroups, AreLoweredToTheirKernels) {
  const auto of_groups = [](const cuda::LowerOptions& card) {
    return std::ranges::count_if(kernels_of(heads_cases()[3], DType::kBfloat16, card), cuda::is_of_groups);
  };
  EXPECT_EQ(of_groups(kHopper), 3);
  EXPECT_EQ(of_groups(kAda), 0);
}

/// Heads of whole eights that are longer than 64, in 16 bits.
TEST(CudaWideHeads, OfSizesOfTheirOwn_AreLoweredToTheMatrixUnits) {
  const auto wide = [](std::int64_t head_dim, DType storage, const cuda::LowerOptions& card) {
    const HeadsCase heads{"", 16, {16}, 2, 1, head_dim, 0};
    return std::ranges::count_if(kernels_of(heads, storage, card), cuda::is_wide);
  };
  for (const std::int64_t head_dim : {72, 80, 96, 192, 256, 264, 512}) {
    SCOPED_TRACE(head_dim);
    for (const cuda::LowerOptions& card : {kAda, kHopper}) {
      EXPECT_EQ(wide(head_dim, DType::kBfloat16, card), 3);
      EXPECT_EQ(wide(head_dim, DType::kFloat16, card), 3);
      EXPECT_EQ(wide(head_dim, DType::kFloat32, card), 0);
    }
    EXPECT_EQ(wide(head_dim, DType::kFloat16, kTuring), head_dim <= 128 ? 3 : 0);
    EXPECT_EQ(wide(head_dim, DType::kBfloat16, kTuring), 0);
  }
  for (const std::int64_t head_dim : {32, 64, 100, 128}) EXPECT_EQ(wide(head_dim, DType::kBfloat16, kAda), 0);
}

void check_heads(const HeadsCase& heads_case, DType storage, int major, int minor, const Allowing& allowing) {
  auto device = open_fake_of(major, minor);
  ASSERT_EQ(device.status(), absl::OkStatus());
  check_case(**device, case_of(heads_case, storage), allowing);
}

TEST_P(CudaHeads, ByMatrixUnitsOfTheFakeCard_AgreeWithTheReference) {
  check_heads(GetParam(), DType::kBfloat16, 8, 9, {.narrow_attention = true});
}

TEST_P(CudaHeads, WithoutMatrixUnits_AgreeWithTheReference) { check_heads(GetParam(), DType::kBfloat16, 7, 5, {}); }
INSTANTIATE_TEST_SUITE_P(, CudaHeads, ::testing::ValuesIn(heads_cases()),
                         [](const auto& one) { return std::string(one.param.name); });

/// Units for fp16 alone are those of sm_75, as far as its shared memory goes. The longest cases are left to bf16.
class CudaFp16Heads : public CudaHeads {};

std::vector<HeadsCase> heads_of_fp16() {
  std::vector<HeadsCase> cases = heads_cases();
  std::erase_if(cases, [](const HeadsCase& heads) { return heads.tokens > 256; });
  return cases;
}

TEST_P(CudaFp16Heads, OnTheFakeCard_AgreeWithTheReference) {
  const bool long_heads = GetParam().head_dim > 128;
  check_heads(GetParam(), DType::kFloat16, long_heads ? 8 : 7, long_heads ? 6 : 5, {.narrow_attention = true});
}
INSTANTIATE_TEST_SUITE_P(, CudaFp16Heads, ::testing::ValuesIn(heads_of_fp16()),
                         [](const auto& one) { return std::string(one.param.name); });

/// Those for which there are kernels of warpgroups.
class CudaGroupHeads : public CudaHeads {};

std::vector<HeadsCase> heads_of_groups() {
  std::vector<HeadsCase> cases = heads_cases();
  std::erase_if(
      cases, [](const HeadsCase& heads) { return (heads.head_dim != 64 && heads.head_dim != 128) || heads.cap > 0; });
  return cases;
}

TEST_P(CudaGroupHeads, OnTheFakeCard_AgreeWithTheReference) {
  check_heads(GetParam(), DType::kBfloat16, 9, 0, {.narrow_attention = true});
}
INSTANTIATE_TEST_SUITE_P(, CudaGroupHeads, ::testing::ValuesIn(heads_of_groups()),
                         [](const auto& one) { return std::string(one.param.name); });

/// Sinks whose exponentials are past fp32 or nothing beside the scores', and some between; heads are whole vectors.
void check_far_sinks(Device& device) {
  for (const DType storage : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
    SCOPED_TRACE(name_of(storage));
    CaseBuilder b(storage, 70);
    const Shape heads = {70, 4, 64};
    const TensorId sinks = b.weight("sinks", {4});
    const TensorId lse = b.wide_input("lse", {70, 4});
    const TensorId o = b.saved("o", heads);
    const TensorId total = b.saved_wide("total", {70, 4});
    b.op(OpKind::kAttentionSink, {b.input("attended", heads), lse, sinks}, {o, total});
    b.op(OpKind::kAttentionSinkGradient, {o, total, sinks, b.input("do", heads)}, {b.gradient("dsinks", {4})});
    b.result().reduction = 70;
    check_case(device, b.result(), {}, [&](CaseMemory& memory) {
      memory.set(sinks, 0, 300);
      memory.set(sinks, 1, -300);
    });
  }
}

TEST(CudaSinks, FarFromTheScores_AreTheOnlyScoreOrNone) {
  cuda::testing::reset_fake();
  auto device = cuda::testing::open_fake({});
  ASSERT_EQ(device.status(), absl::OkStatus());
  check_far_sinks(**device);
}

class CudaHeadsOnHardware : public OnHardware {};
class CudaSinksOnHardware : public OnHardware {};

TEST_F(CudaHeadsOnHardware, OfEverySize_AgreeWithTheReference) {
  for (const HeadsCase& heads_case : heads_cases()) {
    for (const DType storage : {DType::kBfloat16, DType::kFloat16}) {
      SCOPED_TRACE(std::string(heads_case.name) + " " + name_of(storage));
      check_case(*device_, case_of(heads_case, storage), {.narrow_attention = true});
    }
  }
}

TEST_F(CudaSinksOnHardware, FarFromTheScores_AreTheOnlyScoreOrNone) { check_far_sinks(*device_); }

}  // namespace
}  // namespace rondo::devices::testing
