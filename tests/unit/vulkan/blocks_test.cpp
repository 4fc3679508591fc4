// Small blocks of a card's memory, which share the driver's: where they lie, how often the driver is asked, and that
// what is given back is used again.
#include <cstring>
#include <thread>

#include "block.h"
#include "card_test.h"
#include "program.h"

namespace rondo::devices::vulkan {
namespace {

constexpr Bytes kTogether = 1_MiB;  // what small blocks are pieces of

/// With and without memory that the host reaches, under the validation layer.
class SmallBlocksOfACard : public CardTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    CardTest::SetUp();
    if (IsSkipped()) return;
    auto instance = Instance::make([](const std::string& message) { ADD_FAILURE() << message; });
    ASSERT_EQ(instance.status(), absl::OkStatus());
    const auto cards = (*instance)->cards();
    ASSERT_EQ(cards.status(), absl::OkStatus());
    auto context = Context::make(*std::move(instance), cards->front(), "vulkan:0", {.reaches = GetParam()});
    ASSERT_EQ(context.status(), absl::OkStatus());
    context_ = *std::move(context);
  }
  Block small(Bytes size, Block::Kind kind) {
    auto block = Block::make_small(context_, size, kind);
    EXPECT_EQ(block.status(), absl::OkStatus());
    return block.ok() ? *std::move(block) : Block();
  }

  std::shared_ptr<Context> context_;
};
INSTANTIATE_TEST_SUITE_P(, SmallBlocksOfACard, testing::Bool());

TEST_P(SmallBlocksOfACard, LieApartInMemoryOfTheDriversThatTheyShare) {
  for (const auto kind : {Block::Kind::kStaging, Block::Kind::kDevice}) {
    const std::size_t before = context_->allocations();
    std::vector<Block> blocks;
    for (Bytes i = 0; i < 1000; ++i) blocks.push_back(small(1 + i * 7, kind));
    const std::size_t asked = context_->allocations() - before;
    EXPECT_GE(asked, 3U);  // 3.5 MB
    EXPECT_LE(asked, 5U);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(blocks[i].begin() % 256, 0U);
      EXPECT_LE(blocks[i].begin() + blocks[i].size(), kTogether);
      if (blocks[i].host() != nullptr) std::memset(blocks[i].host(), static_cast<int>(i % 251), blocks[i].size());
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].host() == nullptr) continue;
      EXPECT_EQ(blocks[i].host()[0], static_cast<std::byte>(i % 251));
      EXPECT_EQ(blocks[i].host()[blocks[i].size() - 1], static_cast<std::byte>(i % 251));
    }
  }
}

TEST_P(SmallBlocksOfACard, Larger_HaveMemoryOfTheirOwn) {
  const Block one = small(SmallBlocks::kLargest, Block::Kind::kStaging);
  const Block other = small(SmallBlocks::kLargest, Block::Kind::kStaging);
  EXPECT_EQ(other.buffer(), one.buffer());
  EXPECT_NE(other.begin(), one.begin());
  const std::size_t before = context_->allocations();
  const Block large = small(SmallBlocks::kLargest + 1, Block::Kind::kStaging);
  EXPECT_EQ(context_->allocations(), before + 1);
  EXPECT_NE(large.buffer(), one.buffer());
  EXPECT_EQ(large.begin(), 0U);
}

/// But for one that is kept.
TEST_P(SmallBlocksOfACard, WhenTheyDie_LeaveMemoryThatIsUsedAgainOrGivenBack) {
  const auto fill = [&](std::size_t count) {
    std::vector<Block> blocks;
    for (std::size_t i = 0; i < count; ++i) blocks.push_back(small(SmallBlocks::kLargest, Block::Kind::kDevice));
    return blocks;
  };
  const std::size_t before = context_->allocations();
  fill(24);
  EXPECT_EQ(context_->allocations() - before, 3U);
  for (int i = 0; i < 5; ++i) fill(8);
  EXPECT_EQ(context_->allocations() - before, 3U);
  fill(24);
  EXPECT_EQ(context_->allocations() - before, 5U);
}

TEST_P(SmallBlocksOfACard, OfSeveralThreads_AreTheirOwn) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      for (int turn = 0; turn < 20; ++turn) {
        std::vector<Block> blocks;
        for (Bytes i = 0; i < 30; ++i) {
          blocks.push_back(small(100 + i * 3000, Block::Kind::kStaging));
          if (blocks.back().host() == nullptr) return;
          std::memset(blocks.back().host(), thread, blocks.back().size());
        }
        for (const Block& block : blocks) {
          EXPECT_EQ(block.host()[0], static_cast<std::byte>(thread));
          EXPECT_EQ(block.host()[block.size() - 1], static_cast<std::byte>(thread));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Codes of NF4 to numbers, by tables that are constants.
OpList list_of_expansion() {
  OpList list;
  list.tokens = 1;
  list.tensors = {{"codes", {64, 64}, DType::kFloat32, TensorRole::kWeight, 0},
                  {"numbers", {64, 64}, DType::kFloat32, TensorRole::kOutput, 0}};
  list.tensors[0].encoding = Encoding::kNf4;
  list.ops = {{OpKind::kExpand, NoAttributes{}, {0}, {1}}};
  return list;
}

TEST_P(SmallBlocksOfACard, OfManyPrograms_AskTheDriverForLittle) {
  const auto pipelines = std::make_shared<Pipelines>(context_, "");
  ASSERT_EQ(pipelines->prepare(), absl::OkStatus());
  const OpList list = list_of_expansion();
  const std::size_t before = context_->allocations();
  const auto compile = [&](std::size_t count) {
    std::vector<std::unique_ptr<VulkanProgram>> programs;
    for (std::size_t i = 0; i < count; ++i) {
      auto program = VulkanProgram::make(context_, pipelines, list, plan_arena(list), {});
      ASSERT_EQ(program.status(), absl::OkStatus());
      programs.push_back(*std::move(program));
    }
  };
  compile(200);
  const std::size_t asked = context_->allocations() - before;
  EXPECT_GE(asked, 2U);
  EXPECT_LE(asked, 4U);
  compile(200);
  EXPECT_LE(context_->allocations() - before, asked + 2);
}

}  // namespace
}  // namespace rondo::devices::vulkan
