// Everything wrong in a config.json is refused by file, key, expected and found.
#include "rondo/model/config.h"

#include "helpers.h"
#include "rondo/model/config_documents.h"

namespace rondo::model {
namespace {

using Json = nlohmann::json;

struct BadConfig {
  std::string name;
  std::string model_type;
  Json change;                     // merged into a good configuration; null removes a key
  std::vector<std::string> parts;  // of the message
};

void PrintTo(const BadConfig& wrong, std::ostream* out) { *out << wrong.name; }

class WrongConfig : public testing::TestWithParam<BadConfig> {};

TEST_P(WrongConfig, IsRefused_NamingFileAndKey) {
  const BadConfig& wrong = GetParam();
  Json config = good_config(wrong.model_type);
  ASSERT_TRUE(parse_config(config.dump(), "good").ok());
  for (const auto& [key, value] : wrong.change.items()) config[key] = value;
  expect_refused(parse_config(config.dump(), "dir/config.json").status(), {"dir/config.json: "});
  expect_refused(parse_config(config.dump(), "dir/config.json").status(), wrong.parts);
}

Json rope(Json settings) { return {{"rope_scaling", std::move(settings)}}; }
Json rope5(Json settings) { return {{"rope_parameters", std::move(settings)}}; }

INSTANTIATE_TEST_SUITE_P(
    Sizes, WrongConfig,
    testing::Values(
        BadConfig{"zero_hidden", "llama", {{"hidden_size", 0}}, {"hidden_size", "from 1 to", "found 0"}},
        BadConfig{"null_hidden", "llama", {{"hidden_size", nullptr}}, {"hidden_size", "found null"}},
        BadConfig{"negative_layers", "llama", {{"num_hidden_layers", -1}}, {"num_hidden_layers", "found -1"}},
        BadConfig{"many_layers", "llama", {{"num_hidden_layers", 4000000000U}}, {"num_hidden_layers", "10000"}},
        BadConfig{"huge_vocabulary",
                  "llama",
                  {{"vocab_size", 18446744073709551615U}},
                  {"vocab_size", "18446744073709551615"}},
        BadConfig{"fraction", "llama", {{"intermediate_size", 128.0}}, {"intermediate_size", "an integer", "128.0"}},
        BadConfig{"string", "llama", {{"hidden_size", "64"}}, {"hidden_size", "\"64\""}},
        BadConfig{
            "kv_heads_uneven", "llama", {{"num_key_value_heads", 3}}, {"num_attention_heads", "multiple", "(3)", "4"}},
        BadConfig{"kv_heads_more", "llama", {{"num_key_value_heads", 8}}, {"num_attention_heads", "multiple", "(8)"}},
        BadConfig{"llama_hidden_uneven", "llama", {{"hidden_size", 66}}, {"hidden_size", "multiple", "66"}},
        BadConfig{
            "mistral_hidden_uneven", "mistral", {{"hidden_size", 66}, {"head_dim", nullptr}}, {"hidden_size", "66"}},
        BadConfig{"odd_head", "qwen3", {{"head_dim", 15}}, {"head_dim", "even", "15"}},
        BadConfig{"null_head_qwen3", "qwen3", {{"head_dim", nullptr}}, {"head_dim", "found null"}},
        BadConfig{
            "heads_overflow",
            "llama",
            {{"num_attention_heads", 16384}, {"num_key_value_heads", 1}, {"hidden_size", 16384}, {"head_dim", 16384}},
            {"head_dim", "16384 * 16384"}},
        BadConfig{"no_positions", "llama", {{"max_position_embeddings", 0}}, {"max_position_embeddings", "found 0"}},
        BadConfig{"negative_epsilon", "llama", {{"rms_norm_eps", -1e-6}}, {"rms_norm_eps"}},
        BadConfig{"no_epsilon", "llama", {{"rms_norm_eps", 0.0}}, {"rms_norm_eps"}},
        BadConfig{"epsilon_word", "llama", {{"rms_norm_eps", "1e-6"}}, {"rms_norm_eps", "a number"}},
        BadConfig{"range", "llama", {{"initializer_range", 1.5}}, {"initializer_range", "1.5"}}),
    [](const auto& test_info) { return test_info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Features, WrongConfig,
    testing::Values(
        BadConfig{"family",
                  "llama",
                  {{"model_type", "gpt_bigcode"}},
                  {"model_type", "gpt_bigcode", "llama, arcee, cwm, mistral, ministral, ministral3, qwen2, qwen3"}},
        BadConfig{"family_type", "llama", {{"model_type", 3}}, {"model_type", "a string", "3"}},
        BadConfig{"mixture", "qwen3", {{"num_experts", 8}}, {"num_experts", "mixture of experts"}},
        BadConfig{"quantized", "llama", {{"quantization_config", {{"bits", 4}}}}, {"quantization_config"}},
        BadConfig{
            "partial_rotary", "llama", {{"partial_rotary_factor", 0.5}}, {"partial_rotary_factor", "turn in part"}},
        BadConfig{"attention_dropout", "llama", {{"attention_dropout", 0.1}}, {"attention_dropout"}},
        BadConfig{"per_layer", "llama", {{"per_layer_config", {{"0", {{"head_dim", 8}}}}}}, {"per_layer_config"}},
        BadConfig{"mrope", "qwen2", {{"use_mrope", true}}, {"use_mrope"}},
        BadConfig{"other_file",
                  "llama",
                  {{"transformers_weights", "other.safetensors"}},
                  {"transformers_weights", "\"other.safetensors\""}},
        BadConfig{"not_causal", "llama", {{"is_causal", false}}, {"is_causal", "expected true"}},
        BadConfig{"null_causal", "qwen3", {{"is_causal", nullptr}}, {"is_causal", "expected true"}},
        BadConfig{"activation", "llama", {{"hidden_act", "relu"}}, {"hidden_act", "relu", "silu"}},
        BadConfig{"bias_word", "llama", {{"attention_bias", "yes"}}, {"attention_bias", "true or false", "yes"}},
        BadConfig{"tie_number", "llama", {{"tie_word_embeddings", 1}}, {"tie_word_embeddings", "true or false"}},
        BadConfig{"dtype", "llama", {{"torch_dtype", "float64"}}, {"torch_dtype", "float64", "bfloat16"}},
        BadConfig{"dtype5", "llama", {{"dtype", "int8"}}, {"dtype", "int8"}},
        BadConfig{"eos_word", "llama", {{"eos_token_id", "</s>"}}, {"eos_token_id", "token id"}},
        BadConfig{"eos_in_list", "llama", {{"eos_token_id", {1, 2.5}}}, {"eos_token_id", "2.5"}},
        BadConfig{"two_pads", "llama", {{"pad_token_id", {1, 2}}}, {"pad_token_id", "one token id"}},
        BadConfig{"negative_bos", "llama", {{"bos_token_id", -7}}, {"bos_token_id", "-7"}},
        BadConfig{"window_zero", "mistral", {{"sliding_window", 0}}, {"sliding_window", "found 0"}},
        BadConfig{"mistral_mixed",
                  "mistral",
                  {{"sliding_window", 8}, {"layer_types", {"sliding_attention", "full_attention"}}},
                  {"layer_types", "layer 1", "mistral"}},
        BadConfig{"llama_sliding",
                  "llama",
                  {{"layer_types", {"sliding_attention", "full_attention"}}},
                  {"layer_types", "layer 0"}},
        BadConfig{
            "types_short", "qwen2", {{"layer_types", {"full_attention"}}}, {"layer_types", "num_hidden_layers (2)"}},
        BadConfig{"types_unknown",
                  "qwen2",
                  {{"layer_types", {"full_attention", "linear_attention"}}},
                  {"layer_types", "linear_attention"}},
        BadConfig{"types_without_window",
                  "qwen3",
                  {{"layer_types", {"full_attention", "sliding_attention"}}},
                  {"layer_types", "use_sliding_window"}},
        BadConfig{"max_window_word", "qwen2", {{"max_window_layers", "all"}}, {"max_window_layers"}},
        BadConfig{"no_window", "gemma3_text", {{"sliding_window", nullptr}}, {"sliding_window", "layer 0", "null"}},
        BadConfig{"capped", "gemma3_text", {{"final_logit_softcapping", 30.0}}, {"final_logit_softcapping"}},
        BadConfig{"capped_scores", "llama", {{"attn_logit_softcapping", 50.0}}, {"attn_logit_softcapping", "llama"}},
        BadConfig{"cap_zero", "gemma2", {{"attn_logit_softcapping", 0.0}}, {"attn_logit_softcapping", "0.0"}},
        BadConfig{"cap_word", "gemma2", {{"final_logit_softcapping", "thirty"}}, {"final_logit_softcapping", "thirty"}},
        BadConfig{"both_ways", "gemma", {{"use_bidirectional_attention", true}}, {"use_bidirectional_attention"}},
        BadConfig{"arcee_gelu", "arcee", {{"hidden_act", "gelu"}}, {"hidden_act", "gelu", "relu2"}},
        BadConfig{"window_of_letters",
                  "exaone4",
                  {{"num_key_value_heads", 2}, {"sliding_window_pattern", "LLLG"}},
                  {"sliding_window_pattern", "an integer", "LLLG"}},
        BadConfig{"slides_without_window",
                  "exaone4",
                  {{"sliding_window", nullptr}, {"layer_types", {"sliding_attention", "full_attention"}}},
                  {"layer_types", "layer 0"}},
        BadConfig{"unrotated_short", "smollm3", {{"no_rope_layers", {1}}}, {"no_rope_layers", "num_hidden_layers (2)"}},
        BadConfig{"unrotated_words", "smollm3", {{"no_rope_layers", {1, 2}}}, {"no_rope_layers", "0 or 1"}},
        BadConfig{"thetas_short",
                  "granite_swa",
                  {{"layer_rope_theta", {1e4}}},
                  {"layer_rope_theta", "num_hidden_layers (2)"}},
        BadConfig{
            "thetas_below_one", "granite_swa", {{"layer_rope_theta", {1e4, 0.5}}}, {"layer_rope_theta", "0 or from 1"}},
        BadConfig{"thetas_of_one_kind",
                  "granite_swa",
                  {{"layer_rope_theta", {1e4, 1e5}}, {"layer_types", {"full_attention", "full_attention"}}},
                  {"layer_rope_theta", "10000 and 100000 (layer 1)"}},
        BadConfig{"listed_without_window",
                  "ministral",
                  {{"layer_types", {"full_attention", "sliding_attention"}}, {"sliding_window", nullptr}},
                  {"layer_types", "layer 1"}},
        BadConfig{"scaled_bias", "minicpm3", {{"mlp_bias", true}}, {"mlp_bias", "scale_depth"}},
        BadConfig{"other_activation", "nanochat", {{"hidden_act", "silu"}}, {"hidden_act", "silu", "relu2"}},
        BadConfig{"null_window", "cwm", {{"sliding_window", nullptr}}, {"sliding_window", "layer 1"}},
        BadConfig{"biased_residual",
                  "granite",
                  {{"residual_multiplier", 0.22}, {"mlp_bias", true}},
                  {"mlp_bias", "residual_multiplier"}},
        BadConfig{"too_many_choices",
                  "qwen3_moe",
                  {{"num_experts", 4}, {"num_experts_per_tok", 5}},
                  {"num_experts_per_tok", "(4)", "found 5"}},
        BadConfig{"no_experts", "mixtral", {{"num_local_experts", 0}}, {"num_local_experts", "found 0"}},
        BadConfig{"experts_word", "olmoe", {{"num_experts", "many"}}, {"num_experts", "many"}},
        BadConfig{"router_loss", "mixtral", {{"output_router_logits", true}}, {"output_router_logits", "auxiliary"}},
        BadConfig{"router_noise", "mixtral", {{"router_jitter_noise", 0.1}}, {"router_jitter_noise", "0.0"}},
        BadConfig{"dense_words", "qwen3_moe", {{"mlp_only_layers", {"all"}}}, {"mlp_only_layers", "numbers"}},
        BadConfig{"dense_number", "qwen3_moe", {{"mlp_only_layers", 1}}, {"mlp_only_layers", "a list"}},
        BadConfig{"step_zero", "qwen3_moe", {{"decoder_sparse_step", 0}}, {"decoder_sparse_step", "found 0"}},
        BadConfig{"mxfp4_of_others",
                  "mixtral",
                  {{"quantization_config", {{"quant_method", "mxfp4"}}}},
                  {"quantization_config", "quantized"}},
        BadConfig{"other_codes",
                  "gpt_oss",
                  {{"quantization_config", {{"quant_method", "gptq"}}}},
                  {"quantization_config", "quantized"}},
        BadConfig{"no_limit", "gpt_oss", {{"swiglu_limit", 0}}, {"swiglu_limit", "found 0"}},
        BadConfig{"window_of_none",
                  "qwen2_moe",
                  {{"use_sliding_window", true}, {"sliding_window", nullptr}},
                  {"sliding_window", "use_sliding_window"}},
        BadConfig{"no_shared_width",
                  "qwen3_5_moe_text",
                  {{"shared_expert_intermediate_size", 0}},
                  {"shared_expert_intermediate_size", "found 0"}},
        BadConfig{"no_routed_experts", "qwen3_5_moe_text", {{"num_experts", 0}}, {"num_experts", "found 0"}},
        BadConfig{"shared_router_loss", "qwen3_5_moe_text", {{"output_router_logits", true}}, {"output_router_logits"}},
        BadConfig{
            "next_dense", "qwen3_next", {{"num_experts", 4}, {"mlp_only_layers", 1}}, {"mlp_only_layers", "a list"}},
        BadConfig{
            "uneven_groups", "glm4_moe", {{"n_routed_experts", 12}, {"n_group", 5}}, {"n_group", "12", "found 5"}},
        BadConfig{"groups_of_one", "glm4_moe", {{"n_routed_experts", 12}, {"n_group", 12}}, {"n_group", "found 12"}},
        BadConfig{"too_few_groups",
                  "glm4_moe",
                  {{"n_routed_experts", 12}, {"n_group", 4}, {"topk_group", 2}, {"num_experts_per_tok", 7}},
                  {"topk_group", "7 experts", "2 with 3 each"}},
        BadConfig{"more_groups_than_there_are",
                  "glm4_moe",
                  {{"n_routed_experts", 12}, {"n_group", 2}, {"topk_group", 3}},
                  {"topk_group", "found 3"}},
        BadConfig{"latent_kv_heads",
                  "glm4_moe_lite",
                  {{"num_key_value_heads", 2}},
                  {"num_key_value_heads", "num_attention_heads (4)", "found 2"}},
        BadConfig{"odd_turned",
                  "deepseek_v3",
                  {{"num_key_value_heads", nullptr}, {"qk_rope_head_dim", 5}},
                  {"qk_rope_head_dim", "even", "found 5"}},
        BadConfig{"latent_head_dim",
                  "glm4_moe_lite",
                  {{"head_dim", 192}},
                  {"head_dim", "qk_rope_head_dim (64)", "found 192"}},
        BadConfig{"wide_values",
                  "deepseek_v2",
                  {{"v_head_dim", 200}},
                  {"v_head_dim", "qk_nope_head_dim + qk_rope_head_dim (192)", "found 200"}},
        BadConfig{"no_latent", "deepseek_v2", {{"kv_lora_rank", 0}}, {"kv_lora_rank", "found 0"}},
        BadConfig{"leading_that_nobody_reads",
                  "glm4_moe_lite",
                  {{"first_k_dense_replace", 2}},
                  {"first_k_dense_replace", "takes 1", "mlp_layer_types"}},
        BadConfig{"mlp_types",
                  "glm4_moe_lite",
                  {{"mlp_layer_types", {"dense"}}},
                  {"mlp_layer_types", "a list of num_hidden_layers"}},
        BadConfig{"largest_of_groups",
                  "deepseek_v2",
                  {{"topk_method", "group_limited_greedy"}},
                  {"topk_method", "group_limited_greedy", "greedy"}},
        BadConfig{
            "normalised_by_nobody", "deepseek_v2", {{"norm_topk_prob", true}}, {"norm_topk_prob", "expected false"}},
        BadConfig{"no_choices", "deepseek_v2", {{"num_experts_per_tok", nullptr}}, {"num_experts_per_tok"}},
        BadConfig{"two_biases", "internlm3", {{"qkv_bias", true}}, {"bias", "qkv_bias says (true)", "found false"}},
        BadConfig{"coder_slides",
                  "iquestcoder",
                  {{"use_sliding_window", true}},
                  {"use_sliding_window", "iquestcoder", "expected false"}},
        BadConfig{"heads_wider_than_all", "helium", {{"head_dim", 32}}, {"head_dim", "hidden_size (64)", "found 32"}},
        BadConfig{"latent_of_other_heads",
                  "youtu",
                  {{"num_key_value_heads", 2}},
                  {"num_key_value_heads", "num_attention_heads (4)", "found 2"}},
        BadConfig{"experts_of_a_dense_one", "youtu", {{"n_routed_experts", 8}}, {"n_routed_experts", "dense"}},
        BadConfig{"shared_none", "granitemoehybrid", {{"shared_intermediate_size", 0}}, {"shared_intermediate_size"}},
        BadConfig{"choices_by_layer", "hunyuan_v1_moe", {{"moe_topk", {1, 2}}}, {"moe_topk", "same one", "2 layers"}},
        BadConfig{"ropes_of_no_kind",
                  "mellum",
                  {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}},
                  {"rope_parameters", "full_attention"}},
        BadConfig{"share_in_none", "dots1", {{"n_shared_experts", nullptr}}, {"n_shared_experts"}},
        BadConfig{"width_in_none", "dots1", {{"moe_intermediate_size", nullptr}}, {"moe_intermediate_size"}},
        BadConfig{"listed_without_a_window",
                  "dots1",
                  {{"sliding_window", nullptr}, {"layer_types", {"full_attention", "sliding_attention"}}},
                  {"layer_types", "layer 1", "sliding_window null"}},
        BadConfig{"always_slides",
                  "exaone_moe",
                  {{"sliding_window", nullptr}},
                  {"sliding_window", "layer 0 is sliding_attention", "found null"}},
        BadConfig{"turned_too_far", "minimax_m2", {{"rotary_dim", 17}}, {"rotary_dim", "found 17"}},
        BadConfig{"interval_of_none",
                  "afmoe",
                  {{"global_attn_every_n_layers", 0}},
                  {"global_attn_every_n_layers", "found 0"}},
        BadConfig{"no_factor_of_shares", "glm4_moe", {{"routed_scaling_factor", 0.0}}, {"routed_scaling_factor"}},
        BadConfig{"none_shared", "glm4_moe", {{"n_shared_experts", 0}}, {"n_shared_experts", "found 0"}},
        BadConfig{"least_sum", "ernie4_5_moe", {{"moe_norm_min", 0.5}}, {"moe_norm_min", "0.5"}},
        BadConfig{"head_bias", "ernie4_5_moe", {{"use_bias", true}}, {"use_bias", "head"}},
        BadConfig{"no_interval", "ernie4_5_moe", {{"moe_layer_interval", 0}}, {"moe_layer_interval", "found 0"}},
        BadConfig{"biased_convolution", "lfm2_moe", {{"conv_bias", true}}, {"conv_bias"}},
        BadConfig{"rows_of_inputs",
                  "gemma4_text",
                  {{"vocab_size_per_layer_input", 5}, {"hidden_size_per_layer_input", 4}},
                  {"vocab_size_per_layer_input", "at least vocab_size", "found 5"}},
        BadConfig{"all_share", "gemma4_text", {{"num_kv_shared_layers", 2}}, {"num_kv_shared_layers", "found 2"}},
        BadConfig{"none_to_share",
                  "gemma4_text",
                  {{"num_kv_shared_layers", 1}, {"layer_types", {"sliding_attention", "full_attention"}}},
                  {"num_kv_shared_layers", "layer 1 is full_attention", "below the last 1"}},
        BadConfig{"inputs_beside_experts",
                  "gemma4_text",
                  {{"enable_moe_block", true},
                   {"num_experts", 4},
                   {"top_k_experts", 2},
                   {"moe_intermediate_size", 8},
                   {"hidden_size_per_layer_input", 4},
                   {"vocab_size_per_layer_input", 1000}},
                  {"hidden_size_per_layer_input", "enable_moe_block"}},
        BadConfig{"sees_what_follows",
                  "gemma4_text",
                  {{"use_bidirectional_attention", "all"}},
                  {"use_bidirectional_attention", "vision"}},
        BadConfig{"other_scaling",
                  "gemma4_text",
                  {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}},
                  {"rope_scaling", "rope_parameters"}},
        BadConfig{"one_set_alone",
                  "gemma4_text",
                  {{"rope_parameters", {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 7.0}}}}}},
                  {"rope_parameters", "sliding_attention"}},
        BadConfig{"no_width_of_experts",
                  "gemma4_text",
                  {{"enable_moe_block", true}, {"num_experts", 4}, {"top_k_experts", 2}},
                  {"moe_intermediate_size"}},
        BadConfig{"layer_of_its_own",
                  "gemma4_text",
                  {{"per_layer_config", {{"0", {{"head_dim", 4}}}}}},
                  {"per_layer_config", "layer 0"}},
        BadConfig{"width_by_layer",
                  "gemma4_text",
                  {{"per_layer_config", {{"1", {{"intermediate_size", 4}}}}}},
                  {"per_layer_config", "intermediate_size"}},
        BadConfig{"uneven_global_heads",
                  "gemma4_text",
                  {{"attention_k_eq_v", true}, {"num_key_value_heads", 1}, {"num_global_key_value_heads", 3}},
                  {"num_attention_heads", "num_global_key_value_heads (3)"}},
        BadConfig{"clipped", "olmoe", {{"clip_qkv", 8.0}}, {"clip_qkv", "capped"}},
        BadConfig{"cohere_head_norms", "cohere", {{"use_qk_norm", true}}, {"use_qk_norm", "expected false"}},
        BadConfig{"cohere_no_logits", "cohere", {{"logit_scale", 0.0}}, {"logit_scale", "found 0"}},
        BadConfig{"cohere2_no_window", "cohere2", {{"sliding_window", nullptr}}, {"sliding_window", "found null"}},
        BadConfig{"code_drops", "starcoder2", {{"embedding_dropout", 0.1}}, {"embedding_dropout", "expected 0.0"}},
        BadConfig{"code_drops_more", "starcoder2", {{"residual_dropout", 0.1}}, {"residual_dropout", "expected 0.0"}},
        BadConfig{"code_squares", "starcoder2", {{"hidden_act", "relu2"}}, {"hidden_act", "relu2", "gelu"}},
        BadConfig{"stable_drops", "stablelm", {{"hidden_dropout", 0.1}}, {"hidden_dropout", "expected 0.0"}},
        BadConfig{"stable_head_norms", "stablelm", {{"qk_layernorm", true}}, {"qk_layernorm", "expected false"}},
        BadConfig{"neox_drops", "gpt_neox", {{"hidden_dropout", 0.1}}, {"hidden_dropout", "expected 0.0"}},
        BadConfig{"neox_odd", "gpt_neox", {{"rotary_pct", 0.2}}, {"rotary_pct", "an even number"}},
        BadConfig{"olmo_clipped", "olmo", {{"clip_qkv", 8.0}}, {"clip_qkv", "capped"}},
        BadConfig{"no_logits", "granite", {{"logits_scaling", 0.0}}, {"logits_scaling", "found 0"}}),
    [](const auto& test_info) { return test_info.param.name; });

const Json kLlama3 = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};

INSTANTIATE_TEST_SUITE_P(
    Rotary, WrongConfig,
    testing::Values(
        BadConfig{"one_set", "olmo3", rope5({{"rope_type", "default"}}), {"rope_parameters", "full_attention"}},
        BadConfig{"set_of_others", "gemma3_text", rope5({{"linear_attention", Json::object()}}), {"linear_attention"}},
        BadConfig{"kind_in_set",
                  "gemma3_text",
                  rope5({{"sliding_attention", {{"rope_type", "su"}}}}),
                  {"rope_parameters.sliding_attention.rope_type", "su"}},
        BadConfig{"kind", "llama", rope({{"rope_type", "ntk"}}), {"rope_scaling.rope_type", "ntk", "yarn"}},
        BadConfig{
            "long_kind", "llama", rope({{"rope_type", "longrope"}}), {"rope_scaling.short_factor", "found nothing"}},
        BadConfig{"old_kind", "llama", rope({{"type", "su"}}), {"rope_scaling.type", "su"}},
        BadConfig{"kind_number", "llama", rope5({{"rope_type", 1}}), {"rope_parameters.rope_type", "a string"}},
        BadConfig{"list", "llama", rope(Json::array({1})), {"rope_scaling", "an object"}},
        BadConfig{"no_factor", "llama", rope({{"rope_type", "linear"}}), {"rope_scaling.factor", "found nothing"}},
        BadConfig{
            "small_factor", "llama", rope({{"rope_type", "dynamic"}, {"factor", 0.5}}), {"rope_scaling.factor", "0.5"}},
        BadConfig{"yarn_no_factor", "llama", rope({{"type", "yarn"}}), {"rope_scaling.factor", "found nothing"}},
        BadConfig{"yarn_betas",
                  "llama",
                  rope5({{"rope_type", "yarn"}, {"factor", 2}, {"beta_fast", 1}, {"beta_slow", 2}}),
                  {"rope_parameters.beta_fast", "beta_slow"}},
        BadConfig{"yarn_base_one",
                  "llama",
                  rope5({{"rope_type", "yarn"}, {"factor", 2}, {"rope_theta", 1.0}}),
                  {"rope_parameters.rope_theta"}},
        BadConfig{"llama3_no_low",
                  "llama",
                  rope({{"rope_type", "llama3"}, {"factor", 8}, {"high_freq_factor", 4}}),
                  {"rope_scaling.low_freq_factor", "found nothing"}},
        BadConfig{"llama3_low_zero",
                  "llama",
                  [] {
                    Json j = kLlama3;
                    j["low_freq_factor"] = 0;
                    return rope(j);
                  }(),
                  {"rope_scaling.low_freq_factor"}},
        BadConfig{"llama3_order",
                  "llama",
                  [] {
                    Json j = kLlama3;
                    j["high_freq_factor"] = 1;
                    return rope(j);
                  }(),
                  {"high_freq_factor", "low_freq_factor"}},
        BadConfig{"llama3_length",
                  "llama",
                  [] {
                    Json j = kLlama3;
                    j["original_max_position_embeddings"] = 0;
                    return rope(j);
                  }(),
                  {"original_max_position_embeddings", "found 0"}},
        BadConfig{"theta_zero", "llama", {{"rope_theta", 0}}, {"rope_theta", "found 0"}},
        BadConfig{"theta_word", "llama", rope5({{"rope_theta", "10000"}}), {"rope_parameters.rope_theta", "a number"}},
        BadConfig{
            "partial", "llama", rope5({{"partial_rotary_factor", 0.25}}), {"rope_parameters.partial_rotary_factor"}},
        BadConfig{"phi_kind", "phi3", rope({{"type", "linear"}, {"factor", 2}}), {"rope_scaling.type", "longrope"}},
        BadConfig{"phi_odd", "phi3", {{"partial_rotary_factor", 0.95}}, {"partial_rotary_factor", "an even number"}},
        BadConfig{"phi_none", "phi3", {{"partial_rotary_factor", 0.0}}, {"partial_rotary_factor", "found 0"}},
        BadConfig{"phi_no_factors",
                  "phi3",
                  rope({{"type", "longrope"}, {"long_factor", {1, 2, 3, 4, 5, 6, 7, 8}}}),
                  {"rope_scaling.short_factor", "a list of 8 numbers", "found nothing"}},
        BadConfig{"phi_few_factors",
                  "phi3",
                  rope({{"type", "su"}, {"short_factor", {1, 2, 3, 4, 5, 6, 7, 8}}, {"long_factor", {1, 2, 3}}}),
                  {"rope_scaling.long_factor", "a list of 8 numbers"}},
        BadConfig{"phi_zero_factor",
                  "phi3",
                  rope({{"type", "yarn"},
                        {"short_factor", {1, 2, 0, 4, 5, 6, 7, 8}},
                        {"long_factor", {1, 2, 3, 4, 5, 6, 7, 8}}}),
                  {"rope_scaling.short_factor"}},
        BadConfig{"growth_without_rate",
                  "ministral3",
                  rope5({{"rope_type", "yarn"}, {"factor", 2}}),
                  {"rope_parameters.llama_4_scaling_beta", "found nothing"}},
        BadConfig{"growth_from_nowhere",
                  "ministral3",
                  rope5({{"rope_type", "default"}, {"llama_4_scaling_beta", 0.1}}),
                  {"rope_parameters.original_max_position_embeddings", "found nothing"}},
        BadConfig{"type_without_effect",
                  "olmo3",
                  rope({{"type", "linear"}, {"factor", 2}}),
                  {"rope_scaling", "type of olmo3", "rope_type"}},
        BadConfig{"share_by_default",
                  "qwen3_5_text",
                  {{"head_dim", 12}},
                  {"partial_rotary_factor", "0.25 of head_dim (12)", "an even number", "found 3"}},
        BadConfig{"share_of_settings",
                  "qwen3_5_text",
                  {{"head_dim", 16}, {"rope_parameters", {{"partial_rotary_factor", 0.0}}}},
                  {"rope_parameters.partial_rotary_factor", "found 0"}},
        BadConfig{"seed_drops", "seed_oss", {{"attention_dropout", 0.1}}, {"attention_dropout", "expected 0.0"}},
        BadConfig{"seed_drops_by_default",
                  "seed_oss",
                  {{"residual_dropout", nullptr}},
                  {"residual_dropout", "expected 0.0; without the key it is 0.1"}},
        BadConfig{"phi_drops", "phi3", {{"resid_pdrop", 0.1}}, {"resid_pdrop", "expected 0.0"}},
        BadConfig{"delta_kind",
                  "qwen3_5_text",
                  {{"layer_types", {"full_attention", "sliding_attention"}}},
                  {"layer_types", "sliding_attention", "linear_attention"}},
        BadConfig{"delta_heads",
                  "qwen3_5_text",
                  {{"linear_num_key_heads", 4}, {"linear_num_value_heads", 6}},
                  {"linear_num_value_heads", "a multiple of linear_num_key_heads (4)"}},
        BadConfig{"delta_size", "qwen3_5_text", {{"linear_key_head_dim", 256}}, {"linear_key_head_dim", "found 256"}},
        BadConfig{
            "delta_width", "qwen3_5_text", {{"linear_conv_kernel_dim", 9}}, {"linear_conv_kernel_dim", "found 9"}},
        BadConfig{
            "delta_activation", "qwen3_5_text", {{"hidden_act", "gelu"}}, {"hidden_act", "expected silu", "gelu"}},
        BadConfig{"by_layer",
                  "qwen3",
                  rope5({{"full_attention", {{"rope_type", "default"}}}}),
                  {"rope_parameters", "full_attention"}},
        BadConfig{"dynamic_tiny_head",
                  "qwen3",
                  {{"head_dim", 2}, {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}}},
                  {"dynamic", "head_dim"}}),
    [](const auto& test_info) { return test_info.param.name; });

struct Text {
  std::string name;
  std::string text;
  std::string part;
};

void PrintTo(const Text& text, std::ostream* out) { *out << text.name; }

class WrongText : public testing::TestWithParam<Text> {};

TEST_P(WrongText, IsRefused_NamingTheFile) {
  expect_refused(parse_config(GetParam().text, "dir/config.json").status(), {"dir/config.json", GetParam().part});
}

INSTANTIATE_TEST_SUITE_P(
    Json, WrongText,
    testing::Values(Text{"empty", "", "not valid JSON"}, Text{"cut", R"({"model_type": "llama")", "at byte"},
                    Text{"two_documents", "{} {}", "not valid JSON"}, Text{"list", "[]", "expected an object"},
                    Text{"nothing_in_it", "{}", "model_type"},
                    Text{"not_a_number", R"({"model_type": "llama", "hidden_size": NaN})", "not valid JSON"},
                    Text{"too_large_a_number", R"({"model_type": "llama", "rms_norm_eps": 1e999})", "not valid JSON"},
                    Text{"key_twice", R"({"model_type": "llama", "model_type": "qwen2"})", "twice"},
                    Text{"not_utf8", "{\"model_type\": \"\xff\xfe\"}", "not valid JSON"},
                    Text{"line_break_in_name", R"({"model_type": "a\nb"})", "a\\nb"},
                    Text{"deep", std::string(100000, '['), "nested"},
                    Text{"deep_objects",
                         [] {
                           std::string text;
                           for (int i = 0; i < 50000; ++i) text += "{\"a\":";
                           return text;
                         }(),
                         "nested"}),
    [](const auto& test_info) { return test_info.param.name; });

TEST(LoadConfig, NoFile_NamesIt) {
  expect_refused(load_config(fresh_folder()).status(), {"config.json", "No such file"});
}

TEST(LoadConfig, FileTooLarge_IsRefusedUnread) {
  const auto folder = fresh_folder();
  put(folder / "config.json", "{");
  std::filesystem::resize_file(folder / "config.json", 1ULL << 40U);
  expect_refused(load_config(folder).status(), {"config.json", "at most"});
}

TEST(ParseConfig, TextPart_IsTiedAsItsWholeSays) {
  for (const auto& [whole, part, by_default] : {std::tuple("gemma3", "gemma3_text", true),
                                                std::tuple("gemma4", "gemma4_text", true),
                                                {"gemma4_unified", "gemma4_unified_text", true},
                                                {"mistral3", "mistral", true},
                                                {"mistral3", "ministral3", true},
                                                {"qwen3_5", "qwen3_5_text", false}}) {
    Json config = {{"model_type", whole}, {"text_config", good_config(part)}};
    for (const bool within : {false, true}) {
      config["text_config"]["tie_word_embeddings"] = within;
      config.erase("tie_word_embeddings");
      const auto silent = parse_config(config.dump(), "c");
      ASSERT_TRUE(silent.ok()) << silent.status();
      EXPECT_EQ(silent->tie_word_embeddings, by_default) << whole;
      config["tie_word_embeddings"] = !by_default;
      EXPECT_EQ(parse_config(config.dump(), "c")->tie_word_embeddings, !by_default) << whole;
    }
  }
}

TEST(ParseConfig, DtypeAsPyTorchPrintsIt_IsTheSame) {
  Json config = good_config();
  config["torch_dtype"] = "torch.bfloat16";
  const auto parsed = parse_config(config.dump(), "c");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->weight_type, WeightType::kBfloat16);
}

TEST(ParseConfig, MinusOneForAToken_IsNone) {
  Json config = good_config();
  config["pad_token_id"] = -1;
  config["eos_token_id"] = nullptr;
  const auto parsed = parse_config(config.dump(), "c");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->pad_token_id, std::nullopt);
  EXPECT_TRUE(parsed->eos_token_ids.empty());
}

TEST(LoadStopIds, GenerationConfig_WinsWhenItSaysSomething) {
  const auto folder = fresh_folder();
  ModelConfig config;
  config.eos_token_ids = {5};
  const std::vector<std::int32_t> own = {5};
  EXPECT_EQ(*load_stop_ids(folder, config), own);
  put(folder / "generation_config.json", R"({"eos_token_id": [7, 8]})");
  EXPECT_EQ(*load_stop_ids(folder, config), (std::vector<std::int32_t>{7, 8}));
  put(folder / "generation_config.json", R"({"eos_token_id": 9})");
  EXPECT_EQ(*load_stop_ids(folder, config), (std::vector<std::int32_t>{9}));
  for (const char* silent : {"{}", R"({"eos_token_id": null})", R"({"eos_token_id": []})", R"({"eos_token_id": -1})"}) {
    put(folder / "generation_config.json", silent);
    EXPECT_EQ(*load_stop_ids(folder, config), own) << silent;
  }
}

TEST(LoadStopIds, BrokenGenerationConfig_IsRefusedByFileAndKey) {
  const auto folder = fresh_folder();
  for (const char* broken : {"[", "", "[1]", "{\"eos_token_id\": 7,"}) {
    put(folder / "generation_config.json", broken);
    expect_refused(load_stop_ids(folder, {}).status(), {"generation_config.json"});
  }
  for (const char* wrong : {R"("x")", "2.5", "true", R"([7, "x"])", R"({"id": 7})", "5000000000"}) {
    const std::string text = R"({"eos_token_id": )" + std::string(wrong) + "}";
    put(folder / "generation_config.json", text);
    expect_refused(load_stop_ids(folder, {}).status(), {"generation_config.json", "eos_token_id", "token id"});
    // The same text in memory, as of a GGUF file.
    const Documents made("model.gguf", {{"generation_config.json", text}});
    expect_refused(load_stop_ids(made, {}).status(), {"model.gguf as generation_config.json", "eos_token_id"});
  }
}

TEST(ParseWeightType, Words_HaveTwoSpellings) {
  EXPECT_EQ(*parse_weight_type("bf16"), *parse_weight_type("bfloat16"));
  EXPECT_EQ(*parse_weight_type("fp16"), WeightType::kFloat16);
  EXPECT_EQ(*parse_weight_type("fp32"), WeightType::kFloat32);
  expect_refused(parse_weight_type("int8").status(), {"int8", "bf16"});
}

}  // namespace
}  // namespace rondo::model
