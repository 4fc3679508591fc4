// Copies through staging memory, on cards whose memory the host does not reach: as much as each half holds, and more.
#include "lane.h"

#include <gtest/gtest.h>

#include <cstring>

#include "card_test.h"
#include "memory.h"
#include "rondo/devices/host_memory.h"

namespace rondo::devices::vulkan {
namespace {

class StagedCopies : public CardTest {};

TEST_F(StagedCopies, OfAnySize_ArriveWhole) {
  constexpr Bytes kMost = 9_MiB + 5;
  if (IsSkipped()) return;
  auto context = Context::make(instance_, card_, "vulkan:0", {.reaches = false});
  ASSERT_EQ(context.status(), absl::OkStatus());
  auto lane = Lane::make(*context, (*context)->transfer(true));
  ASSERT_EQ(lane.status(), absl::OkStatus());
  auto budget = std::make_shared<MemoryBudget>("vulkan:0", kMost + 3);
  ASSERT_EQ(budget->take(kMost + 3), absl::OkStatus());
  auto block = Block::make(*context, kMost + 3, Block::Kind::kDevice);
  ASSERT_EQ(block.status(), absl::OkStatus());
  const Buffer there(std::make_unique<VulkanMemory>(kMost + 3, *std::move(block), context->get(), budget));
  const Buffer from = *allocate_host(kMost, "staged");
  const Buffer back = *allocate_host(kMost, "staged");
  for (Bytes i = 0; i < kMost; ++i) from.view().host()[i] = static_cast<std::byte>(i / 4099 * 31 + i);
  for (const Bytes size : {Bytes{1}, 2_MiB - 1, 2_MiB, 2_MiB + 1, 4_MiB, kMost}) {
    SCOPED_TRACE(size);
    ASSERT_EQ((*lane)->clear(there.view()), absl::OkStatus());
    ASSERT_EQ((*lane)->copy(from.view().part(0, size), there.view().part(3, size)), absl::OkStatus());
    ASSERT_EQ((*lane)->copy(there.view().part(3, size), back.view().part(0, size)), absl::OkStatus());
    EXPECT_EQ(std::memcmp(back.view().host(), from.view().host(), size), 0);
  }
}

}  // namespace
}  // namespace rondo::devices::vulkan
