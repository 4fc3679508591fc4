// Values of the configuration classes of transformers 5.23.
#include "family.h"

#include <array>

#include "rondo/base/status.h"

namespace rondo::model {
namespace {

constexpr std::array<std::int32_t, 3> kStopsOfGlm4 = {151329, 151336, 151338};

constexpr std::array kFamilies = std::to_array<FamilyTraits>({
    {.family = Family::kLlama,
     .model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .max_positions = 2048,
     .bos = 1,
     .eos = 2,
     .divides_heads = true,
     .reads_attention_bias = true,
     .reads_mlp_bias = true},
    {.family = Family::kArcee,
     .model_type = "arcee",
     .architecture = "ArceeForCausalLM",
     .max_positions = 4096,
     .rms_norm_eps = 1e-5,
     .bos = 128000,
     .eos = 128001,
     .divides_heads = true,
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .gated_mlp = false},
    {.family = Family::kMistral,
     .model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .kv_heads = 8,
     .max_positions = 131072,
     .bos = 1,
     .eos = 2,
     .windows = Windows::kAll},
    {.family = Family::kMinistral3,
     .model_type = "ministral3",
     .architecture = "Ministral3ForCausalLM",
     .vocab_size = 131072,
     .num_heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .max_positions = 262144,
     .rms_norm_eps = 1e-5,
     .default_rope = R"({"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1})",
     .grows_queries = true,
     .bos = 1,
     .eos = 2,
     .pad = 11,
     .windows = Windows::kAll,
     .default_window = 0},
    {.family = Family::kQwen2,
     .model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .kv_heads = 32,
     .max_positions = 32768,
     .qkv_bias_always = true,
     .windows = Windows::kChosen},
    {.family = Family::kQwen3,
     .model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .kv_heads = 32,
     .head_dim = 128,
     .max_positions = 32768,
     .reads_attention_bias = true,
     .windows = Windows::kChosen,
     .qk_norm = QkNorm::kHead},
    {.family = Family::kHunYuan,
     .model_type = "hunyuan_v1_dense",
     .architecture = "HunYuanDenseV1ForCausalLM",
     .max_positions = 2048,
     .rms_norm_eps = 1e-5,
     .reads_alpha = true,
     .bos = 1,
     .eos = 2,
     .pad = 0,
     .reads_attention_bias = true,
     .qk_norm = QkNorm::kHead,
     .norms_turned = true},
    {.family = Family::kSeedOss,
     .model_type = "seed_oss",
     .architecture = "SeedOssForCausalLM",
     .kv_heads = 8,
     .head_dim = 128,
     .max_positions = 524288,
     .dropout = 0.1,
     .residual_dropout_key = "residual_dropout",
     .bos = 0,
     .eos = 2,
     .pad = 1,
     .reads_attention_bias = true,
     .attention_bias = true,
     .output_bias_key = "attention_out_bias",
     .reads_mlp_bias = true},
    {.family = Family::kSmolLm3,
     .model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .kv_heads = 4,
     .max_positions = 32768,
     .theta = 2e6,
     .bos = 128000,
     .eos = 128001,
     .pad = 128004,
     .ties = true,
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .windows = Windows::kUnrotated,
     .unrotated_interval = 4},
    {.family = Family::kExaone4,
     .model_type = "exaone4",
     .architecture = "Exaone4ForCausalLM",
     .kv_heads = 32,
     .max_positions = 2048,
     .rms_norm_eps = 1e-5,
     .bos = 0,
     .eos = 2,
     .windows = Windows::kTurned,
     .window_pattern = 4,
     .norm_place = NormPlace::kOutput,
     .qk_norm = QkNorm::kHead},
    {.family = Family::kErnie45,
     .model_type = "ernie4_5",
     .architecture = "Ernie4_5ForCausalLM",
     .kv_heads = 2,
     .head_dim = 128,
     .max_positions = 131072,
     .rms_norm_eps = 1e-5,
     .theta = 500000.0,
     .turns_neighbours = true,
     .bos = 1,
     .eos = 2,
     .pad = 0,
     .ties = true,
     .reads_use_bias = true},
    {.family = Family::kGlm4,
     .model_type = "glm4",
     .architecture = "Glm4ForCausalLM",
     .kv_heads = 2,
     .head_dim = 128,
     .max_positions = 131072,
     .rms_norm_eps = 1.5625e-7,
     .turns_neighbours = true,
     .turned_share = 0.5,
     .fused_mlp = true,
     .pad = 151329,
     .stops = kStopsOfGlm4,
     .reads_attention_bias = true,
     .attention_bias = true,
     .output_bias_key = "",
     .norm_place = NormPlace::kAround},
    {.family = Family::kGranite,
     .model_type = "granite",
     .architecture = "GraniteForCausalLM",
     .max_positions = 2048,
     .bos = 1,
     .eos = 2,
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .reads_multipliers = true},
    {.family = Family::kGraniteMoe,
     .model_type = "granitemoe",
     .architecture = "GraniteMoeForCausalLM",
     .max_positions = 2048,
     .bos = 1,
     .eos = 2,
     .reads_attention_bias = true,
     .reads_multipliers = true,
     .experts = ExpertTraits{.count_key = "num_local_experts",
                             .count = 8,
                             .choices = 2,
                             .normalises_always = true,
                             .in_linears = true}},
    {.family = Family::kOlmo2,
     .model_type = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .max_positions = 2048,
     .rms_norm_eps = 1e-5,
     .eos = 50279,
     .pad = 1,
     .reads_attention_bias = true,
     .norm_place = NormPlace::kOutput,
     .qk_norm = QkNorm::kAllHeads},
    {.family = Family::kOlmo3,
     .model_type = "olmo3",
     .architecture = "Olmo3ForCausalLM",
     .max_positions = 2048,
     .rms_norm_eps = 1e-5,
     .theta = 500000.0,
     .eos = 50279,
     .pad = 1,
     .reads_attention_bias = true,
     .windows = Windows::kPattern,
     .window_pattern = 4,
     .window_theta = 500000.0,
     .norm_place = NormPlace::kOutput,
     .qk_norm = QkNorm::kAllHeads},
    {.family = Family::kGemma,
     .model_type = "gemma",
     .architecture = "GemmaForCausalLM",
     .kv_heads = 16,
     .head_dim = 256,
     .max_positions = 8192,
     .bos = 2,
     .eos = 1,
     .pad = 0,
     .ties = true,
     .reads_attention_bias = true,
     .norms_add_one = true,
     .is_gemma = true},
    {.family = Family::kGemma3,
     .model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .vocab_size = 262208,
     .num_heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .max_positions = 131072,
     .theta = 1e6,
     .bos = 2,
     .eos = 1,
     .pad = 0,
     .ties = true,
     .divides_heads = true,
     .reads_attention_bias = true,
     .windows = Windows::kPattern,
     .window_pattern = 6,
     .window_theta = 10000.0,
     .window_theta_key = "rope_local_base_freq",
     .norm_place = NormPlace::kBoth,
     .qk_norm = QkNorm::kHead,
     .norms_add_one = true,
     .is_gemma = true,
     .scales_queries = true,
     .activation_key = "hidden_activation"},
    {.family = Family::kMixtral,
     .model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .kv_heads = 8,
     .max_positions = 131072,
     .rms_norm_eps = 1e-5,
     .theta = 1e6,
     .bos = 1,
     .eos = 2,
     .windows = Windows::kAll,
     .default_window = 0,
     .experts = ExpertTraits{.count_key = "num_local_experts",
                             .count = 8,
                             .choices = 2,
                             .normalises_always = true,
                             .numbered_weights = true}},
    {.family = Family::kQwen2Moe,
     .model_type = "qwen2_moe",
     .architecture = "Qwen2MoeForCausalLM",
     .kv_heads = 16,
     .max_positions = 32768,
     .reads_qkv_bias = true,
     .windows = Windows::kEven,
     .experts = ExpertTraits{.count_key = "num_experts",
                             .count = 60,
                             .choices = 4,
                             .width = 1408,
                             .some_blocks = true,
                             .shared_width = 5632,
                             .adapts_shared = true}},
    {.family = Family::kQwen3Moe,
     .model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .kv_heads = 4,
     .max_positions = 32768,
     .reads_attention_bias = true,
     .windows = Windows::kSwitched,
     .qk_norm = QkNorm::kHead,
     .experts =
         ExpertTraits{.count_key = "num_experts", .count = 128, .choices = 8, .width = 768, .some_blocks = true}},
    {.family = Family::kOlmoe,
     .model_type = "olmoe",
     .architecture = "OlmoeForCausalLM",
     .max_positions = 4096,
     .rms_norm_eps = 1e-5,
     .eos = 50279,
     .pad = 1,
     .reads_attention_bias = true,
     .qk_norm = QkNorm::kAllHeads,
     .experts = ExpertTraits{.count_key = "num_experts", .count = 64, .choices = 8}},
    {.family = Family::kGptOss,
     .model_type = "gpt_oss",
     .architecture = "GptOssForCausalLM",
     .kv_heads = 8,
     .head_dim = 64,
     .max_positions = 131072,
     .rms_norm_eps = 1e-5,
     .theta = 150000.0,
     .default_rope = R"({"rope_type": "yarn", "factor": 32.0, "truncate": false,
                        "original_max_position_embeddings": 4096})",
     .reads_attention_bias = true,
     .attention_bias = true,
     .attention_sinks = true,
     .windows = Windows::kPattern,
     .default_window = 128,
     .window_pattern = 2,
     .experts =
         ExpertTraits{
             .count_key = "num_local_experts", .count = 128, .choices = 4, .normalises_always = true, .stacked = true}},
    {.family = Family::kPhi3,
     .model_type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .vocab_size = 32064,
     .max_positions = 4096,
     .rms_norm_eps = 1e-5,
     .turned_share = 1.0,
     .long_rope_from = 4096,
     .fused_mlp = true,
     .fused = true,
     .residual_dropout_key = "resid_pdrop",
     .bos = 1,
     .eos = 32000,
     .pad = 32000,
     .windows = Windows::kAll,
     .default_window = 0},
    {.family = Family::kQwen35,
     .model_type = "qwen3_5_text",
     .architecture = "Qwen3_5ForCausalLM",
     .vocab_size = 248320,
     .num_heads = 16,
     .kv_heads = 4,
     .head_dim = 256,
     .max_positions = 32768,
     .turned_share = 0.25,
     .reads_attention_bias = true,
     .linear_attention = true,
     .qk_norm = QkNorm::kHead,
     .norms_add_one = true},
    {.family = Family::kQwen35Moe,
     .model_type = "qwen3_5_moe_text",
     .architecture = "Qwen3_5MoeForCausalLM",
     .vocab_size = 248320,
     .num_heads = 16,
     .kv_heads = 2,
     .head_dim = 256,
     .max_positions = 32768,
     .turned_share = 0.25,
     .reads_attention_bias = true,
     .linear_attention = true,
     .qk_norm = QkNorm::kHead,
     .experts = ExpertTraits{.count_key = "num_experts",
                             .count = 256,
                             .choices = 8,
                             .width = 512,
                             .normalises_always = true,
                             .everywhere = true,
                             .shared_width = 512,
                             .adapts_shared = true},
     .norms_add_one = true},
    {.family = Family::kQwen3Next,
     .model_type = "qwen3_next",
     .architecture = "Qwen3NextForCausalLM",
     .vocab_size = 151936,
     .num_heads = 16,
     .kv_heads = 2,
     .head_dim = 256,
     .max_positions = 32768,
     .turned_share = 0.25,
     .reads_attention_bias = true,
     .linear_attention = true,
     .joined_by_heads = true,
     .qk_norm = QkNorm::kHead,
     .experts = ExpertTraits{.count_key = "num_experts",
                             .count = 512,
                             .choices = 10,
                             .width = 512,
                             .normalises = true,
                             .some_blocks = true,
                             .shared_width = 512},
     .norms_add_one = true},
    {.family = Family::kLfm2,
     .model_type = "lfm2",
     .architecture = "Lfm2ForCausalLM",
     .vocab_size = 65536,
     .num_heads = 32,
     .kv_heads = 8,
     .intermediate_size = 12288,
     .max_positions = 128000,
     .rms_norm_eps = 1e-5,
     .eps_key = "norm_eps",
     .theta = 1000000.0,
     .bos = 1,
     .eos = 2,
     .pad = 0,
     .ties = true,
     .short_convolution = true,
     .norm_place = NormPlace::kOperator,
     .qk_norm = QkNorm::kHead},
});

}  // namespace

std::span<const FamilyTraits> all_families() { return kFamilies; }

const FamilyTraits& traits_of(Family family) {
  for (const FamilyTraits& traits : kFamilies) {
    if (traits.family == family) return traits;
  }
  return kFamilies.front();
}

const FamilyTraits* find_family(std::string_view model_type) {
  for (const FamilyTraits& traits : kFamilies) {
    if (traits.model_type == model_type) return &traits;
  }
  return nullptr;
}

std::string family_names() {
  std::string names;
  for (const FamilyTraits& traits : kFamilies) {
    if (!names.empty()) names += ", ";
    names += traits.model_type;
  }
  return names;
}

std::string_view weight_type_name(WeightType type) {
  switch (type) {
    case WeightType::kFloat32:
      return "float32";
    case WeightType::kBfloat16:
      return "bfloat16";
    case WeightType::kFloat16:
      return "float16";
  }
  return "";
}

std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGelu:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu_pytorch_tanh";
    case Activation::kReluSquared:
      return "relu2";
  }
  return "";
}

std::string_view rope_kind_name(RopeKind kind) {
  switch (kind) {
    case RopeKind::kDefault:
      return "default";
    case RopeKind::kLinear:
      return "linear";
    case RopeKind::kDynamic:
      return "dynamic";
    case RopeKind::kYarn:
      return "yarn";
    case RopeKind::kLlama3:
      return "llama3";
    case RopeKind::kLongRope:
      return "longrope";
  }
  return "";
}

std::size_t weight_type_size(WeightType type) { return type == WeightType::kFloat32 ? 4 : 2; }

absl::StatusOr<WeightType> parse_weight_type(std::string_view word) {
  if (word == "float32" || word == "fp32" || word == "f32") return WeightType::kFloat32;
  if (word == "bfloat16" || word == "bf16") return WeightType::kBfloat16;
  if (word == "float16" || word == "fp16" || word == "f16") return WeightType::kFloat16;
  return invalid_input("expected float32, bfloat16 or float16 (fp32, bf16, fp16), found \"{}\"", word);
}

}  // namespace rondo::model
