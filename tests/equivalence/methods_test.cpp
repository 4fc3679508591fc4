// Every optimizer and method obeys the first law: the same bits over cards, stages and disk, and when a run is resumed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "tiny_model.h"
#include "tiny_run.h"

namespace rondo::tiny {
namespace {

using devices::DType;
using offload::OptimizerKind;

struct Method {
  const char* name;
  model::MethodSpec spec;
  offload::OptimizerSettings optimizer;
  bool tied = false;
  bool wide = false;                              // matrices large enough for moments in 8 bits
  void (*blocks)(model::ModelConfig&) = nullptr;  // makes the blocks another family's
};
void PrintTo(const Method& method, std::ostream* stream) { *stream << method.name; }

offload::OptimizerSettings optimizer(OptimizerKind kind, double momentum = 0) {
  return {0.9, 0.99, 1e-8, 0.01, kind, momentum};
}

model::MethodSpec lora_by_parts() {
  model::MethodSpec spec = lora(DType::kBfloat16);
  spec.lora->rank_pattern = {{"layers.2.self_attn.q_proj", 1}, {"up_proj", 5}};
  spec.lora->alpha_pattern = {{"v_proj", 3.0}};
  spec.lora->layers = {1, 2};
  spec.lora_b_rate = 4.0;
  return spec;
}

model::MethodSpec dora(double dropout) {
  model::MethodSpec spec = lora(DType::kBfloat16, dropout);
  spec.lora->use_dora = true;
  spec.lora->rank_pattern = {{"up_proj", 5}};
  return spec;
}

model::MethodSpec dora_of_codes() {
  model::MethodSpec spec = dora(0);
  spec.dtype = DType::kFloat32;
  spec.base_encoding = devices::Encoding::kNf4;
  return spec;
}

/// Norms on both sides that add one, windows with rotary settings of their own, scaled embeddings.
void as_gemma3(model::ModelConfig& config) {
  config.norm_place = model::NormPlace::kBoth;
  config.qk_norm = model::QkNorm::kHead;
  config.norms_add_one = true;
  config.scales_embedding_by_width = true;
  config.activation = model::Activation::kGeluTanh;
  config.sliding_window = {4, 0, 4};
  config.window_rope.emplace().theta = 300.0;
  config.attention_bias = false;
}

/// Capped scores and logits besides.
void as_gemma2(model::ModelConfig& config) {
  as_gemma3(config);
  config.qk_norm = model::QkNorm::kNone;
  config.window_rope.reset();
  config.attention_cap = 1.5;
  config.logits_cap = 1.2;
}

/// Heads of their own where all is seen, whose keys are values, and experts beside each MLP.
void as_gemma4(model::ModelConfig& config) {
  as_gemma3(config);
  config.family = model::Family::kGemma4;
  config.norms_add_one = false;
  config.norms_values = true;
  config.scales_blocks = true;
  config.attention_scale = 1.0;
  config.logits_cap = 1.2;
  config.rope.kind = model::RopeKind::kProportional;
  config.rope.turned_share = 0.5;
  config.global_heads = model::HeadShape{1, 8, true};
  config.experts = {5, 2, 24, true, {}};
  config.experts->beside_mlp = true;
  config.experts->adapts_shared = true;
}

/// Inputs of each block, and three blocks that share keys and values, in MLPs twice as wide.
void as_small_gemma4(model::ModelConfig& config) {
  as_gemma4(config);
  config.experts.reset();
  config.global_heads = model::HeadShape{1, 8, false};
  config.num_layers = 5;
  config.sliding_window = {4, 0, 4, 0, 4};
  config.block_inputs = {12, config.vocab_size + 3};
  config.sharing_blocks = 3;
  config.widens_sharing = true;
}

/// Norms behind the halves and of all heads together, and a layer without rotary embedding.
void as_olmo_and_smollm3(model::ModelConfig& config) {
  config.norm_place = model::NormPlace::kOutput;
  config.qk_norm = model::QkNorm::kAllHeads;
  config.without_rope = {false, true, false};
}

/// Blocks in parallel with one LayerNorm, and a layer without rotary embedding.
void as_cohere2(model::ModelConfig& config) {
  config.norm_place = model::NormPlace::kShared;
  config.parallel = true;
  config.centred_norms = true;
  config.logits_scaling = 1.6;
  config.sliding_window = {5, 0, 5};
  config.without_rope = {false, true, false};
}

/// Blocks in parallel with a LayerNorm of each half; biases everywhere, MLPs without a gate.
void as_gpt_neox(model::ModelConfig& config) {
  config.parallel = true;
  config.centred_norms = true;
  config.norm_bias = true;
  config.attention_bias = config.attention_output_bias = config.mlp_bias = true;
  config.gated_mlp = false;
  config.activation = model::Activation::kGelu;
  config.rope.turned_share = 0.5;
}

/// Norms without weights.
void as_olmo(model::ModelConfig& config) {
  config.centred_norms = true;
  config.norm_weight = false;
}

/// MLPs without a gate.
void as_arcee(model::ModelConfig& config) {
  config.gated_mlp = false;
  config.activation = model::Activation::kReluSquared;
  config.mlp_bias = true;
}

/// Queries and keys normed after they are turned.
void as_hunyuan(model::ModelConfig& config) {
  config.qk_norm = model::QkNorm::kHead;
  config.norms_turned = true;
}

/// Queries that grow with their positions.
void as_ministral3(model::ModelConfig& config) {
  config.attention_bias = false;
  config.rope.query_growth = model::QueryGrowth{.rate = 0.5, .from = 3};
}

void as_granite(model::ModelConfig& config) {
  config.embedding_multiplier = 3.7;
  config.residual_multiplier = 0.41;
  config.logits_scaling = 1.3;
  config.attention_scale = 0.2;
}

/// A block of one MLP between two with experts.
void as_qwen3_moe(model::ModelConfig& config) {
  config.qk_norm = model::QkNorm::kHead;
  config.experts = {5, 2, 24, true, {false, true, false}};
}

/// Shares by all experts, norms behind the halves.
void as_olmoe(model::ModelConfig& config) {
  config.norm_place = model::NormPlace::kOutput;
  config.residual_multiplier = 0.7;
  config.experts = {7, 3, 40, false, {}};
}

/// Sinks, biases everywhere, activations that reach their limits, layers that slide.
void as_gpt_oss(model::ModelConfig& config) {
  config.family = model::Family::kGptOss;
  config.attention_output_bias = true;
  config.attention_sinks = true;
  config.sliding_window = {5, 0, 5};
  config.experts = {5, 2, 24, true, {}, true, model::ClampedSwiglu{1.702, 0.5}};
}

/// Fused layers, heads that turn in part, the longer sequences at other speeds than the shorter.
void as_phi3(model::ModelConfig& config) {
  config.fused_linears = true;
  config.fused_mlp = true;
  config.attention_bias = false;
  config.rope.kind = model::RopeKind::kLongRope;
  config.rope.turned_share = 0.5;
  config.rope.original_max_positions = 9;
  config.rope.short_factors.assign(config.head_dim / 4, 1.5);
  config.rope.long_factors.assign(config.head_dim / 4, 4.0);
}

/// Linear attention on both sides of attention that is gated.
void as_qwen3_5(model::ModelConfig& config) {
  config.family = model::Family::kQwen35;
  config.attention_bias = false;
  config.gates_attention = true;
  config.norms_add_one = true;
  config.rope.turned_share = 0.5;
  config.linear_attention = {2, 4, 12, 10, 3, {true, false, true}};
}

/// Beside the experts one that all tokens share.
void as_qwen3_5_moe(model::ModelConfig& config) {
  as_qwen3_5(config);
  config.family = model::Family::kQwen35Moe;
  config.experts = {5, 2, 24, true, {}};
  config.experts->shared_width = 20;
  config.experts->gates_shared = true;
  config.experts->adapts_shared = true;
}

/// Joined layers, a block of one MLP between two with experts.
void as_qwen3_next(model::ModelConfig& config) {
  as_qwen3_5_moe(config);
  config.family = model::Family::kQwen3Next;
  config.experts->dense_blocks = {false, true, false};
  config.experts->adapts_shared = false;
  config.linear_attention->joined_by_heads = true;
}

/// Convolutions on both sides of attention.
void as_lfm2(model::ModelConfig& config) {
  config.family = model::Family::kLfm2;
  config.attention_bias = false;
  config.norm_place = model::NormPlace::kOperator;
  config.short_convolution = {3, {true, false, true}};
}

/// State spaces on both sides of attention, whose convolutions have biases.
void as_granite4(model::ModelConfig& config) {
  config.family = model::Family::kGraniteMoeHybrid;
  config.attention_bias = false;
  config.shared_mlp = true;
  config.residual_multiplier = 0.75;
  config.without_rope = {true, true, true};
  config.state_space = {6, 12, 20, 4, true, false, 0.0, 1.0, {true, false, true}};
}

model::MethodSpec lora_of_mixers() {
  model::MethodSpec spec = lora(DType::kBfloat16, 0.0);
  spec.lora->targets = {"q_proj", "in_proj", "up_proj"};
  spec.lora->parameters = {"experts.down_proj", "experts.up_proj", "gate.weight"};
  return spec;
}

model::MethodSpec dora_of_spaces() {
  model::MethodSpec spec = dora(0.1);
  spec.lora->targets = {"q_proj", "in_proj", "out_proj", "input_linear"};
  spec.lora->rank_pattern = {{"in_proj", 5}};
  return spec;
}

model::MethodSpec dora_of_both() {
  model::MethodSpec spec = dora(0.1);
  spec.lora->targets = {"q_proj", "k_proj", "in_proj", "gate_proj", "down_proj"};
  return spec;
}

/// Keys and values by a latent, values narrower than keys; rows of queries in another order than in files.
void as_deepseek(model::ModelConfig& config) {
  config.num_kv_heads = config.num_heads;
  config.head_dim = 20;
  config.turns_neighbours = true;
  config.latent_attention = {22, 18, 12, 8, 14};
}

model::MethodSpec dora_of_latents() {
  model::MethodSpec spec = dora(0.1);
  spec.lora->targets = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"};
  spec.lora->rank_pattern = {{"kv_b_proj", 5}};
  return spec;
}

model::MethodSpec dora_of_convolutions() {
  model::MethodSpec spec = dora(0.1);
  spec.lora->targets = {"q_proj", "in_proj", "out_proj", "w1", "w2"};
  spec.lora->rank_pattern = {{"in_proj", 5}};
  return spec;
}

model::MethodSpec dora_of_fused() {
  model::MethodSpec spec = dora(0.1);
  spec.lora->targets = {"qkv_proj", "o_proj", "gate_up_proj"};
  spec.lora->rank_pattern = {{"gate_up_proj", 5}};
  return spec;
}

model::MethodSpec lora_of_delta() {
  model::MethodSpec spec = lora(DType::kFloat32);
  spec.lora->targets = {"q_proj", "down_proj", "in_proj_qkv", "in_proj_b", "out_proj"};
  return spec;
}

/// Of each block's linear layers, so that its programs leave several dozen tensors behind.
model::MethodSpec dora_of_delta() {
  model::MethodSpec spec = dora(0.1);
  for (const char* name : {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"}) {
    spec.lora->targets.emplace_back(name);
  }
  return spec;
}

model::MethodSpec lora_of_shared(double dropout) {
  model::MethodSpec spec = lora(DType::kBfloat16, dropout);
  spec.lora->targets = {"k_proj", "gate_proj", "down_proj", "in_proj_a", "shared_expert_gate"};
  spec.base_encoding = devices::Encoding::kNf4;
  return spec;
}

model::MethodSpec dora_of_joined() {
  model::MethodSpec spec = dora(0.1);
  spec.lora->targets = {"q_proj", "in_proj_qkvz", "in_proj_ba", "shared_expert_gate"};
  spec.lora->rank_pattern = {{"in_proj_qkvz", 5}};
  return spec;
}

model::MethodSpec lora_of_codes() {
  model::MethodSpec spec = lora(DType::kBfloat16);
  spec.base_encoding = devices::Encoding::kNf4;
  return spec;
}

/// Of experts and routers too.
model::MethodSpec lora_of_experts() {
  model::MethodSpec spec = lora_of_codes();
  spec.lora->parameters = {"gate.weight", "gate_up_proj", "down_proj"};
  spec.lora->rank_pattern = {{"gate_up_proj", 6}};
  return spec;
}

/// Experts as they were published, the rest in codes of its own.
model::MethodSpec lora_of_published_codes() {
  model::MethodSpec spec = lora_of_codes();
  spec.keeps_mxfp4 = true;
  spec.lora->parameters = {"mlp.experts.down_proj"};
  return spec;
}

/// NEFTune, and dropout beside it.
model::MethodSpec noisy(model::MethodSpec spec) {
  spec.noise_alpha = 5.0;
  return spec;
}

std::vector<Method> methods() {
  return {{"adamw_8bit", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW8Bit), true, true},
          {"sgd_momentum", full(DType::kBfloat16), optimizer(OptimizerKind::kSgd, 0.9), true},
          {"lion_lora_by_parts", lora_by_parts(), optimizer(OptimizerKind::kLion)},
          {"sgd_last_block", last_block(DType::kFloat32), optimizer(OptimizerKind::kSgd), true},
          {"lora_with_ends", lora_with_ends(), optimizer(OptimizerKind::kAdamW)},
          {"dora", dora(0), optimizer(OptimizerKind::kAdamW)},
          {"dora_with_dropout", dora(0.1), optimizer(OptimizerKind::kAdamW)},
          {"neftune", noisy(full(DType::kBfloat16)), optimizer(OptimizerKind::kAdamW), true},
          {"neftune_lora", noisy(lora(DType::kFloat32, 0.1)), optimizer(OptimizerKind::kAdamW)},
          {"dora_of_codes", dora_of_codes(), optimizer(OptimizerKind::kAdamW)},
          {"gemma3_blocks", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), true, false, as_gemma3},
          {"gemma4_blocks", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), false, false, as_gemma4},
          {"gemma4_lora", lora(DType::kBfloat16, 0.1), optimizer(OptimizerKind::kAdamW), false, false, as_gemma4},
          {"small_gemma4", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), true, false, as_small_gemma4},
          {"small_gemma4_lora", lora(DType::kBfloat16, 0.1), optimizer(OptimizerKind::kAdamW), true, false,
           as_small_gemma4},
          {"gemma2_blocks", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), true, false, as_gemma2},
          {"olmo_blocks", full(DType::kFloat16), optimizer(OptimizerKind::kAdamW), false, false, as_olmo_and_smollm3},
          {"cohere2", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), true, false, as_cohere2},
          {"cohere2_lora", lora(DType::kBfloat16, 0.1), optimizer(OptimizerKind::kAdamW), true, false, as_cohere2},
          {"gpt_neox", full(DType::kFloat32), optimizer(OptimizerKind::kAdamW), false, false, as_gpt_neox},
          {"gpt_neox_dora", dora(0.1), optimizer(OptimizerKind::kAdamW), false, false, as_gpt_neox},
          {"olmo1", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW8Bit), false, true, as_olmo},
          {"experts", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), false, false, as_qwen3_moe},
          {"experts_8bit", full(DType::kFloat16), optimizer(OptimizerKind::kAdamW8Bit), false, true, as_olmoe},
          {"experts_lora", lora_of_experts(), optimizer(OptimizerKind::kAdamW), false, false, as_qwen3_moe},
          {"gpt_oss", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), false, false, as_gpt_oss},
          {"gpt_oss_lora", lora_of_published_codes(), optimizer(OptimizerKind::kAdamW), false, false, as_gpt_oss},
          {"arcee_dora", dora(0.1), optimizer(OptimizerKind::kAdamW), false, false, as_arcee},
          {"hunyuan", full(DType::kFloat16), optimizer(OptimizerKind::kAdamW), false, false, as_hunyuan},
          {"ministral3", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), false, false, as_ministral3},
          {"granite_dora", dora(0.1), optimizer(OptimizerKind::kAdamW), false, false, as_granite},
          {"phi3_dora", dora_of_fused(), optimizer(OptimizerKind::kAdamW), false, false, as_phi3},
          {"qwen3_5", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), false, false, as_qwen3_5},
          {"qwen3_5_lora", lora_of_delta(), optimizer(OptimizerKind::kAdamW), false, false, as_qwen3_5},
          {"qwen3_5_dora", dora_of_delta(), optimizer(OptimizerKind::kAdamW), false, false, as_qwen3_5},
          {"qwen3_5_moe", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), false, false, as_qwen3_5_moe},
          {"qwen3_5_moe_lora", lora_of_shared(0.1), optimizer(OptimizerKind::kAdamW), false, false, as_qwen3_5_moe},
          {"qwen3_next", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), false, false, as_qwen3_next},
          {"qwen3_next_dora", dora_of_joined(), optimizer(OptimizerKind::kAdamW), false, false, as_qwen3_next},
          {"deepseek", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), false, false, as_deepseek},
          {"deepseek_dora", dora_of_latents(), optimizer(OptimizerKind::kAdamW), false, false, as_deepseek},
          {"granite4", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), true, false, as_granite4},
          {"granite4_dora", dora_of_spaces(), optimizer(OptimizerKind::kAdamW), false, false, as_granite4},
          {"nemotron_h", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), true, false, as_nemotron_h},
          {"nemotron_h_lora", lora_of_mixers(), optimizer(OptimizerKind::kAdamW), false, false, as_nemotron_h},
          {"falcon_h1", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), true, false, as_falcon_h1},
          {"falcon_h1_dora", dora_of_both(), optimizer(OptimizerKind::kAdamW), false, false, as_falcon_h1},
          {"lfm2", full(DType::kBfloat16), optimizer(OptimizerKind::kAdamW), true, false, as_lfm2},
          {"lfm2_dora", dora_of_convolutions(), optimizer(OptimizerKind::kAdamW), false, false, as_lfm2}};
}

model::ModelConfig config_of(const Method& method) {
  model::ModelConfig config = small_config(method.tied);
  if (method.wide) config.intermediate_size = 184;
  if (method.blocks != nullptr) method.blocks(config);
  return config;
}

class Methods : public testing::TestWithParam<Method> {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    job_.steps = steps_of(dataset_, {4, 4, 3});
    job_.reduction_group = 2;
    job_.optimizer = GetParam().optimizer;
    job_.fill = [](const model::Architecture& model, offload::ParameterStore& store) { fill_weights(model, 9, store); };
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void expect_same(const Trace& found, const Trace& expected) {
    EXPECT_EQ(found.loss_sums, expected.loss_sums);
    EXPECT_EQ(found.norms, expected.norms);
    EXPECT_TRUE(found.bytes == expected.bytes);
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("rondo_methods_" + std::to_string(::getpid()));
  const data::Dataset dataset_ = random_samples(61, 5, 64, 24);
  const model::Architecture model_ = *model::Architecture::make(config_of(GetParam()), GetParam().spec);
  Job job_;
};

TEST_P(Methods, CardsStagesAndDisk_GiveTheSameBits) {
  const Trace reference = trace_of(model_, job_, {"reference"});
  ASSERT_EQ(reference.loss_sums.size(), 3U);
  EXPECT_NE(reference.loss_sums[0], reference.loss_sums[1]);
  expect_same(trace_of(model_, job_, {"planned", fast_cards(3)}), reference);
  Placement placement{"stages", fast_cards(2) + ",cpu", 2};
  placement.stages = one_layer_each(model_);
  placement.microbatches_per_round = 2;
  expect_same(trace_of(model_, job_, placement), reference);
  for (const partition::Keep keep : {partition::Keep::kNothing, partition::Keep::kAll}) {
    placement.keep = keep;
    expect_same(trace_of(model_, job_, placement), reference);
  }
  Placement halves{"halves", "cpu*2"};
  halves.schedule = partition::Schedule::kZeroBubbleH1;
  expect_same(trace_of(model_, job_, halves), reference);
  Placement disk{"disk", "cpu"};
  disk.disk_from = 0;
  expect_same(trace_of(model_, job_, disk), reference);
}

TEST_P(Methods, Resumed_GoesOnBitForBit) {
  const Trace whole = trace_of(model_, job_, {"uninterrupted"});
  ASSERT_NO_FATAL_FAILURE(run_to_checkpoint(model_, job_, {"before"}, 2, folder_));
  Placement placement{"after", fast_cards(2)};
  placement.disk_from = 2;
  const Job resumed = resumed_from(job_, folder_ / "checkpoint-2");
  auto second = TinyRun::make(model_, resumed, placement);
  ASSERT_TRUE(second.ok()) << second.status();
  (*second)->executor().set_updates(2);
  const auto result = (*second)->train(2);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->loss_sum, whole.loss_sums[2]);
  EXPECT_EQ(result->grad_norm, whole.norms[2]);
  EXPECT_TRUE((*second)->bytes() == whole.bytes);
}

/// DoRA's adapter as training begins: B zero, magnitudes the lengths of the rows.
void fill_fresh(const model::Architecture& model, offload::ParameterStore& store) {
  fill_weights(model, 9, store);
  std::vector<float> row;
  model::ParameterId weight = 0;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const model::Parameter& parameter = model.parameters()[id];
    const std::span<float> values = store.master(id);
    if (parameter.kind == model::WeightKind::kMatrix) weight = id;
    if (parameter.kind == model::WeightKind::kLoraB) std::ranges::fill(values, 0.0F);
    if (parameter.kind != model::WeightKind::kMagnitude) continue;
    // Its module's weight is the last matrix before it.
    const std::span<float> numbers = store.master(weight);
    const std::size_t width = numbers.size() / values.size();
    for (std::size_t i = 0; i < values.size(); ++i) {
      double squares = 0;
      for (const float x : numbers.subspan(i * width, width)) {
        squares += static_cast<double>(x) * static_cast<double>(x);
      }
      values[i] = static_cast<float>(std::sqrt(squares));
    }
  }
}

TEST(Dora, FreshAdapter_GivesTheLossOfTheBaseWhateverIsDropped) {
  const data::Dataset dataset = random_samples(61, 5, 64, 24);
  Job job;
  job.steps = steps_of(dataset, {4, 4});
  job.fill = fill_fresh;
  std::vector<Trace> traces;
  for (const double dropout : {0.0, 0.1, 0.5}) {
    model::MethodSpec spec = dora(dropout);
    spec.dtype = DType::kFloat32;
    traces.push_back(trace_of(*model::Architecture::make(small_config(false), spec), job, {"run"}));
    ASSERT_EQ(traces.back().loss_sums.size(), 2U);
  }
  const Trace base = trace_of(*model::Architecture::make(small_config(false), lora(DType::kFloat32)), job, {"base"});
  for (const Trace& trace : traces) {
    EXPECT_NEAR(trace.loss_sums[0], base.loss_sums[0], 2e-6 * base.loss_sums[0]);
    EXPECT_NE(trace.loss_sums[1], base.loss_sums[1]) << "magnitudes have been trained";
  }
  EXPECT_NE(traces[0].norms[0], traces[2].norms[0]) << "something is dropped";
}

TEST(Moments8, Loss_StaysNearThatOfFp32Moments) {
  const data::Dataset dataset = random_samples(61, 5, 64, 24);
  const Method wide{"", full(DType::kFloat32), {}, true, true};
  const model::Architecture model = *model::Architecture::make(config_of(wide), wide.spec);
  double last[2] = {};
  double first = 0;
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdamW8Bit}) {
    Job job;
    const auto steps = steps_of(dataset, {4, 4});
    for (int i = 0; i < 20; ++i) job.steps.push_back(steps[0]);
    job.optimizer = optimizer(kind);
    job.fill = [](const model::Architecture& of, offload::ParameterStore& store) { fill_weights(of, 9, store); };
    const Trace trace = trace_of(model, job, {"run"});
    ASSERT_EQ(trace.loss_sums.size(), 20U);
    first = trace.loss_sums.front();
    last[kind == OptimizerKind::kAdamW8Bit ? 1 : 0] = trace.loss_sums.back();
  }
  EXPECT_LT(last[0], 0.8 * first) << "there must be something to learn";
  EXPECT_NE(last[1], last[0]);
  EXPECT_NEAR(last[1], last[0], 0.02 * last[0]);
}

INSTANTIATE_TEST_SUITE_P(All, Methods, testing::ValuesIn(methods()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace rondo::tiny
