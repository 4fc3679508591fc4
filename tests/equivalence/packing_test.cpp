// "Packing leaks between samples": it must not. A packed step is its samples run apart, and what lies beside a sample
// in its sequence does not reach its loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "rondo/train/loader.h"
#include "tiny_model.h"
#include "tiny_run.h"

namespace rondo::tiny {
namespace {

using devices::DType;

Job job_of(std::vector<std::vector<schedule::Microbatch>> steps) {
  Job job;
  job.steps = std::move(steps);
  job.fill = [](const model::Architecture& model, offload::ParameterStore& store) { fill_weights(model, 4, store); };
  return job;
}

/// As many steps of `options` as an epoch has.
Job epoch_of(const data::Dataset& dataset, const train::LoaderOptions& options) {
  train::Loader loader(dataset, options);
  std::vector<std::vector<schedule::Microbatch>> steps;
  for (std::uint64_t step = 0; step < loader.steps_per_epoch(); ++step) steps.push_back(loader.step(step));
  return job_of(std::move(steps));
}

/// The gradient of a run's only step, divided and clipped: the first moment of an optimizer that remembers nothing.
std::vector<float> gradient_of(const model::Architecture& model, Job job) {
  job.optimizer = {0.0, 0.999, 1e-8, 0.0};
  std::vector<float> gradient;
  auto run = TinyRun::make(model, job, {"gradient"});
  EXPECT_TRUE(run.ok()) << run.status();
  if (!run.ok()) return gradient;
  const auto result = (*run)->train(0);
  EXPECT_TRUE(result.ok()) << result.status();
  (*run)->executor().drain_and_wait();
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    if (!model.parameters()[id].trained) continue;
    const auto moment = (*run)->store().first_moment(id);
    gradient.insert(gradient.end(), moment.begin(), moment.end());
  }
  return gradient;
}

/// LoRA with dropout: the random numbers of a sample must not depend on what it is packed with either. With experts the
/// rows of a token lie among those of others.
/// Noise is as large as a sample's own length asks for. A state space remembers all of a sequence, a convolution its
/// last tokens.
enum class Kind : std::uint8_t { kFull, kLora, kExperts, kNoisy, kStateSpace, kMixers, kBoth };

model::Architecture model_of(Kind kind, DType dtype) {
  model::ModelConfig config = small_config();
  if (kind == Kind::kExperts) {
    config.experts = {5, 2, 24, true, {}, true, model::ClampedSwiglu{1.702, 0.5}};
    config.attention_sinks = true;
  }
  if (kind == Kind::kStateSpace) {
    config.family = model::Family::kGraniteMoeHybrid;
    config.shared_mlp = true;
    config.state_space = {4, 16, 12, 4, true, false, 0.0, 1.0, std::vector<bool>(config.num_layers, true)};
  }
  if (kind == Kind::kMixers) as_nemotron_h(config);
  if (kind == Kind::kBoth) as_falcon_h1(config);
  model::MethodSpec method = kind == Kind::kLora ? lora(dtype) : full(dtype);
  if (kind == Kind::kNoisy) method.noise_alpha = 20.0;
  return *model::Architecture::make(config, method);
}

std::string name_of_kind(const testing::TestParamInfo<Kind>& info) {
  constexpr std::array<const char*, 7> kNames = {"full", "lora", "experts", "noisy", "state_space", "mixers", "both"};
  return kNames[static_cast<std::size_t>(info.param)];
}

class PackingLeaks : public testing::TestWithParam<Kind> {
 protected:
  const model::Architecture model_ = model_of(GetParam(), DType::kFloat32);
  const data::Dataset dataset_ = random_samples(61, 11, 30, 24);
  const train::LoaderOptions packed_{1, 1000, true, 42, 64};  // the epoch is one step
  const train::LoaderOptions apart_{1, 1000, true, 42, 0};
};

TEST_P(PackingLeaks, PackedStep_HasTheLossOfItsSamplesApart) {
  const Job packed = epoch_of(dataset_, packed_);
  const Job apart = epoch_of(dataset_, apart_);
  ASSERT_EQ(packed.steps.size(), 1U);
  ASSERT_LT(packed.steps[0].size(), apart.steps[0].size() / 3);
  const Trace together = trace_of(model_, packed, {"packed"});
  const Trace single = trace_of(model_, apart, {"apart"});
  EXPECT_NEAR(together.loss_sums[0], single.loss_sums[0], kLossTolerance * single.loss_sums[0]);
  EXPECT_NEAR(together.norms[0], single.norms[0], kNormTolerance * single.norms[0]);
}

TEST_P(PackingLeaks, PackedStep_HasTheGradientOfItsSamplesApart) {
  const std::vector<float> packed = gradient_of(model_, epoch_of(dataset_, packed_));
  const std::vector<float> apart = gradient_of(model_, epoch_of(dataset_, apart_));
  ASSERT_EQ(packed.size(), apart.size());
  ASSERT_FALSE(apart.empty());
  float largest = 0;
  for (const float value : apart) largest = std::max(largest, std::abs(value));
  ASSERT_GT(largest, 0.0F);
  for (std::size_t i = 0; i < apart.size(); ++i) ASSERT_NEAR(packed[i], apart[i], kNormTolerance * largest) << i;
}

/// Samples `first` (its labels masked) and `second` in one sequence.
schedule::Microbatch beside(const data::Sample& first, const data::Sample& second) {
  data::Dataset pair;
  data::Sample masked = first;
  std::ranges::fill(masked.labels, data::kMasked);
  pair.samples.push_back(masked);
  pair.samples.push_back(second);
  const data::Sequences sequences = data::pack_in_order(pair, {0, 1}, 64);
  EXPECT_EQ(sequences.size(), 1U);
  return train::to_microbatch(data::make_batch(pair, sequences[0]), 42, 0);
}

TEST_P(PackingLeaks, ChangedNeighbour_LeavesASamplesLossBitForBit) {
  const data::Sample own = dataset_.samples[1];
  const data::Sample neighbour = dataset_.samples[2];
  data::Sample other = neighbour;
  for (data::TokenId& id : other.ids) id = (id + 17) % 61;
  schedule::Microbatch joined = beside(other, own);  // as a packer without bounds would lay them
  joined.bounds = {0, static_cast<std::int32_t>(joined.ids.size())};
  const Job job = job_of({{beside(neighbour, own)}, {beside(other, own)}, {joined}});
  auto run = TinyRun::make(model_, job, {"neighbours"});
  ASSERT_TRUE(run.ok()) << run.status();
  std::vector<double> losses;
  for (const auto& step : job.steps) {
    const auto result = (*run)->executor().evaluate(step);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_GT(result->target_tokens, 0U);
    losses.push_back(result->loss_sum);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_GT(std::abs(losses[2] - losses[0]), 1e-3 * losses[0]);  // where there is a leak it shows
}

/// bf16 on the CPU, where operands are widened: a rounding that tips over would show in the sixth digit.
class PackingRounds : public testing::TestWithParam<Kind> {};

TEST_P(PackingRounds, PackedStepInBfloat16_HasTheLossOfItsSamplesApart) {
  const model::Architecture model = model_of(GetParam(), DType::kBfloat16);
  data::Dataset dataset = random_samples(61, 12, 60, 60);
  // Microbatches of few tokens have products of their own (few_rows_product).
  std::vector<std::uint32_t> longer;
  for (std::uint32_t i = 0; i < dataset.samples.size(); ++i) {
    if (dataset.samples.length(i) > 16) longer.push_back(i);
  }
  dataset.samples = dataset.samples.select(longer);
  const Job packed = epoch_of(dataset, {1, 1000, true, 42, 128});
  const Job apart = epoch_of(dataset, {1, 1000, true, 42, 0});
  ASSERT_EQ(packed.steps.size(), 1U);
  ASSERT_LT(packed.steps[0].size(), apart.steps[0].size() / 2);
  auto run = TinyRun::make(model, packed, {"units"});
  ASSERT_TRUE(run.ok()) << run.status();
  if ((*run)->device(0).caps().multiplies_by_units(DType::kBfloat16)) {
    GTEST_SKIP() << "this processor multiplies bf16 itself: how its products sum a row is not known";
  }
  const Trace together = trace_of(model, packed, {"packed"});
  const Trace single = trace_of(model, apart, {"apart"});
  EXPECT_NEAR(together.loss_sums[0], single.loss_sums[0], 1e-9 * single.loss_sums[0]);  // fp64 sums in another order
}

INSTANTIATE_TEST_SUITE_P(Methods, PackingRounds, testing::Values(Kind::kFull, Kind::kLora, Kind::kExperts),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(Methods, PackingLeaks,
                         testing::Values(Kind::kFull, Kind::kLora, Kind::kExperts, Kind::kNoisy, Kind::kStateSpace,
                                         Kind::kMixers, Kind::kBoth),
                         name_of_kind);

}  // namespace
}  // namespace rondo::tiny
