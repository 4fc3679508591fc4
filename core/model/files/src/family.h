// What transformers assumes of each family when config.json is silent, and where the families differ.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rondo/model/config.h"

namespace rondo::model {

/// How a family says which layers slide.
enum class Windows {
  kNone,       // none does
  kNever,      // likewise, and use_sliding_window may say nothing else
  kAll,        // sliding_window, in all layers
  kSwitched,   // sliding_window, in all layers, where use_sliding_window says so
  kChosen,     // use_sliding_window, and layer_types or else max_window_layers: the layers from there on
  kEven,       // likewise, or else every second layer before max_window_layers, from the first on
  kUnrotated,  // use_sliding_window, and layer_types or else the layers without rotary embedding
  kPattern,    // layer_types, or else all but each so-many-th layer
  kTurned,     // likewise where sliding_window has a number; those that see all have no rotary embedding then
  kUnturned,   // likewise, but sliding_window must have one
  kBehind,     // sliding_window where it has a number, and layer_types or else max_window_layers as in kChosen
  kListed,     // likewise, and layer_types or else all layers
};

/// sliding_window when the key is absent, in tokens.
inline constexpr std::uint32_t kDefaultWindow = 4096;

/// Which blocks have experts: all, or as the file says.
enum class Mixtures {
  kEverywhere,
  kStepped,         // decoder_sparse_step and mlp_only_layers
  kRanged,          // moe_layer_start_index, moe_layer_end_index and moe_layer_interval
  kBehind,          // those behind the first so many: ExpertTraits::leading_key
  kListed,          // mlp_layer_types, or else those behind the first so many, whatever leading_key says
  kListedOrBehind,  // mlp_layer_types, or else as leading_key says
  kMixers,          // those whose only half these are: config_mixers.h
};

/// ExpertTraits::width: moe_intermediate_size must be there.
inline constexpr std::uint32_t kInFile = 0xffffffffU;

/// How a family with experts says how many there are; what has no number here must be in the file.
struct ExpertTraits {
  std::string_view count_key;  // num_experts or num_local_experts; the other one is let pass
  std::string_view choices_key = "num_experts_per_tok";
  std::uint32_t count = 0;         // when the key is absent; 0: it must be there
  std::uint32_t choices = 0;       // likewise
  std::uint32_t width = 0;         // moe_intermediate_size likewise; 0: their width is intermediate_size
  bool normalises_always = false;  // else norm_topk_prob says so
  bool normalises = false;         // when that is absent
  bool never_normalises = false;   // transformers passes over norm_topk_prob
  Mixtures mixtures = Mixtures::kEverywhere;
  bool numbered_weights = false;   // Mixtral's names of tensors
  bool stacked = false;            // GPT-OSS: of all experts one tensor, biases, a clamped activation
  bool in_linears = false;         // Granite: of all experts one tensor, input_linear and output_linear
  bool everywhere = false;         // no block has an MLP alone, and none is so wide as intermediate_size
  std::uint32_t shared_width = 0;  // shared_expert_intermediate_size when the key is absent; 0: there is no such expert
  bool adapts_shared = false;      // ExpertsConfig::adapts_shared
  /// In the place of shared_width: it is so many times as wide as another, without a gate. Which key says so, how many
  /// when it is absent, and whether there may be none.
  std::string_view shared_count_key = {};
  std::uint32_t shared_count = 0;
  bool may_share_none = false;
  std::string_view leading_key = {};                      // of the blocks with one MLP each that come first
  std::uint32_t leading = 0;                              // when it is absent
  std::string_view choice_bias = {};                      // its name within the mixture; empty: there is none
  std::string_view choice_bias_key = {};                  // says whether it is there; empty: always
  bool by_sigmoids = false;                               // ExpertsConfig::sigmoid; routed_scaling_factor is read
  bool reads_factor = false;                              // it is read beside softmax too
  std::string_view factor_key = "routed_scaling_factor";  // empty: shares have none
  double factor = 1.0;                                    // when that is absent
  bool in_groups = false;                                 // n_group and topk_group are read
  std::uint32_t groups = 1;                               // when these are absent
  std::uint32_t chosen_groups = 1;
  double added = 0.0;  // ExpertsConfig::added
  /// Gemma 4: there are experts where this key says so, none where it is absent, beside an MLP (beside_mlp), of a width
  /// that must be there.
  std::string_view switch_key = {};
  const char* router = nullptr;  // its name within the mixture, where it is another than `gate`
  bool linear_router = false;    // ExpertsConfig::linear_router
  bool lists_choices = false;    // choices_key may have a list, with the same number for each block
  bool shares_mlp =
      false;  // the one that all tokens share is as wide as intermediate_size, `shared_mlp`, without a gate
  /// Of the MLP beside them, which has no gate either, and its width when that is absent (0: there is none).
  std::string_view shared_mlp_key = {};
  std::uint32_t shared_mlp_width = 0;
  bool may_be_none = false;  // their number may be 0: then that MLP is alone
  /// In the place of shared_width, without a gate: the width of the one that all tokens share, `shared_experts`, and
  /// what that is when it is absent.
  std::string_view shared_width_key = {};
  std::uint32_t shared_width_absent = 0;
};

/// A family may have several rows: the first is what its models are written as.
struct FamilyTraits {
  Family family;
  std::string_view model_type;
  std::string_view architecture;        // name of the class with the language-model head
  std::uint32_t vocab_size = 0;         // when the key is absent; 0: it must be there
  std::uint32_t num_heads = 0;          // likewise
  std::uint32_t kv_heads = 0;           // when the key is absent; 0: as many as query heads
  std::uint32_t head_dim = 0;           // when the key is absent; 0: hidden_size / num_attention_heads
  std::uint32_t global_head_dim = 0;    // ModelConfig::global_heads, likewise; 0: there are no such
  std::uint32_t block_inputs = 0;       // hidden_size_per_layer_input when it is absent
  std::uint32_t intermediate_size = 0;  // when the key is absent; 0: it must be there
  std::uint32_t max_positions;
  double rms_norm_eps = 1e-6;
  std::string_view eps_key = "rms_norm_eps";  // empty: it is always rms_norm_eps
  double theta = 10000.0;
  std::string_view theta_key = "rope_theta";  // outside of rotary settings
  std::string_view default_rope = {};         // rotary settings when there are none, as JSON
  bool reads_alpha = false;                   // RopeConfig::alpha
  bool grows_queries = false;                 // RopeConfig::query_growth
  bool turns_neighbours = false;              // ModelConfig::turns_neighbours
  bool turns_backwards = false;               // ModelConfig::turns_backwards
  bool reads_interleave = false;              // `rope_interleave` says so where it is there
  /// Attention by a latent, and its sizes when their keys are absent; of values 0: hidden_size / num_attention_heads.
  std::optional<LatentAttentionConfig> latent_attention = std::nullopt;
  std::optional<double> turned_share = std::nullopt;      // heads turn in part: this one when the key is absent
  std::string_view turned_key = "partial_rotary_factor";  // which stands outside of rotary settings; empty: none does
  bool sets_ropes_by_kind = false;  // Gemma 4: rope_parameters has all of both kinds of layer, or is absent
  /// Phi-3: longrope is the only scaling (older files call it su or yarn), and what is trained for
  /// has this length when original_max_position_embeddings does not stand outside of the settings. 0: not so.
  std::uint32_t long_rope_from = 0;
  bool fused_mlp = false;       // ModelConfig::fused_mlp
  bool fused = false;           // ModelConfig::fused_linears
  bool fused_by_heads = false;  // ModelConfig::fused_by_heads; each head of queries has one of keys
  double dropout = 0.0;         // inside attention, and of residuals, when the key is absent
  std::string_view residual_dropout_key = {};
  std::string_view embedding_dropout_key = {};
  std::optional<std::int32_t> bos = std::nullopt;
  bool needs_bos = false;  // transformers loads no model without
  std::optional<std::int32_t> eos = std::nullopt;
  std::optional<std::int32_t> pad = std::nullopt;
  std::span<const std::int32_t> stops = {};  // eos_token_id when it is absent or null, where they are several
  bool ties = false;                         // when tie_word_embeddings is absent
  bool trains_padding = false;               // ModelConfig::trains_padding
  bool divides_heads = false;                // hidden_size must be a multiple of the heads, whatever head_dim is
  bool fills_width = false;                  // the heads together are as wide as hidden_size
  bool qkv_bias_always = false;              // Qwen2's q, k and v have biases whatever the file says
  std::string_view qkv_bias_key = {};        // or this says so
  bool qkv_bias = true;                      // when it is absent
  bool reads_use_bias = false;               // `use_bias` is that of attention, of o and of MLPs
  bool use_bias = false;                     // when the key is absent
  bool reads_attention_bias = false;         // `attention_bias` means something to this family
  bool attention_bias = false;               // when the key is absent
  /// That o has a bias says this key, or nothing does where it is empty; attention_bias where there is no value.
  std::optional<std::string_view> output_bias_key = std::nullopt;
  bool biased_alike = false;  // InternLM 3: attention_bias, also `qkv_bias`, and mlp_bias, also `bias`, say the same
  bool attention_sinks = false;
  bool gates_attention = false;           // ModelConfig::gates_apart
  bool state_space = false;               // in some blocks; in all where nothing is said. Granite 4
  bool lists_attention = false;           // attn_layer_indices has the others. Bamba
  bool beside_attention = false;          // StateSpaceConfig::beside_attention, in all blocks
  bool lone_halves = false;               // a block is a state space, attention, an MLP or experts: Nemotron-H's words
  bool adapts_space_output = true;        // PEFT lets a state space's out_proj have an adapter
  bool rotates = true;                    // false: there is no rotary embedding, nor are there settings of it
  const char* prefix_in_files = nullptr;  // in the place of `prefix`, where files have another
  bool reads_rotary_dim = false;          // how many channels of a head turn
  bool reads_linear_factors = false;      // LinearFactors, and factors of embeddings and logits: Falcon-H1
  bool reads_mup = false;                 // `mup_enabled`: embeddings are times sqrt(hidden_size), not rounded
  bool linear_attention = false;          // in some blocks; the others' attention is gated
  bool joined_by_heads = false;           // LinearAttentionConfig::joined_by_heads
  bool short_convolution = false;         // in some blocks. LFM2's names of tensors and keys
  bool adjusts_width = false;  // LFM2: an MLP's width is less than what the file says, unless that says otherwise
  bool reads_mlp_bias = false;
  bool mlp_bias = false;  // when the key is absent
  bool mlp_bias_always = false;
  bool gated_mlp = true;  // ModelConfig::gated_mlp
  std::string_view activation =
      {};  // when its key is absent; empty: silu, or of MLPs without a gate relu2 and no other
  /// What tensors and layers are called; before all but the head's stands `prefix`.
  const char* prefix = "model.";
  const char* embedding_name = "embed_tokens";
  const char* last_norm_name = "norm";
  const char* attention_name = "self_attn";
  const char* joined_name = "qkv_proj";  // of one linear layer for q, k and v
  const char* output_name = "o_proj";
  const char* mlp_name = "mlp";
  const char* up_name = "up_proj";
  const char* down_name = "down_proj";
  const char* head_in_files = "lm_head";
  bool stores_masks = false;  // older files have the masks of attention as tensors, which are passed over
  Windows windows = Windows::kNone;
  std::uint32_t default_window = kDefaultWindow;  // when sliding_window is absent; 0: none
  std::uint32_t window_pattern = 0;               // of kPattern, kTurned and kUnturned: each so-many-th layer sees all
  std::string_view pattern_key = "sliding_window_pattern";  // which this says
  bool sees_all_first = false;      // of kPattern: counted from the first layer on, which sees all
  std::uint32_t first_window = 28;  // of kChosen and kBehind: max_window_layers when it is absent
  /// Layers that slide have rotary settings of their own, with this theta when they have none; transformers 4 has it
  /// under window_theta_key, or nowhere where that is empty.
  std::optional<double> window_theta = std::nullopt;
  std::string_view window_theta_key = {};
  bool lists_thetas = false;             // layer_rope_theta has each layer's, 0 where it has no rotary embedding
  std::uint32_t unrotated_interval = 0;  // each so-many-th layer has no rotary embedding; 0: all have it
  bool reads_multipliers = false;        // Granite's four
  bool reads_depth_scale = false;        // MiniCPM's three: scale_emb, scale_depth, dim_model_base
  bool reads_logit_scale = false;        // `logit_scale` is what logits are multiplied by: Cohere
  bool multiplies_logits = false;        // by logits_scaling; and scores are scaled as usual where nothing is said
  /// `use_post_norm`, true when it is absent, says whether norm_place holds, or else kInput.
  bool reads_post_norm = false;
  double initializer_range = 0.02;  // when it is absent
  bool deviates_by_width = false;   // initializer_range follows from hidden_size where it is absent: Youtu
  NormPlace norm_place = NormPlace::kInput;
  bool layer_norm = false;  // ModelConfig::centred_norms
  bool norm_weight = true;
  bool norm_bias = false;
  bool norms_embedding = false;  // ModelConfig::norms_embedding
  bool parallel = false;
  std::string_view parallel_key = {};                  // says so where it is there
  NormPlace parallel_norm_place = NormPlace::kShared;  // of blocks in parallel
  QkNorm qk_norm = QkNorm::kNone;
  bool reads_qk_norm = false;                 // `use_qk_norm` says whether there are norms of each head
  std::string_view refused_qk_norm_key = {};  // says so likewise, and they are not supported
  bool norms_turned = false;
  /// What predicts the token after the next is passed over: one block more, or tensors whose names begin so.
  bool predicts_ahead = false;
  std::string_view ahead_prefix = {};
  std::optional<ExpertTraits> experts = std::nullopt;
  bool norms_add_one = false;   // they multiply by 1 + weight
  bool norms_values = false;    // ModelConfig::norms_values
  bool scales_blocks = false;   // ModelConfig::scales_blocks
  bool is_gemma = false;        // embeddings times sqrt(hidden_size), GELU
  double attention_scale = 0;   // ModelConfig::attention_scale; 0: none
  bool scales_queries = false;  // query_pre_attn_scalar
  /// attn_logit_softcapping and final_logit_softcapping when the key is absent; 0: the family has no such.
  double attention_cap = 0;
  double logits_cap = 0;
  bool reads_logits_cap = false;                   // final_logit_softcapping alone, none when the key is absent
  std::string_view activation_key = "hidden_act";  // empty: it is always silu
};

std::span<const FamilyTraits> all_families();
/// Those of them that have experts.
std::span<const FamilyTraits> families_with_experts();
std::span<const FamilyTraits> families_with_sigmoids();
/// Those of the others that have state spaces, and LayerNorm.
std::span<const FamilyTraits> families_with_spaces();
std::span<const FamilyTraits> families_with_layer_norm();
const FamilyTraits& traits_of(Family family);
/// Null when the family is not supported.
const FamilyTraits* find_family(std::string_view model_type);
/// "llama, mistral, ...", for messages.
std::string family_names();

std::string_view weight_type_name(WeightType type);  // float32, bfloat16, float16
std::string_view activation_name(Activation activation);
std::string_view rope_kind_name(RopeKind kind);

}  // namespace rondo::model
