// Where state lies on a device that holds it: all of it once, in blocks that the device gives.
#include "card_state_layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "rondo/partition/layout.h"
#include "rondo/schedule/shape.h"
#include "tiny_model.h"

namespace rondo::schedule {
namespace {

using Part = CardStateLayout::Part;
using Shared = CardStateLayout::Shared;

/// Some parameters have codes, and some are too small for them; a tied table.
class Layout : public testing::Test {
 protected:
  Layout() {
    model::ModelConfig config = tiny::small_config(true);
    config.vocab_size = 4000;
    model_ = *model::Architecture::make(config, tiny::full(devices::DType::kBfloat16));
    optimizer_.kind = offload::OptimizerKind::kAdamW8Bit;
  }

  /// Every array, by block and offset.
  static std::vector<CardStateLayout::Place> places_of(const CardStateLayout& layout) {
    std::vector<CardStateLayout::Place> places;
    for (std::size_t chunk = 0; chunk < layout.chunks().size(); ++chunk) {
      for (std::size_t part = 0; part < CardStateLayout::kParts; ++part) {
        places.push_back(layout.place(chunk, static_cast<Part>(part)));
      }
    }
    for (std::size_t shared = 0; shared < CardStateLayout::kShared; ++shared) {
      places.push_back(layout.place(static_cast<Shared>(shared)));
    }
    std::erase_if(places, [](const CardStateLayout::Place& place) { return place.size == 0; });
    std::ranges::sort(places, {}, [](const CardStateLayout::Place& p) { return std::pair(p.block, p.offset); });
    return places;
  }

  std::optional<model::Architecture> model_;
  offload::OptimizerSettings optimizer_;
};

TEST_F(Layout, InBlocksOfAnySize_HasEveryArrayOnceAndTakesTheSame) {
  const CardStateLayout whole(*model_, optimizer_);
  EXPECT_EQ(whole.memory().size(), 1U);
  EXPECT_EQ(whole.chunks().size(), 2U) << "codes and numbers";
  for (const Bytes most : {whole.largest_array(), whole.largest_array() + 12345, 3 * whole.largest_array(), 1_MiB}) {
    SCOPED_TRACE(most);
    const CardStateLayout layout(*model_, optimizer_, most);
    EXPECT_GT(layout.memory().size(), 1U);
    EXPECT_LE(std::ranges::max(layout.memory()), std::max(most, layout.largest_array()));
    EXPECT_EQ(layout.bytes(), whole.bytes());
    EXPECT_EQ(layout.update_bytes(), whole.update_bytes());
    EXPECT_EQ(layout.host_bytes(), whole.host_bytes());
    std::size_t block = 0;
    Bytes end = 0;
    for (const CardStateLayout::Place& place : places_of(layout)) {
      if (place.block != block) end = 0;
      block = place.block;
      EXPECT_GE(place.offset, end);
      EXPECT_EQ(place.offset % partition::kAlignment, 0U);
      end = place.offset + place.size;
      EXPECT_LE(end, layout.memory()[block]);
    }
  }
}

TEST_F(Layout, Chunks_HaveEachParameterWholeAndMomentsOfOneKind) {
  const CardStateLayout layout(*model_, optimizer_, 1_MiB);
  EXPECT_GT(layout.chunks().size(), 2U);
  const std::vector<model::ParameterId> order = update_order(*model_);
  ASSERT_EQ(layout.entries().size(), order.size());
  std::vector<std::uint64_t> blocks(layout.chunks().size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const CardStateLayout::Entry& entry = layout.entries()[i];
    const CardStateLayout::Chunk& chunk = layout.chunks()[entry.chunk];
    EXPECT_EQ(entry.id, order[i]);
    EXPECT_EQ(entry.first, (entry.first_block - chunk.first_block) * CardStateLayout::kBlock);
    EXPECT_EQ(entry.first, blocks[entry.chunk] * CardStateLayout::kBlock) << "behind the one before";
    const bool coded = offload::state_layout(optimizer_, entry.elements).first == offload::MomentFormat::kBlocks8;
    EXPECT_EQ(chunk.coded, coded);
    blocks[entry.chunk] += entry.blocks;
    const CardStateLayout::Place& sums = layout.place(entry.chunk, Part::kSums);
    EXPECT_LE((entry.first + entry.elements) * sizeof(float), sums.size);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(blocks[i], layout.chunks()[i].blocks);
}

}  // namespace
}  // namespace rondo::schedule
