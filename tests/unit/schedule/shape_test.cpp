// What plans know of a model's layers.
#include "rondo/schedule/shape.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tiny_model.h"

namespace rondo::schedule {
namespace {

using devices::DType;
using devices::Encoding;
using model::Keep;
using model::Phase;

Bytes arena(const model::Architecture& model, model::LayerIndex layer, Phase phase, Keep keep, std::uint32_t tokens) {
  return devices::plan_arena(model.record(layer, phase, keep, tokens)).size;
}

/// Of the programs of whole layers that a run over `tokens` tokens has.
Bytes largest_arena(const model::Architecture& model, model::LayerIndex layer, std::uint32_t tokens) {
  const bool head = layer + 1 == model.layers().size();
  Bytes most = arena(model, layer, head ? Phase::kEvaluate : Phase::kForward, Keep::kNothing, tokens);
  if (!model.layers()[layer].has_backward) return most;
  for (std::size_t k = 0; k < partition::kKeeps; ++k) {
    most = std::max(most, arena(model, layer, head ? Phase::kFused : Phase::kBackward, static_cast<Keep>(k), tokens));
  }
  return most;
}

/// Expanded weights do not shrink with the tokens: with fewer of them they are laid out first.
TEST(DescribeModel, ScratchOfALayer_HoldsItsProgramsForFewerTokensToo) {
  const std::vector<std::uint32_t> buckets = {16, 32, 48, 64, 80, 96, 112, 128};
  std::size_t larger = 0;
  model::ModelConfig config = tiny::small_config();
  config.family = model::Family::kMixtral;
  config.model_type = "mixtral";
  config.attention_bias = false;
  config.hidden_size = 256;
  config.head_dim = 64;
  config.intermediate_size = 192;
  config.experts.emplace();
  config.experts->count = 4;
  config.experts->choices = 2;
  config.experts->width = 192;
  config.experts->biases = true;
  model::MethodSpec method = tiny::lora(DType::kFloat32);
  method.lora->targets = {"q_proj", "v_proj"};
  method.base_encoding = Encoding::kInt8;
  const auto model = *model::Architecture::make(config, method);
  const partition::ModelShape shape = describe_model(model, 128, 128, 0, {}, buckets);
  for (model::LayerIndex layer = 0; layer < model.layers().size(); ++layer) {
    for (const std::uint32_t tokens : buckets) {
      EXPECT_GE(shape.layers[layer].scratch_bytes, largest_arena(model, layer, tokens)) << layer << " " << tokens;
      if (largest_arena(model, layer, tokens) > largest_arena(model, layer, 128)) ++larger;
    }
  }
  EXPECT_GT(larger, 0U) << "nothing is tested";
}

/// Each parameter once, whatever the number of its uses.
TEST(DescribeModel, ParametersOfManyLayers_AreListedOnce) {
  model::ModelConfig config = tiny::small_config(true);
  config.num_layers = 300;
  const model::Architecture model = *model::Architecture::make(config, tiny::full(DType::kBfloat16));
  partition::Plan plan;
  plan.first_layer_on_disk = 1;
  const std::vector<offload::GradientSpec> specs = gradient_specs(model);
  EXPECT_EQ(specs.size(), model.parameters().size());
  EXPECT_EQ(update_order(model).size(), model.parameters().size());
  EXPECT_EQ(parameters_on_disk(model, plan).size(), model.parameters().size() - 1)
      << "the table, which is the head too, has its first use";
  EXPECT_TRUE(specs.front().sparse && specs.front().dense);
}

TEST(GradientSpecs, PaddingRow_HasNoGradient_UnlessTheModelTrainsIt) {
  for (const bool trains : {false, true}) {
    model::ModelConfig config = tiny::small_config();
    config.pad_token_id = 3;
    config.trains_padding = trains;
    const auto model = model::Architecture::make(config, tiny::full(DType::kFloat32));
    ASSERT_TRUE(model.ok()) << model.status();
    for (const offload::GradientSpec& spec : gradient_specs(*model)) {
      if (!spec.sparse) continue;
      EXPECT_EQ(spec.padding_row, trains ? -1 : 3);
    }
  }
}

}  // namespace
}  // namespace rondo::schedule
