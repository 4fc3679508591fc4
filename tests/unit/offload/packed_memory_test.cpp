#include "rondo/offload/packed_memory.h"

#include <gtest/gtest.h>

#include <cstring>

namespace rondo::offload {
namespace {

TEST(PackedMemory, ShortThingsOfAGroupLieBehindOneAnother) {
  PackedMemory memory;
  const std::size_t first = memory.add(7, 100);
  const std::size_t other = memory.add(8, 64);
  const std::size_t second = memory.add(7, 300);
  const std::size_t third = memory.add(7, 8);
  ASSERT_TRUE(memory.allocate("weights", false).ok());
  EXPECT_EQ(memory.view(first).size, 100);
  EXPECT_EQ(memory.view(second).offset, 256);
  EXPECT_EQ(memory.view(third).offset, 768);
  EXPECT_TRUE(follows(memory.view(first), memory.view(second)));
  EXPECT_TRUE(follows(memory.view(second), memory.view(third)));
  EXPECT_FALSE(follows(memory.view(first), memory.view(third)));
  EXPECT_FALSE(follows(memory.view(second), memory.view(first)));
  EXPECT_NE(memory.view(other).memory, memory.view(first).memory);
  EXPECT_FALSE(follows(memory.view(first), memory.view(other)));
}

TEST(PackedMemory, JoinedReachesFromTheFirstToTheEndOfTheLast) {
  PackedMemory memory;
  const std::size_t first = memory.add(0, 100);
  const std::size_t second = memory.add(0, 300);
  ASSERT_TRUE(memory.allocate("weights", false).ok());
  const devices::BufferView both = joined(memory.view(first), memory.view(second));
  EXPECT_EQ(both.offset, 0);
  EXPECT_EQ(both.size, 556);
  std::memset(both.host(), 1, both.size);
  EXPECT_EQ(memory.view(second).host()[299], std::byte{1});
}

TEST(PackedMemory, LongThingsHaveBuffersOfTheirOwn) {
  PackedMemory memory;
  const std::size_t first = memory.add(0, 16);
  const std::size_t second = memory.add(0, PackedMemory::kLongest + 1);
  const std::size_t third = memory.add(0, 16);
  ASSERT_TRUE(memory.allocate("weights", false).ok());
  EXPECT_NE(memory.view(first).memory, memory.view(second).memory);
  EXPECT_EQ(memory.view(second).offset, 0);
  EXPECT_TRUE(follows(memory.view(first), memory.view(third)));
}

TEST(PackedMemory, PhantomMemoryCountsButIsNotThere) {
  PackedMemory memory;
  const std::size_t thing = memory.add(0, 1_GiB);
  ASSERT_TRUE(memory.allocate("weights", true).ok());
  EXPECT_EQ(memory.view(thing).size, 1_GiB);
  EXPECT_EQ(memory.view(thing).host(), nullptr);
}

TEST(PackedMemory, NothingFollowsAnEmptyView) { EXPECT_FALSE(follows({}, {})); }

}  // namespace
}  // namespace rondo::offload
