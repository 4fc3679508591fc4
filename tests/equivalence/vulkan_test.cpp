// Runs on Vulkan cards: the same bits on one and on several of a kind, and the CPU's losses within the table's bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "rondo/devices/vulkan/vulkan_device.h"
#include "tiny_model.h"
#include "tiny_run.h"
#include "variant.h"
#include "vulkan_card.h"

namespace rondo::tiny {
namespace {

using devices::DType;
using devices::Encoding;
using devices::vulkan::Use;
using devices::vulkan::VulkanOptions;

/// The state of the models here takes more, their largest arrays less.
constexpr Bytes kMostAtOnce = 1_MiB;

class VulkanPools : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    const auto card = test::usable_vulkan_card();
    if (!card) GTEST_SKIP() << test::kNoVulkanCard;
    index_ = card->index;
    card_ = "vulkan:" + std::to_string(index_);
    matrix_units_ = card->matrix_units;
    const data::Dataset dataset = random_samples(61, 5, 32, 24);
    model_.emplace(model_of(GetParam()));
    job_.steps = steps_of(dataset, {5, 5, 3});
    job_.reduction_group = 2;
    job_.fill = [](const model::Architecture& model, offload::ParameterStore& store) { fill_weights(model, 9, store); };
  }

  /// The pool's cards opened with `options`, one layer a stage. What the last one can do is then in caps_.
  Placement opened(const std::string& pool, VulkanOptions options) {
    Placement placement{pool, pool};
    placement.stages = one_layer_each(*model_);
    options.index = index_;
    placement.change_pool = [this, options](std::vector<devices::PoolMember>& members) {
      for (devices::PoolMember& member : members) {
        VulkanOptions own = options;
        own.name = member.device->caps().name;
        auto device = devices::vulkan::open_vulkan(own);
        ASSERT_EQ(device.status(), absl::OkStatus());
        caps_ = (*device)->caps();
        member.device = *std::move(device);
      }
    };
    return placement;
  }

  std::string card_;
  std::uint32_t index_ = 0;
  bool matrix_units_ = false;
  devices::DeviceCaps caps_;
  std::optional<model::Architecture> model_;
  Job job_;
};

TEST_P(VulkanPools, OneCardOrThree_GiveTheSameBits) {
  const Trace one = trace_of(*model_, job_, {"one", card_});
  ASSERT_EQ(one.loss_sums.size(), 3U);
  EXPECT_GT(one.norms[0], 0);
  Placement three{"three", card_ + "*3"};
  for (const bool cut : {false, true}) {
    if (cut) three.stages = one_layer_each(*model_);
    const Trace trace = trace_of(*model_, job_, three);
    EXPECT_EQ(trace.loss_sums, one.loss_sums);
    EXPECT_EQ(trace.norms, one.norms);
    EXPECT_TRUE(trace.bytes == one.bytes);
  }
}

/// Passes all on, and keeps the sizes of what copies are expected from.
class Listening final : public devices::Device {
 public:
  Listening(std::unique_ptr<devices::Device> device, std::multiset<Bytes>& expected)
      : device_(std::move(device)), expected_(expected) {}
  const devices::DeviceCaps& caps() const override { return device_->caps(); }
  absl::StatusOr<devices::Buffer> allocate(Bytes size, devices::MemoryKind kind) override {
    return device_->allocate(size, kind);
  }
  void expect_copies(devices::BufferView host, devices::QueueRole direction) override {
    if (direction == devices::QueueRole::kUp) expected_.insert(host.size);
    device_->expect_copies(host, direction);
  }
  absl::StatusOr<std::unique_ptr<devices::Program>> compile(const devices::OpList& list,
                                                            const devices::ArenaLayout& layout) override {
    return device_->compile(list, layout);
  }
  absl::StatusOr<std::unique_ptr<devices::Timeline>> timeline() override { return device_->timeline(); }
  devices::Queue& queue(devices::QueueRole role) override { return device_->queue(role); }
  void observe(devices::WorkObserver* observer) override { device_->observe(observer); }
  Bytes allocated_bytes() const override { return device_->allocated_bytes(); }
  Bytes peak_bytes() const override { return device_->peak_bytes(); }

 private:
  const std::unique_ptr<devices::Device> device_;
  std::multiset<Bytes>& expected_;
};

/// Weights that the card fetches from where they lie, streamed and kept.
TEST_P(VulkanPools, WhereTheCardCopies_GiveTheSameBits) {
  const Trace near = trace_of(*model_, job_, {"near", card_});
  for (const auto& [stays, reaches] : {std::pair{0U, true}, {0U, false}, {2U, false}}) {
    std::multiset<Bytes> expected;  // sizes
    Placement placement{"far", card_};
    placement.stages = one_layer_each(*model_);
    placement.stays = stays;
    placement.change_pool = [this, &expected, reaches = reaches](std::vector<devices::PoolMember>& pool) {
      VulkanOptions options;
      options.name = card_;
      options.index = index_;
      options.host_reaches = reaches;
      options.card_copies_from = 0;
      auto far = devices::vulkan::open_vulkan(options);
      ASSERT_EQ(far.status(), absl::OkStatus());
      pool[0].device = std::make_unique<Listening>(*std::move(far), expected);
    };
    const Trace trace = trace_of(*model_, job_, placement);
    EXPECT_EQ(trace.loss_sums, near.loss_sums);
    EXPECT_EQ(trace.norms, near.norms);
    EXPECT_TRUE(trace.bytes == near.bytes);
    std::multiset<Bytes> weights;
    for (const model::Parameter& parameter : model_->parameters()) {
      if (stays == 0 || parameter.trained) weights.insert(parameter.bytes(model_->method().dtype));
    }
    EXPECT_TRUE(std::ranges::includes(expected, weights));
  }
}

/// Where all weights stay, which no block of the card's memory could hold together.
TEST_P(VulkanPools, OfLittleMemoryAtOnce_GiveTheSameBits) {
  model::ModelConfig config = model_->config();
  config.vocab_size = 4000;
  model_ = *model::Architecture::make(config, model_->method());
  Bytes weights = 0;
  for (const model::Parameter& parameter : model_->parameters()) weights += parameter.bytes(model_->method().dtype);
  const Trace whole = trace_of(*model_, job_, {"whole", card_});
  Placement placement = opened(card_, {.most_block_bytes = weights - 1, .separate_blocks = true});
  placement.stays = 1;
  const Trace trace = trace_of(*model_, job_, placement);
  EXPECT_EQ(caps_.most_block_bytes, weights - 1);
  EXPECT_EQ(trace.loss_sums, whole.loss_sums);
  EXPECT_EQ(trace.norms, whole.norms);
  EXPECT_TRUE(trace.bytes == whole.bytes);
}

/// Kernels that nothing keeps apart, the last of them first.
TEST_P(VulkanPools, WhatIsUnderWayTogether_InEitherOrder_GivesTheSameBits) {
  const Trace forwards = trace_of(*model_, job_, opened(card_, {}));
  const Trace backwards = trace_of(*model_, job_, opened(card_, {.backwards = true}));
  EXPECT_EQ(backwards.loss_sums, forwards.loss_sums);
  EXPECT_EQ(backwards.norms, forwards.norms);
  EXPECT_TRUE(backwards.bytes == forwards.bytes);
}

/// As if each of them took long.
TEST_P(VulkanPools, DispatchesInParts_GiveTheSameBits) {
  const Trace whole = trace_of(*model_, job_, opened(card_, {}));
  const Trace parts = trace_of(*model_, job_, opened(card_, {.parts = 3}));
  EXPECT_EQ(parts.loss_sums, whole.loss_sums);
  EXPECT_EQ(parts.norms, whole.norms);
  EXPECT_TRUE(parts.bytes == whole.bytes);
}

TEST_P(VulkanPools, WithTheCpu_FollowTheCpusLosses) {
  // bf16 rounds activations to 2^-9 of themselves; sums that were taken in another order may fall to the other side.
  double allowed = GetParam().dtype == DType::kFloat32 ? 2e-6 : 2e-3;
  // So may codes, whose steps are larger: after two updates they change this model's loss by 2e-3, one way or the
  // other.
  if (GetParam().boundaries != Encoding::kPlain) allowed = 5e-3;
  const Trace expected = trace_of(*model_, job_, {"cpu", "cpu"});
  for (const std::string& pool : {card_, "cpu," + card_}) {
    SCOPED_TRACE(pool);
    Placement placement{pool, pool};
    placement.stages = one_layer_each(*model_);  // so that every member has work
    const Trace trace = trace_of(*model_, job_, placement);
    ASSERT_EQ(trace.loss_sums.size(), expected.loss_sums.size());
    for (std::size_t step = 0; step < expected.loss_sums.size(); ++step) {
      EXPECT_NEAR(trace.loss_sums[step], expected.loss_sums[step], allowed * expected.loss_sums[step]) << step;
    }
  }
}

/// Masters and moments on the card, in one block of its memory and in several.
TEST_P(VulkanPools, StateOnTheCard_GivesTheBitsOfTheHostsUpdates) {
  job_.reduction_group = 16;
  for (const auto kind : {offload::OptimizerKind::kAdamW, offload::OptimizerKind::kAdamW8Bit}) {
    job_.optimizer.kind = kind;
    const Trace reference = trace_of(*model_, job_, {"on the host", card_});
    ASSERT_EQ(reference.norms.size(), 3U);
    for (const Bytes most : {~Bytes{0}, kMostAtOnce}) {
      SCOPED_TRACE(most);
      Placement placement = opened(card_, {.most_block_bytes = most, .separate_blocks = true});
      placement.stages.reset();
      placement.holds_state = true;
      const Trace trace = trace_of(*model_, job_, placement);
      EXPECT_EQ(trace.loss_sums, reference.loss_sums);
      EXPECT_EQ(trace.norms, reference.norms);
      EXPECT_TRUE(trace.bytes == reference.bytes);
    }
  }
}

/// On processors that pose as cards too. Kept where they would be copied, weights give the same; and an optimizer that
/// is a step ahead writes another version.
TEST_P(VulkanPools, WeightsInPlace_GiveTheSameBits) {
  const auto trace_on = [&](const std::string& pool, Use in_place) {
    return trace_of(*model_, job_, opened(pool, {.separate_blocks = true, .weights_in_place = in_place}));
  };
  for (const std::uint32_t staleness : {0U, 1U}) {
    SCOPED_TRACE(staleness);
    job_.staleness = staleness;
    const Trace copied = trace_on(card_, Use::kNever);
    EXPECT_FALSE(caps_.weights_in_place);
    for (const std::string& pool : {card_, card_ + "*2"}) {
      const Trace trace = trace_on(pool, Use::kAlways);
      if (!caps_.weights_in_place) GTEST_SKIP() << "the card has no VK_EXT_external_memory_host";
      EXPECT_EQ(trace.loss_sums, copied.loss_sums);
      EXPECT_EQ(trace.norms, copied.norms);
      EXPECT_TRUE(trace.bytes == copied.bytes);
    }
  }
}

/// On processors that pose as cards too.
TEST_P(VulkanPools, WithMatrixUnits_FollowTheCpusLossesAndGiveTheSameBits) {
  if (!matrix_units_) GTEST_SKIP() << "the driver has no cooperative matrices";
  if (GetParam().dtype == DType::kFloat32) GTEST_SKIP() << "matrix units multiply 16 bits";
  const auto trace_on = [&](const std::string& pool) {
    const Trace trace = trace_of(*model_, job_, opened(pool, {.matrix_units = Use::kAlways}));
    EXPECT_FALSE(caps_.matrix_dtypes.empty());
    return trace;
  };
  const Trace one = trace_on(card_);
  const Trace two = trace_on(card_ + "*2");
  EXPECT_EQ(two.loss_sums, one.loss_sums);
  EXPECT_TRUE(two.bytes == one.bytes);
  const Trace expected = trace_of(*model_, job_, {"cpu", "cpu"});
  const double allowed = GetParam().boundaries != Encoding::kPlain ? 5e-3 : 2e-3;  // as above
  for (std::size_t step = 0; step < expected.loss_sums.size(); ++step) {
    EXPECT_NEAR(one.loss_sums[step], expected.loss_sums[step], allowed * expected.loss_sums[step]) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, VulkanPools,
                         testing::Values(Variant{"full_fp32_tied", false, DType::kFloat32, true},
                                         Variant{"full_bf16", false, DType::kBfloat16, false},
                                         Variant{"full_fp16", false, DType::kFloat16, false},
                                         Variant{"lora_fp32", true, DType::kFloat32, false},
                                         Variant{"dora_fp32", true, DType::kFloat32, false, 16, true},
                                         Variant{"full_fp32_8bit_boundaries", false, DType::kFloat32, false, 16, false,
                                                 Encoding::kHadamard8}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace rondo::tiny
