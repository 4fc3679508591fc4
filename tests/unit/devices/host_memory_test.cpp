// Host memory is aligned, zeroed, counted, and refused with numbers.
#include "rondo/devices/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "rondo/devices/device.h"

namespace rondo::devices {
namespace {

TEST(AllocateHost, AnySize_IsAlignedAndZeroed) {
  for (const Bytes size : {Bytes{0}, Bytes{1}, Bytes{1000}, Bytes{64_KiB}, Bytes{3_MiB + 5}}) {
    auto buffer = allocate_host(size, "test");
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size(), size);
    const std::byte* data = buffer->view().host();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
    EXPECT_TRUE(std::all_of(data, data + size, [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(AllocateHost, Account_FollowsByPurposeAndInAll) {
  const HostMemoryUse before = host_memory_account()[""];
  {
    auto a = allocate_host(1000, "weights of the test");
    auto b = allocate_host(3_MiB, "weights of the test");
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(host_memory_account()["weights of the test"].now, 1000 + 3_MiB);
    EXPECT_EQ(host_memory_account()[""].now, before.now + 1000 + 3_MiB);
  }
  EXPECT_EQ(host_memory_account()["weights of the test"].now, 0U);
  EXPECT_EQ(host_memory_account()["weights of the test"].peak, 1000 + 3_MiB);
  EXPECT_EQ(host_memory_account()[""].now, before.now);
}

TEST(AllocateHost, MoreThanTheMachineHas_IsRefusedWithNumbers) {
  const auto buffer = allocate_host(Bytes{1} << 50U, "a dream");
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(buffer.status().message()),
              testing::AllOf(testing::HasSubstr("a dream"), testing::HasSubstr("1125899906842624 bytes")));
}

TEST(PhantomHost, HasSizeAndNoMemory) {
  const HostMemoryUse before = host_memory_account()[""];
  const Buffer buffer = phantom_host(Bytes{1} << 50U);
  EXPECT_EQ(buffer.size(), Bytes{1} << 50U);
  EXPECT_EQ(buffer.view().part(10, 20).host(), nullptr);
  EXPECT_EQ(host_memory_account()[""].now, before.now);
}

TEST(ProcessMemory, TouchedPages_Show) {
  const Bytes before = process_memory().now;
  auto buffer = allocate_host(32_MiB, "test");
  ASSERT_TRUE(buffer.ok());
  std::fill_n(buffer->view().host(), 32_MiB, std::byte{1});
  EXPECT_GE(process_memory().now, before + 30_MiB);
  EXPECT_GE(process_memory().peak, process_memory().now);
  EXPECT_GT(available_memory(), 0U);
}

TEST(ProgramMemory, PagesOfTheProgram_CountWhateverItsName) {
  alignas(4096) static const std::array<unsigned char, 1_MiB> table = {1};  // of the program's file
  // They may have come with their neighbours.
  ASSERT_EQ(::madvise(const_cast<unsigned char*>(table.data()), table.size(), MADV_DONTNEED), 0);
  const Bytes before = program_memory();
  const volatile unsigned char* page = table.data();
  for (std::size_t i = 0; i < table.size(); i += 4096) EXPECT_EQ(page[i], i == 0 ? 1 : 0);
  EXPECT_GE(program_memory(), before + table.size() / 2);
}

TEST(ProcessMemory, ResetPeak_BeginsWithWhatIsHeldNow) {
  const Bytes held = process_memory().now;
  {
    auto buffer = allocate_host(64_MiB, "test");
    ASSERT_TRUE(buffer.ok());
    std::fill_n(buffer->view().host(), 64_MiB, std::byte{1});
  }
  EXPECT_GE(process_memory().peak, held + 60_MiB);
  if (::access("/proc/self/clear_refs", W_OK) != 0) GTEST_SKIP() << "the system does not let one";
  reset_process_peak();
  EXPECT_LE(process_memory().peak, held + 30_MiB);
}

}  // namespace
}  // namespace rondo::devices
