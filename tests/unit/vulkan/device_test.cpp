// What a Vulkan device refuses and how it says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "patience.h"
#include "rondo/base/float16.h"
#include "rondo/devices/host_memory.h"
#include "rondo/devices/pool.h"
#include "vulkan_case.h"

namespace rondo::devices::testing {
namespace {

using ::testing::HasSubstr;

class VulkanDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto card = test::usable_vulkan_card();
    if (!card) GTEST_SKIP() << test::kNoVulkanCard;
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
  reinterpret_cast<std::int32_t*>(memory->data(op_case.list.ops[0].reads[1]))[5] = 131;
  const absl::Status status = run_on_card(*device_, op_case.list, *memory);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("token 5 has target 131"));
}

/// One number a kernel: every bit pattern as it comes, and what lies between two of them, added to 0.
TEST_F(VulkanDevice, Fp16_IsReadAndRoundedAsTheReferenceDoes) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0x7C00; bits += 7) {
    const float value = from_float16(static_cast<std::uint16_t>(bits));
    const float next = from_float16(static_cast<std::uint16_t>(bits + 1));
    const float middle = std::isinf(next) ? 65520.0F : value + (next - value) / 2;
    values.insert(values.end(), {value, -value, middle, std::nextafter(middle, 0.0F), -std::nextafter(middle, 1e9F)});
  }
  const float infinity = std::numeric_limits<float>::infinity();
  values.insert(values.end(), {0x1p-25F, 0x1.000002p-25F, 0x1p-26F, 65504.0F, 65519.99F, 65520.0F, 1e30F, infinity,
                               -infinity, std::numeric_limits<float>::quiet_NaN()});
  CaseBuilder b(DType::kFloat16, 16);
  const auto n = static_cast<std::int64_t>(values.size());
  // One column: a product of x with 1 is x.
  const TensorId x = b.input("x", {n, 1}), w = b.weight("w", {1, 1}), y = b.output("y", {n, 1});
  const TensorId wide = b.output("wide", {n, 1}, DType::kFloat32), back = b.input("back", {n, 1});
  b.result().list.tensors[x].dtype = DType::kFloat32;
  b.op(OpKind::kMatMul, {x, w}, {y}, MatMulAttributes{});
  b.op(OpKind::kMatMul, {back, w}, {wide}, MatMulAttributes{});
  absl::StatusOr<CaseMemory> memory = CaseMemory::make(b.result(), 1);
  ASSERT_EQ(memory.status(), absl::OkStatus());
  memory->set(w, 0, 1);
  for (std::int64_t i = 0; i < n; ++i) {
    memory->set(x, i, static_cast<double>(values[static_cast<std::size_t>(i)]));
    memory->set(back, i, static_cast<double>(values[static_cast<std::size_t>(i)]));
  }
  ASSERT_EQ(run_on_card(*device_, b.result().list, *memory), absl::OkStatus());
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = values[static_cast<std::size_t>(i)];
    const float want = from_float16(to_float16(value));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(memory->get(y, i)));
      EXPECT_TRUE(std::isnan(memory->get(wide, i)));
    } else {
      EXPECT_EQ(memory->get(y, i), static_cast<double>(want)) << value;
      EXPECT_EQ(memory->get(wide, i), static_cast<double>(want)) << value;
    }
  }
}

TEST_F(VulkanDevice, CardThatIsNotThere_IsRefusedWithThoseThatAre) {
  vulkan::VulkanOptions options;
  options.name = "vulkan:99";
  options.index = 99;
  const auto device = vulkan::open_vulkan(options);
  EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("vulkan:0"));
}

TEST_F(VulkanDevice, BlockLargerThanTheDriverGives_IsRefusedWithTheNumbers) {
  const auto opened =
      open_card(*test::usable_vulkan_card(), false, {.most_block_bytes = 1_MiB, .separate_blocks = true});
  ASSERT_EQ(opened.status(), absl::OkStatus());
  EXPECT_EQ((*opened)->caps().most_block_bytes, 1_MiB);
  EXPECT_EQ((*opened)->allocate(1_MiB, MemoryKind::kDevice).status(), absl::OkStatus());
  const absl::Status refused = (*opened)->allocate(1_MiB + 1, MemoryKind::kDevice).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("1048577 bytes) asked, the driver gives at most 1048576"));
}

TEST_F(VulkanDevice, MemoryOfAnotherDevice_IsRefusedByName) {
  auto other = open_card(*test::usable_vulkan_card(), true);
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

/// Where the card is a processor: machine code of pipelines, the workspace, the panel and the card's memory are this
/// process's, and all there before the first run.
TEST_F(VulkanDevice, FirstRun_TakesNoMemoryThatWasNotThereBefore) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts as the process's";
  auto opened = open_card(*test::usable_vulkan_card(), false);
  ASSERT_EQ(opened.status(), absl::OkStatus());
  Device& device = **opened;
  if (!device.caps().memory_in_process) GTEST_SKIP() << "the card has memory of its own";
  CaseBuilder b(DType::kFloat32, 1024);
  const TensorId x = b.input("x", {1024, 1024}), w = b.weight("w", {1024, 1024}), y = b.output("y", {1024, 1024});
  b.op(OpKind::kMatMul, {x, w}, {y}, MatMulAttributes{});
  const OpList& list = b.result().list;
  const auto program = device.compile(list, plan_arena(list));
  ASSERT_EQ(program.status(), absl::OkStatus());
  std::vector<Buffer> buffers;
  Bindings bindings;
  for (const TensorDesc& tensor : list.tensors) {
    auto buffer = device.allocate(tensor.bytes(), MemoryKind::kDevice);
    ASSERT_EQ(buffer.status(), absl::OkStatus());
    bindings.tensors.push_back(buffer->view());
    buffers.push_back(*std::move(buffer));
  }
  const auto line = device.timeline();
  ASSERT_EQ(line.status(), absl::OkStatus());
  const Bytes before = process_memory().now;
  device.queue(QueueRole::kCompute).run(**program, bindings, {}, {(*line).get(), 1}, {"first"});
  ASSERT_EQ((*line)->wait(1, test::patience()), absl::OkStatus());
  EXPECT_LT(process_memory().now, before + 2_MiB);
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
  const std::string name = "vulkan:" + std::to_string(test::usable_vulkan_card()->index);
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

/// Mesa's rasteriser has nothing to say and leaves no file; asking is to do no harm.
TEST(VulkanStatistics, AskedFor_AreALineForEachPipelineWhereTheDriverHasThem) {
  const auto card = test::usable_vulkan_card();
  if (!card) GTEST_SKIP() << test::kNoVulkanCard;
  const std::string path = ::testing::TempDir() + "vulkan_statistics";
  setenv("RONDO_VULKAN_STATISTICS", path.c_str(), 1);
  const auto device = open_card(*card, true);
  unsetenv("RONDO_VULKAN_STATISTICS");
  ASSERT_EQ(device.status(), absl::OkStatus());
  OpCase op_case;
  for (const OpDescription& description : op_descriptions()) {
    if (std::string(description.name) == "Rope") op_case = description.make(DType::kFloat32, Scale::kOdd);
  }
  const auto memory = CaseMemory::make(op_case, 1);
  ASSERT_EQ(memory.status(), absl::OkStatus());
  EXPECT_EQ(run_on_card(**device, single_op(op_case.list, 0), *memory), absl::OkStatus());
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) EXPECT_THAT(line, ::testing::AllOf(HasSubstr("rope("), HasSubstr("subgroup ")));
}

}  // namespace
}  // namespace rondo::devices::testing
