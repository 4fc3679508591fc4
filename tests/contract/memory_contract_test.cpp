// What every backend promises about memory: limits, views, copies and clearing.
#include "contract_fixture.h"
#include "rondo/devices/host_memory.h"

namespace rondo::devices::contract {
namespace {

using testing::HasSubstr;

CONTRACT_TEST(Caps_OfAnOpenDevice_AreComplete) {
  const DeviceCaps& caps = device().caps();
  EXPECT_FALSE(caps.name.empty());
  EXPECT_FALSE(caps.backend.empty());
  EXPECT_FALSE(caps.description.empty());
  EXPECT_FALSE(caps.numerics_class.empty());
  EXPECT_EQ(caps.memory_bytes, kMemory);
  EXPECT_GE(caps.hardware_queues, 1U);
}

CONTRACT_TEST(Allocate_BeyondTheMemory_IsRefusedWithNumbersAndHarmsNothing) {
  const Buffer first = allocate(48_MiB);
  const auto refused = device().allocate(32_MiB, MemoryKind::kDevice);
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string message(refused.status().message());
  EXPECT_THAT(message, HasSubstr(std::to_string(32_MiB)));
  EXPECT_THAT(message, HasSubstr(std::to_string(16_MiB)));
  EXPECT_THAT(message, HasSubstr(std::to_string(kMemory)));
  EXPECT_EQ(device().allocated_bytes(), 48_MiB);
  EXPECT_EQ(allocate(16_MiB).size(), 16_MiB);
}

CONTRACT_TEST(Allocate_AndFree_ReturnsTheBytesAndRemembersThePeak) {
  {
    const Buffer a = allocate(10_MiB);
    const Buffer b = allocate(20_MiB);
    EXPECT_EQ(device().allocated_bytes(), 30_MiB);
  }
  const Buffer c = allocate(kMemory);
  EXPECT_EQ(c.size(), kMemory);
  EXPECT_EQ(device().peak_bytes(), kMemory);
}

CONTRACT_TEST(Allocate_Pinned_DoesNotCountAsDeviceMemory) {
  const auto pinned = device().allocate(1_MiB, MemoryKind::kPinned);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_EQ(pinned->size(), 1_MiB);
  EXPECT_EQ(device().allocated_bytes(), 0U);
}

CONTRACT_TEST(Allocate_OfMemoryInTheProcess_IsResident) {
  if (!device().caps().memory_in_process) GTEST_SKIP() << "the device has memory of its own";
  reset_process_peak();  // gives back what was freed before
  const Bytes before = process_memory().now;
  const Buffer here = allocate(32_MiB);
  const auto done = timeline();
  compute().clear(here.view(), {}, {done.get(), 1}, {"contract"});
  ASSERT_TRUE(done->wait(1, patience()).ok());
  EXPECT_GE(process_memory().now, before + 30_MiB);
}

CONTRACT_TEST(Copy_UpAndDown_KeepsEveryByte) {
  const Buffer data = pattern(100'003, 1);
  const Buffer here = allocate(100'003);
  ASSERT_TRUE(copy(up(), data.view(), here.view()).ok());
  expect_contents(here.view(), data.view());
  // A part, at odd offsets.
  const Buffer more = pattern(1001, 9);
  ASSERT_TRUE(copy(up(), more.view(), here.view().part(777, 1001)).ok());
  expect_contents(here.view().part(777, 1001), more.view());
  expect_contents(here.view().part(0, 777), data.view().part(0, 777));
  expect_contents(here.view().part(1778, 5000), data.view().part(1778, 5000));
}

CONTRACT_TEST(Copy_OfMemoryThatWasExpected_BringsWhatLiesThereThen) {
  constexpr Bytes kSize = 5_MiB + 123;
  const Buffer here = allocate(kSize);
  for (unsigned seed = 1; seed < 4; ++seed) {  // memory comes and goes, often to the same place
    const Buffer data = pattern(kSize, seed);
    device().expect_copies(data.view(), QueueRole::kUp);
    device().expect_copies(data.view().part(1, 2), QueueRole::kDown);
    const Buffer later = pattern(kSize, seed + 10);
    std::memcpy(data.view().host(), later.view().host(), kSize);
    ASSERT_TRUE(copy(up(), data.view(), here.view()).ok());
    expect_contents(here.view(), later.view());
    ASSERT_TRUE(copy(up(), data.view().part(4'000'001, 777), here.view().part(33, 777)).ok());
    expect_contents(here.view().part(33, 777), later.view().part(4'000'001, 777));
    ASSERT_TRUE(copy(down(), here.view(), data.view()).ok());
    EXPECT_TRUE(same_bytes(data.view().part(33, 777), later.view().part(4'000'001, 777)));
  }
}

CONTRACT_TEST(Copy_WithinTheDevice_MovesTheView) {
  const Buffer data = pattern(4096, 3);
  const Buffer a = allocate(8192);
  ASSERT_TRUE(copy(up(), data.view(), a.view().part(0, 4096)).ok());
  ASSERT_TRUE(copy(compute(), a.view().part(0, 4096), a.view().part(4096, 4096)).ok());
  expect_contents(a.view().part(4096, 4096), data.view());
}

CONTRACT_TEST(Clear_PartOfABuffer_LeavesTheRest) {
  const Buffer data = pattern(3000, 5);
  const Buffer here = allocate(3000);
  const auto done = timeline();
  ASSERT_TRUE(copy(up(), data.view(), here.view()).ok());
  compute().clear(here.view().part(1000, 1000), {}, {done.get(), 1}, {"contract"});
  ASSERT_TRUE(done->wait(1, patience()).ok());
  const Buffer expected = pattern(3000, 5);
  std::byte* bytes = expected.view().host();
  ASSERT_NE(bytes, nullptr);
  std::memset(bytes + 1000, 0, 1000);
  expect_contents(here.view(), expected.view());
}

}  // namespace
}  // namespace rondo::devices::contract
