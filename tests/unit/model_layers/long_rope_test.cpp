// LongRoPE and dynamic scaling: the numbers of transformers 5.23 (_compute_longrope_parameters,
// _compute_dynamic_ntk_parameters), and which of them generation takes. Queries that grow.
#include <gtest/gtest.h>

#include "rondo/model/architecture.h"
#include "tiny_model.h"

namespace rondo::model {
namespace {

constexpr float kShort[] = {1.0F, 0.04498488828539848F, 0.0016285482561215758F};
constexpr float kLong[] = {0.9090908765792847F, 0.023392140865325928F, 0.0004885644884780049F};

ModelConfig long_config() {
  ModelConfig config = tiny::small_config(false);
  config.head_dim = 12;
  config.max_positions = 512;
  config.rope.kind = RopeKind::kLongRope;
  config.rope.theta = 5000.0;
  config.rope.factor = 8.0;
  config.rope.original_max_positions = 64;
  config.rope.turned_share = 0.5;
  config.rope.short_factors = {1.0, 1.3, 2.1};
  config.rope.long_factors = {1.1, 2.5, 7.0};
  return config;
}

ModelConfig dynamic_config() {
  ModelConfig config = tiny::small_config(false);
  config.head_dim = 12;
  config.max_positions = 64;
  config.rope.kind = RopeKind::kDynamic;
  config.rope.theta = 5000.0;
  config.rope.factor = 3.0;
  return config;
}

/// Of the queries of the first layer with attention.
devices::RopeAttributes rope_of(Phase phase, std::uint32_t capacity, const ModelConfig& config = long_config()) {
  const Architecture model = *Architecture::make(config, tiny::full(devices::DType::kFloat32));
  for (const devices::Op& op : model.record(1, phase, Keep::kNothing, 16, capacity).ops) {
    if (op.kind == devices::OpKind::kRope) return std::get<devices::RopeAttributes>(op.attributes);
  }
  ADD_FAILURE() << "nothing turns";
  return {};
}

void expect_frequencies(const std::vector<float>& found, const float (&expected)[3]) {
  ASSERT_EQ(found.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(found[i], expected[i]) << i;
}

TEST(LongRope, OfTraining_GoesByEachSequencesLength) {
  const devices::RopeAttributes rope = rope_of(Phase::kForward, 0);
  expect_frequencies(rope.frequencies, kShort);
  expect_frequencies(rope.long_frequencies, kLong);
  EXPECT_EQ(rope.dynamic_from, 64U);
  EXPECT_FLOAT_EQ(rope.amplitude, 1.224744871391589F);
}

TEST(LongRope, OfGeneration_GoesByTheRoomThereIs) {
  for (const auto& [capacity, long_ones] : {std::pair(64U, false), std::pair(65U, true)}) {
    const devices::RopeAttributes rope = rope_of(Phase::kDecode, capacity);
    expect_frequencies(rope.frequencies, long_ones ? kLong : kShort);
    EXPECT_TRUE(rope.long_frequencies.empty());
    EXPECT_EQ(rope.dynamic_from, 0U);
    EXPECT_FLOAT_EQ(rope.amplitude, 1.224744871391589F);
  }
}

TEST(DynamicRope, OfGeneration_GoesByTheRoomThereIs) {
  const std::vector<float> base = {1.0F,          0.2418271005153656F,    0.05848035216331482F,
                                   0.0141421361F, 0.0034199513029307127F, 0.000827037263661623F};
  const std::vector<float> stretched = {1.0F,           0.19844277203083038F,   0.039379533380270004F,
                                        0.00781458523F, 0.0015507476637139916F, 0.0003077347937505692F};
  EXPECT_EQ(rope_of(Phase::kForward, 0, dynamic_config()).dynamic_from, 64U);
  for (const auto& [capacity, expected] : {std::pair(64U, base), std::pair(100U, stretched)}) {
    const devices::RopeAttributes rope = rope_of(Phase::kDecode, capacity, dynamic_config());
    EXPECT_EQ(rope.dynamic_from, 0U);
    ASSERT_EQ(rope.frequencies.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_FLOAT_EQ(rope.frequencies[i], expected[i]) << i;
  }
}

/// As many ops turn keys as queries.
TEST(QueryGrowth, OfTrainingAndGeneration_IsThatOfQueriesAlone) {
  ModelConfig config = tiny::small_config(false);
  config.rope.query_growth = QueryGrowth{.rate = 0.25, .from = 7};
  const Architecture model = *Architecture::make(config, tiny::full(devices::DType::kFloat32));
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kDecode}) {
    std::size_t growing = 0;
    std::size_t steady = 0;
    for (const devices::Op& op : model.record(1, phase, Keep::kNothing, 16, phase == Phase::kDecode ? 64 : 0).ops) {
      if (op.kind != devices::OpKind::kRope) continue;
      const auto& rope = std::get<devices::RopeAttributes>(op.attributes);
      ++(rope.grows_from == 0 ? steady : growing);
      if (rope.grows_from == 0) continue;
      EXPECT_EQ(rope.grows_from, 7U);
      EXPECT_EQ(rope.growth, 0.25F);
    }
    EXPECT_EQ(growing, steady);
    EXPECT_GE(growing, 1U);
  }
}

}  // namespace
}  // namespace rondo::model
