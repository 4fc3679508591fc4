// What opening a card says when something is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "card_device.h"
#include "fake_card.h"
#include "fake_driver.h"
#include "rondo/base/status.h"

namespace rondo::devices::cuda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CudaDriver, NotInstalled_IsSaidWithTheLoadersReason) {
  Driver driver;
  const absl::Status status = fill_driver(driver, nullptr, "libcuda.so.1: cannot open shared object file");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(message_of(status), AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("libcuda.so.1")));
}

TEST(CudaDriver, WithoutTheWayToLookFunctionsUp_IsTooOld) {
  Driver driver;
  EXPECT_THAT(message_of(fill_driver(driver, nullptr, "")), HasSubstr("too old"));
}

TEST(CudaDriver, LackingAFunction_IsNamed) {
  Driver driver;
  fake_lacks("cuLaunchKernel");
  const absl::Status status = fill_driver(driver, fake_look_up, "");
  fake_lacks("");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(message_of(status), HasSubstr("cuLaunchKernel"));
}

TEST(CudaDriver, Complete_HasEveryFunction) {
  Driver driver;
  ASSERT_EQ(fill_driver(driver, fake_look_up, ""), absl::OkStatus());
  EXPECT_EQ(driver.launch, fake_driver().launch);
  EXPECT_EQ(driver.init, fake_driver().init);
}

TEST(CudaDriver, OnThisMachine_IsFoundOrSaysWhatIsMissing) {
  const auto cards = list_cards();
  if (cards.ok()) return;
  EXPECT_FALSE(message_of(cards.status()).empty());
  const absl::Status opened = open_cuda({}).status();
  EXPECT_FALSE(opened.ok());
}

TEST(CudaDriver, CardsOlderThanTheKernels_AreListedWithTheReason) {
  FakeScript script;
  script.cards = 2;
  reset_fake(script);
  auto cards = list_cards(fake_driver(), fake_image());  // for sm_86 and later
  ASSERT_EQ(cards.status(), absl::OkStatus());
  ASSERT_EQ(cards->size(), 2U);
  EXPECT_EQ((*cards)[0].unsuitable, "");
  EXPECT_NE((*cards)[0].uuid, (*cards)[1].uuid);
  script.major = 7;
  script.minor = 5;
  reset_fake(script);
  cards = list_cards(fake_driver(), fake_image());
  ASSERT_EQ(cards.status(), absl::OkStatus());
  EXPECT_THAT((*cards)[1].unsuitable, AllOf(HasSubstr("sm_75"), HasSubstr("sm_86")));
}

/// Machine code runs on cards of its major version, "a" on one alone, and of the last there is PTX besides.
TEST(CudaDriver, CardsWithoutCode_AreListedWithTheReason) {
  const char* all = "sm_75, sm_80, sm_86, sm_89, sm_90a, sm_100, sm_120";
  struct Case {
    const char* architectures;
    int major;
    int minor;
    bool suitable;
  };
  for (const Case& one : {Case{all, 7, 0, false},
                          {all, 7, 5, true},
                          {all, 8, 0, true},
                          {all, 8, 7, true},
                          {all, 8, 9, true},
                          {all, 9, 0, true},
                          {all, 10, 0, true},
                          {all, 10, 3, true},
                          {all, 11, 0, false},
                          {all, 12, 0, true},
                          {all, 12, 1, true},
                          {all, 13, 0, true},
                          {"sm_75, sm_86", 8, 0, false},
                          {"sm_90a", 9, 0, true},
                          {"sm_90a", 10, 0, false},
                          {"sm_90a", 8, 9, false},
                          {"sm_89", 9, 0, true}}) {
    FakeScript script;
    script.major = one.major;
    script.minor = one.minor;
    reset_fake(script);
    const auto cards = list_cards(fake_driver(), {"kernels", 13000, one.architectures});
    ASSERT_EQ(cards.status(), absl::OkStatus());
    EXPECT_EQ(cards->front().unsuitable.empty(), one.suitable) << one.architectures << " " << one.major << one.minor;
  }
}

class CudaOpening : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(things_left(), 0); }
  static absl::Status open(const FakeScript& script, const KernelImage& image = fake_image(),
                           const CudaOptions& options = {}) {
    reset_fake(script);
    return open_card(fake_driver(), image, {}, options, nullptr).status();
  }
};

TEST_F(CudaOpening, WithoutKernelsInTheBuild_SaysHowToGetThem) {
  const absl::Status status = open({}, KernelImage{});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(message_of(status), HasSubstr("RONDO_CUDA"));
}

TEST_F(CudaOpening, WithADriverOlderThanTheKernels_NamesBothVersions) {
  FakeScript script;
  script.driver_version = 12040;
  const absl::Status status = open(script);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(message_of(status), AllOf(HasSubstr("CUDA 12.4"), HasSubstr("13.0")));
}

TEST_F(CudaOpening, OfACardThatIsNotThere_IsBadInput) {
  CudaOptions options;
  options.ordinal = 1;
  const absl::Status status = open({}, fake_image(), options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(message_of(status), HasSubstr("no CUDA card 1"));
}

TEST_F(CudaOpening, OfACardThatTheKernelsAreNotFor_NamesItsArchitecture) {
  FakeScript script;
  script.major = 6;
  script.minor = 1;
  script.fail_call = "cuModuleLoadData";
  script.fail_at = 1;
  script.fail_result = kNoBinaryForGpu;
  const absl::Status status = open(script);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(message_of(status), AllOf(HasSubstr("sm_61"), HasSubstr("sm_86")));
}

TEST_F(CudaOpening, OfACardWithoutFreeMemory_GivesTheNumbers) {
  FakeScript script;
  script.memory = 1U << 20U;
  const absl::Status status = open(script);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(message_of(status), HasSubstr("1048576"));
}

/// Each call that can fail while a card is opened: the error comes through and nothing is left behind.
class CudaOpeningFails : public CudaOpening, public ::testing::WithParamInterface<std::pair<const char*, int>> {};

TEST_P(CudaOpeningFails, AtAnyCall_NamesItAndLeavesNothing) {
  FakeScript script;
  script.fail_call = GetParam().first;
  script.fail_at = GetParam().second;
  script.fail_result = 304;
  const absl::Status status = open(script);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(message_of(status), HasSubstr(GetParam().first));
}
INSTANTIATE_TEST_SUITE_P(, CudaOpeningFails,
                         ::testing::Values(std::pair{"cuInit", 1}, std::pair{"cuDevicePrimaryCtxRetain", 1},
                                           std::pair{"cuModuleLoadData", 1}, std::pair{"cuMemGetInfo", 1},
                                           std::pair{"cuStreamCreate", 3}, std::pair{"cuEventCreate", 300},
                                           std::pair{"cuMemHostAlloc", 2}));

TEST_F(CudaOpening, OfAGoodCard_TellsWhatItIs) {
  reset_fake();
  DeviceProfile profile;
  auto device = open_card(fake_driver(), fake_image(), {}, {}, &profile);
  ASSERT_EQ(device.status(), absl::OkStatus());
  const DeviceCaps& caps = (*device)->caps();
  EXPECT_EQ(caps.backend, "cuda");
  EXPECT_FALSE(caps.unified_memory);
  EXPECT_EQ(caps.hardware_queues, 3U);
  EXPECT_THAT(caps.numerics_class, AllOf(HasSubstr("sm89"), HasSubstr("own")));
  EXPECT_GT(profile.speed(DType::kBfloat16), profile.speed(DType::kFloat32));
  EXPECT_GT(profile.memory_bandwidth, 0);
}

}  // namespace
}  // namespace rondo::devices::cuda::testing
