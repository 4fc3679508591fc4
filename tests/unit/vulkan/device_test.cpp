// What a Vulkan device refuses and how it says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "patience.h"
#include "rondo/devices/pool.h"
#include "vulkan_case.h"

namespace rondo::devices::testing {
namespace {

using ::testing::HasSubstr;

class VulkanDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto card = usable_card();
    if (!card) GTEST_SKIP() << "no Vulkan card on this machine, or no Vulkan in this build";
    auto device = open_card(*card, true);
    ASSERT_EQ(device.status(), absl::OkStatus());
    device_ = *std::move(device);
  }

  static OpCase make(const std::string& name, DType storage) {
    for (const OpDescription& description : op_descriptions()) {
      if (name == description.name) return description.make(storage, Scale::kOdd);
    }
    ADD_FAILURE() << "no op case " << name;
    return {};
  }

  std::unique_ptr<Device> device_;
};

TEST_F(VulkanDevice, IdPastTheTable_FailsTheRunByName) {
  const OpCase op_case = make("Embedding", DType::kFloat32);
  auto memory = CaseMemory::make(op_case, 1);
  ASSERT_EQ(memory.status(), absl::OkStatus());
  const OpList list = single_op(op_case.list, 0);
  reinterpret_cast<std::int32_t*>(memory->data(list.ops[0].reads[0]))[3] = 131;
  const absl::Status status = run_on_card(*device_, list, *memory);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("token 3 has id 131"));
}

TEST_F(VulkanDevice, TargetPastTheVocabulary_FailsTheRunByName) {
  const OpCase op_case = make("CrossEntropy_LossOnly", DType::kFloat32);
  auto memory = CaseMemory::make(op_case, 1);
  ASSERT_EQ(memory.status(), absl::OkStatus());
  reinterpret_cast<std::int32_t*>(memory->data(op_case.list.ops[0].reads[2]))[5] = 131;
  const absl::Status status = run_on_card(*device_, op_case.list, *memory);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("token 5 has target 131"));
}

TEST_F(VulkanDevice, Fp16_IsUnimplemented) {
  const OpCase op_case = make("MatMul", DType::kFloat16);
  const absl::Status status = device_->compile(op_case.list, plan_arena(op_case.list)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("fp16"));
}

TEST_F(VulkanDevice, CardThatIsNotThere_IsRefusedWithThoseThatAre) {
  vulkan::VulkanOptions options;
  options.name = "vulkan:99";
  options.index = 99;
  const auto device = vulkan::open_vulkan(options);
  EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("vulkan:0"));
}

TEST_F(VulkanDevice, MemoryOfAnotherDevice_IsRefusedByName) {
  auto other = open_card(*usable_card(), true);
  ASSERT_EQ(other.status(), absl::OkStatus());
  const auto mine = device_->allocate(64, MemoryKind::kDevice);
  const auto theirs = (*other)->allocate(64, MemoryKind::kDevice);
  const auto line = device_->timeline();
  ASSERT_TRUE(mine.ok() && theirs.ok() && line.ok());
  device_->queue(QueueRole::kCompute).copy(theirs->view(), mine->view(), {}, {line->get(), 1}, {"foreign"});
  const absl::Status status = (*line)->wait(1, test::patience());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'foreign'"));
}

std::vector<std::string> names_in_pool(const std::string& devices) {
  ThreadPool threads(1);
  const auto pool = open_pool({devices, ""}, threads);
  EXPECT_TRUE(pool.ok()) << pool.status();
  std::vector<std::string> names;
  if (!pool.ok()) return names;
  for (const PoolMember& member : *pool) {
    names.push_back(member.device->caps().name);
    EXPECT_GT(member.profile.speed(DType::kFloat32), 0);
    EXPECT_GT(member.profile.memory_bytes, 0U);
  }
  return names;
}

TEST_F(VulkanDevice, InAPool_BearsItsNumber) {
  const std::string name = "vulkan:" + std::to_string(usable_card()->index);
  EXPECT_THAT(names_in_pool("cpu," + name + "*2"), ::testing::ElementsAre("cpu:0", name, name + ":1"));
  EXPECT_THAT(names_in_pool("all"), ::testing::IsSupersetOf({std::string("cpu:0"), name}));
}

TEST(Pool, Auto_TakesCardsButNoSoftware) {
  std::vector<std::string> expected;
  if (const auto cards = vulkan::list_cards(); cards.ok()) {
    for (const vulkan::CardInfo& card : *cards) {
      if (card.unsuitable.empty() && !card.software) expected.push_back("vulkan:" + std::to_string(card.index));
    }
  }
  if (expected.empty()) expected.push_back("cpu:0");
  EXPECT_THAT(names_in_pool("auto"), ::testing::ElementsAreArray(expected));
}

TEST_F(VulkanDevice, MemoryThatOutlivesItsDevice_IsFreedAfterIt) {
  auto buffer = device_->allocate(4096, MemoryKind::kDevice);
  ASSERT_TRUE(buffer.ok());
  device_.reset();
  EXPECT_EQ(buffer->size(), 4096U);
}

}  // namespace
}  // namespace rondo::devices::testing
