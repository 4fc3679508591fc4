// A card that the driver has lost: every later piece of work is an error that says so, and nothing is submitted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "card_test.h"
#include "lane.h"
#include "memory.h"

namespace rondo::devices::vulkan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class LostCard : public CardTest {
 protected:
  void SetUp() override {
    CardTest::SetUp();
    if (IsSkipped()) return;
    auto context = Context::make(instance_, card_, "vulkan:0", {});
    ASSERT_EQ(context.status(), absl::OkStatus());
    context_ = *std::move(context);
    auto lane = Lane::make(context_, context_->compute());
    ASSERT_EQ(lane.status(), absl::OkStatus());
    lane_ = *std::move(lane);
    auto block = Block::make(context_, 4096, Block::Kind::kDevice);
    ASSERT_EQ(block.status(), absl::OkStatus());
    auto budget = std::make_shared<MemoryBudget>("vulkan:0", 4096);
    ASSERT_EQ(budget->take(4096), absl::OkStatus());
    buffer_ = Buffer(std::make_unique<VulkanMemory>(4096, *std::move(block), context_.get(), std::move(budget)));
  }

  std::shared_ptr<Context> context_;
  std::unique_ptr<Lane> lane_;
  Buffer buffer_;
};

TEST_F(LostCard, Work_IsUnavailableAndSaysWhy) {
  ASSERT_EQ(lane_->clear(buffer_.view()), absl::OkStatus());
  EXPECT_EQ(context_->check(VK_ERROR_DEVICE_LOST, "submitting work").code(), absl::StatusCode::kUnavailable);
  const absl::Status cleared = lane_->clear(buffer_.view());
  EXPECT_EQ(cleared.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(cleared.message()), AllOf(HasSubstr("vulkan:0"), HasSubstr("VK_ERROR_DEVICE_LOST")));
  const Buffer host = *allocate_host(64, "lost card");
  EXPECT_EQ(lane_->copy(buffer_.view().part(0, 64), host.view()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(LostCard, OutOfMemory_IsAValueAndLosesNothing) {
  EXPECT_EQ(context_->check(VK_ERROR_OUT_OF_DEVICE_MEMORY, "making a buffer").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(context_->lost(), absl::OkStatus());
  const auto huge = Block::make(context_, context_->card().most_bytes_at_once + 1, Block::Kind::kDevice);
  EXPECT_EQ(huge.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(huge.status().message()), HasSubstr(std::to_string(context_->card().most_bytes_at_once)));
}

}  // namespace
}  // namespace rondo::devices::vulkan
