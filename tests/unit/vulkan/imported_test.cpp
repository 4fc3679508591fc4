// Host memory that the card copies from by itself: what is imported, and where its bytes are found.
#include "imported.h"

#include <cstring>
#include <vector>

#include "card_test.h"
#include "lane.h"
#include "memory.h"

namespace rondo::devices::vulkan {
namespace {

class ImportedMemory : public CardTest {
 protected:
  void SetUp() override {
    CardTest::SetUp();
    if (IsSkipped()) return;
    if (card_.import_grain == 0) GTEST_SKIP() << "the card has no VK_EXT_external_memory_host";
  }

  std::shared_ptr<Context> open(Context::HostAccess access) {
    auto context = Context::make(instance_, card_, "vulkan:0", access);
    EXPECT_EQ(context.status(), absl::OkStatus());
    return *std::move(context);
  }
};

TEST_F(ImportedMemory, OnceForACard_IsOfAllItsBytes) {
  const auto context = open({.reaches = false});
  const Buffer host = *allocate_host(1_MiB + 5, "imported");
  Imported::import(context, host.view().part(77, 3));
  const Imported* imported = Imported::of(*host.view().memory, *context);
  ASSERT_NE(imported, nullptr);
  const Imported::Part part = imported->part(host.view().host() + 1_MiB, 5);
  EXPECT_EQ(part.offset, 1_MiB);
  EXPECT_EQ(part.size, 5U);
  Imported::import(context, host.view());
  EXPECT_EQ(Imported::of(*host.view().memory, *context), imported);
  const auto other = open({.reaches = false});
  EXPECT_EQ(Imported::of(*host.view().memory, *other), nullptr);
}

TEST_F(ImportedMemory, WhereTheHostCopiesOrLittleIsGained_StaysAsItIs) {
  const Buffer small = *allocate_host(1000, "imported");
  const Buffer large = *allocate_host(1_MiB, "imported");
  const auto far = open({.reaches = false});
  Imported::import(far, small.view());
  EXPECT_EQ(Imported::of(*small.view().memory, *far), nullptr);
  Imported::import(far, BufferView{});
  const auto near = open({});
  if (!near->host_writes_device()) return;
  Imported::import(near, large.view());
  EXPECT_EQ(Imported::of(*large.view().memory, *near), nullptr);
}

/// A model has more parameters than some drivers give allocations, which blocks need.
TEST_F(ImportedMemory, PastHalfOfTheDriversAllocations_StaysAsItIs) {
  card_.limits.maxMemoryAllocationCount = 12;
  const auto context = open({.reaches = false});
  std::vector<Buffer> buffers;
  std::size_t imported = 0;
  for (int i = 0; i < 10; ++i) {
    buffers.push_back(*allocate_host(1_MiB, "imported"));
    Imported::import(context, buffers.back().view());
    if (Imported::of(*buffers.back().view().memory, *context) != nullptr) ++imported;
  }
  EXPECT_EQ(imported, 6U);
  buffers[0] = Buffer();
  Imported::import(context, buffers[9].view());
  EXPECT_NE(Imported::of(*buffers[9].view().memory, *context), nullptr);
}

/// Though the host reaches the card's memory.
TEST_F(ImportedMemory, OfEnoughBytes_IsForTheCardToCopy) {
  const auto context = open({.card_copies_from = 1_MiB});
  EXPECT_TRUE(context->card_copies(1_MiB));
  if (!context->host_writes_device()) return;
  EXPECT_FALSE(context->card_copies(1_MiB - 1));
  const Buffer host = *allocate_host(4_MiB, "imported");
  Imported::import(context, host.view().part(0, 1_MiB - 1));
  EXPECT_EQ(Imported::of(*host.view().memory, *context), nullptr);
  Imported::import(context, host.view().part(0, 1_MiB));
  EXPECT_NE(Imported::of(*host.view().memory, *context), nullptr);
}

/// More than the driver takes at once: 4 MiB and a page here.
TEST_F(ImportedMemory, InPieces_IsCopiedAcrossTheirEnds) {
  constexpr Bytes kSize = 10_MiB;
  card_.most_bytes_at_once = 4_MiB + 4096;
  const auto context = open({.reaches = false});
  auto lane = Lane::make(context, context->compute());
  ASSERT_EQ(lane.status(), absl::OkStatus());
  const Buffer host = *allocate_host(kSize, "imported");
  for (Bytes i = 0; i < kSize; ++i) host.view().host()[i] = static_cast<std::byte>(i / 4099 * 31 + i);
  Imported::import(context, host.view());
  const Imported* imported = Imported::of(*host.view().memory, *context);
  ASSERT_NE(imported, nullptr);
  EXPECT_NE(imported->part(host.view().host(), 1).buffer, imported->part(host.view().host() + 9_MiB, 1).buffer);
  EXPECT_EQ(imported->part(host.view().host() + 4_MiB, 5000).size, 4096U);
  auto budget = std::make_shared<MemoryBudget>("vulkan:0", kSize);
  constexpr Bytes kTaken = 4_MiB;
  ASSERT_EQ(budget->take(kTaken), absl::OkStatus());
  auto block = Block::make(context, kTaken, Block::Kind::kDevice);
  ASSERT_EQ(block.status(), absl::OkStatus());
  const Buffer there(std::make_unique<VulkanMemory>(kTaken, *std::move(block), context.get(), budget));
  const BufferView from = host.view().part(2_MiB + 1, kTaken);
  ASSERT_EQ((*lane)->copy(from, there.view()), absl::OkStatus());
  const Buffer back = *allocate_host(kTaken, "imported");
  ASSERT_EQ((*lane)->copy(there.view(), back.view()), absl::OkStatus());
  EXPECT_EQ(std::memcmp(back.view().host(), from.host(), kTaken), 0);
}

}  // namespace
}  // namespace rondo::devices::vulkan
