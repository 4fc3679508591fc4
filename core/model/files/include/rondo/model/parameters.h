// The weights that a model has: names as transformers writes them, shapes and roles; the linear layers that LoRA may
// adapt; and the check that a model's files hold exactly these.
//
// V vocab_size, C hidden_size, I intermediate_size, Q num_heads * head_dim, K num_kv_heads * head_dim, H head_dim:
//   model.embed_tokens.weight [V, C]
//   model.layers.N.self_attn.{q,k,v}_proj.weight [Q|K|K, C] (.bias), .o_proj.weight [C, Q] (.bias)
//   model.layers.N.self_attn.{q,k}_norm.weight [H] of each head, or [Q|K] of all heads; see qk_norm_names()
//   model.layers.N.mlp.{gate,up}_proj.weight [I, C] (.bias), .down_proj.weight [C, I] (.bias); without gate where the
//     MLP is not gated
//     or of E experts of width W, see expert_names():
//   model.layers.N.mlp.gate.weight [E, C] (.bias), the router
//   model.layers.N.mlp.experts.M.{gate,up}_proj.weight [W, C], .down_proj.weight [C, W]
//   model.layers.N.mlp.experts.{gate,up}_proj.bias [E, W], .down_proj.bias [E, C], of GPT-OSS alone
//     (whose files have experts in stacks: stacked_experts.h)
//     (of Granite's mixtures block_sparse_moe, whose router is router.layer)
//     (of Gemma 4 model.layers.N.experts and .router.proj, beside .mlp; see BesideNames)
//     (routers are gate.wg in Hunyuan, router.gate in AFMoE)
//     and of the one that all tokens share, of width S:
//   model.layers.N.mlp.shared_expert.{gate,up}_proj.weight [S, C], .down_proj.weight [C, S], .shared_expert_gate.weight
//     [1, C], or without a gate .shared_experts.{gate,up,down}_proj.weight, in Hunyuan .shared_mlp.{gate,up,down}_proj
//   model.layers.N.mlp.gate.e_score_correction_bias [E] (GLM 4), .mlp.moe_statics.e_score_correction_bias [1, E]
//     (ERNIE 4.5) or model.layers.N.feed_forward.expert_bias [E] (LFM2, .mlp.expert_bias in AFMoE), by which experts
//     are chosen
//   (rows of q and k: see paired_rows.h; where they are fused, see fused_linears.h, files have one tensor for q, k and
//   v and one for gate and up) model.layers.N.self_attn.sinks [num_heads] where attention is gated, self_attn.q_proj is
//   two parts, see fused_linears.h: query_proj and gate_proj [Q, C] where it is linear, k, v heads of keys and values
//   of size D and E, W tokens of the convolution: model.layers.N.linear_attn.{q,k,v}_proj.weight [kD|kD|vE, C], fused
//   as in_proj_qkv, .in_proj_z.weight [vE, C],
//     .in_proj_{b,a}.weight [v, C], .out_proj.weight [C, vE], .{q,k,v}_conv1d.weight [kD|kD|vE, 1, W], in files one,
//     conv1d, .A_log [v], .dt_bias [v], .norm.weight [E]; in Qwen3-Next .{z,b,a}_proj, fused as in_proj_qkvz,
//     in_proj_ba
//   where it is a short convolution: model.layers.N.conv.{b,c,x}_proj.weight [C, C], fused as in_proj, .out_proj.weight
//     [C, C], .conv.weight [C, 1, W]
//   where it is a state space of v heads of size E, D numbers of a row of the state:
//   model.layers.N.mamba.{z,x,b,c,dt}_proj
//     .weight [vE|vE|D|D|v, C] (.bias), fused as in_proj, .out_proj.weight [C, vE] (.bias), .{x,b,c}_conv1d.weight
//     [vE|D|D, 1, W] (.bias), in files one, conv1d, .A_log [v], .dt_bias [v], .D [v], .norm.weight [vE]; of heads in g
//     groups gD for D
//   model.layers.N.<norm>.weight [C] (.bias), see norm_names()
//   model.layers.N.layer_scalar [1] in Gemma 4, which has no v_proj where keys are values
//     in E2B and E4B, of L blocks with W channels of inputs each, also model.embed_tokens_per_layer.weight [V', L W],
//     model.per_layer_model_projection.weight [L W, C], .per_layer_projection_norm.weight [W] and
//     model.layers.N.per_layer_input_gate.weight [W, C], .per_layer_projection.weight [C, W],
//     .post_per_layer_input_norm.weight [C]; of the last blocks, which share keys and values, self_attn has q_proj,
//     q_norm and o_proj alone, and I may be twice as wide
//   model.norm.weight [C] (.bias), see last_norm_path(); OLMo's norms have neither
//   lm_head.weight [V, C], unless tied to embed_tokens
//
// Nemotron-H has model.layers.N.mixer for self_attn, mamba and mlp, .norm for all norms of a block, model.embeddings
// and model.norm_f; files have backbone. for model.
//
// Bamba and Falcon-H1 have feed_forward for mlp and model.final_layernorm for model.norm; a block of Falcon-H1 has
// mamba beside self_attn.
//
// Granite 4 has model.layers.N.shared_mlp.{gate,up}_proj.weight, fused as input_linear, and .output_linear.weight for
// an MLP, with experts beside it or without; AFMoE self_attn.gate_proj.weight [Q, C]. GPT-NeoX has gpt_neox. for
// model., embed_in, final_layer_norm and embed_out for embed_tokens, norm and lm_head, attention.query_key_value
// (fused, its parts take turns by heads) and .dense, mlp.dense_h_to_4h and .dense_4h_to_h. Starcoder 2 has mlp.c_fc and
// c_proj for up_proj and down_proj, nanochat fc1 and fc2. LFM2 has self_attn.out_proj for o_proj, and feed_forward.w1,
// w3 and w2 for mlp.gate_proj, up_proj and down_proj. Of a model that reads pictures too `model.` is
// `model.language_model.`, as transformers names its modules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "rondo/model/adapter.h"
#include "rondo/model/config.h"
#include "rondo/model/safetensors.h"

namespace rondo::model {

/// kGain: of a norm that multiplies by its weight even where the model's others add one. kRate, kRateBias: A_log and
/// dt_bias of linear attention. kHeadScale: D of a state space. kChoiceBias: by which experts are chosen; it is fp32
/// and never trained. kFactor: of channels that a router reads, or of what an expert gives. kBlockScale: of a block,
/// never trained.
enum class ParameterKind {
  kEmbedding,
  kMatrix,
  kNorm,
  kBias,
  kSink,
  kConvolution,
  kRate,
  kRateBias,
  kHeadScale,
  kGain,
  kChoiceBias,
  kFactor,
  kBlockScale
};

struct ParameterSpec {
  std::string name;
  std::vector<std::uint64_t> shape;
  ParameterKind kind = ParameterKind::kMatrix;
  std::optional<std::uint32_t> layer;  // nullopt: outside the blocks
  std::uint64_t elements() const;
};

/// Before the names of a text part.
inline constexpr std::string_view kTextPartPrefix = "model.language_model.";

/// What all names but the head's begin with: model. or kTextPartPrefix.
std::string name_prefix(const ModelConfig& config);

/// The path of the embedding.
std::string embedding_path(const ModelConfig& config);

/// The tensor's name in a model of the text part alone, which is what is written.
std::string name_in_text_model(const std::string& name);

/// The tensor belongs to a part that is passed over: what reads pictures, Qwen3.5's layers for several tokens ahead,
/// and keys and values of blocks that share those of others.
bool is_passed_over(const ModelConfig& config, const std::string& name);

/// What a block's norms over C are called; null: there is none.
struct NormNames {
  const char* attention_input;
  const char* attention_output;
  const char* mlp_input;
  const char* mlp_output;
};
NormNames norm_names(NormPlace place);

/// What the norms of queries and keys are called, "self_attn.<name>".
struct QkNormNames {
  const char* q;
  const char* k;
};
QkNormNames qk_norm_names(const ModelConfig& config);

/// The norms of latents, "self_attn.<name>": that of queries, where they have one, then that of keys and values.
struct LatentNorm {
  const char* name;
  std::uint32_t width;
};
std::vector<LatentNorm> latent_norms(const ModelConfig& config);

/// The path of the norm before the head.
std::string last_norm_path(const ModelConfig& config);

/// The path of a block's MLP, and what its layers are called.
std::string mlp_path(const ModelConfig& config, std::uint32_t layer);
struct MlpNames {
  const char* gate;
  const char* up;
  const char* down;
};
MlpNames mlp_names(const ModelConfig& config);

/// What the mixture of a block is called, its router and its experts' three matrices, what all share, and the bias by
/// which experts are chosen; null where there is none.
struct ExpertNames {
  const char* module = "mlp.";  // what the names of the others begin with
  const char* router = "gate";
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  const char* shared = "shared_expert";
  const char* choice_bias = nullptr;
};
ExpertNames expert_names(const ModelConfig& config);

/// Of the bias by which experts are chosen. REQUIRES: there is one.
std::vector<std::uint64_t> choice_bias_shape(const ModelConfig& config);

/// Of a mixture beside an MLP (ExpertsConfig::beside_mlp), names within a block: norms over C of what the MLP gives, of
/// what experts read and of what they give; by which numbers, [C], the router's normed input is multiplied; and
/// what a token gets from an expert, [E].
struct BesideNames {
  static constexpr const char* kMlpOutput = "post_feedforward_layernorm_1";
  static constexpr const char* kExpertsInput = "pre_feedforward_layernorm_2";
  static constexpr const char* kExpertsOutput = "post_feedforward_layernorm_2";
  static constexpr const char* kRouterScale = "router.scale";
  static constexpr const char* kExpertScale = "router.per_expert_scale";
};

/// Behind a block, of ModelConfig::scales_blocks.
inline constexpr const char* kBlockScaleName = "layer_scalar";

/// Of ModelConfig::block_inputs. Outside the blocks: the table, of which each block has `width` columns; the layer that
/// makes the rest of the embedding, of which each block has as many rows; and a norm [width] behind it, the same for
/// all. Within a block: linear layers from the residual stream and back to it, and a norm [C] behind them.
struct BlockInputNames {
  static constexpr const char* kTable = "embed_tokens_per_layer";
  static constexpr const char* kProjection = "per_layer_model_projection";
  static constexpr const char* kProjectionNorm = "per_layer_projection_norm";
  static constexpr const char* kGate = "per_layer_input_gate";
  static constexpr const char* kOutput = "per_layer_projection";
  static constexpr const char* kOutputNorm = "post_per_layer_input_norm";
};

/// What transformers, and with it adapters, call a mixture and its router, whatever files call them.
struct MixtureInMemory {
  const char* module;  // as ExpertNames has it
  const char* router;
};
MixtureInMemory mixture_in_memory(const ModelConfig& config);

/// Every weight tensor, in the model's order. A tied head is not listed.
std::vector<ParameterSpec> model_parameters(const ModelConfig& config);

/// A linear layer of a block as PEFT sees it: y[out] = W[out, in] x[in].
struct LinearModule {
  std::string path;  // model.layers.0.self_attn.q_proj
  std::string name;  // q_proj
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  std::uint32_t layer = 0;
  bool bias = false;
  std::vector<LinearModule> parts = {};  // of one that is fused, in the order of their rows: fused_linears.h
  std::uint32_t turns = 1;               // of one that is fused: how often its parts take turns, each with as many rows
  bool adaptable = true;                 // PEFT can put an adapter on it
  double factor = 1.0;                   // what it gives is times this, where it has no bias
  bool exact = false;                    // a router: never in fewer bits, for small differences of what it gives decide
};

/// Its parts, or where it has none itself alone.
std::vector<LinearModule> parts_or_self(const LinearModule& linear);

/// The path of a block's attention: self_attn, or linear_attn where it is linear, conv where it is a convolution, mamba
/// where a state space stands in its place; mixer where it is all that the block has.
std::string attention_path(const ModelConfig& config, std::uint32_t layer);

/// Of one block: its state space stands in the place of attention, not beside it.
bool space_replaces_attention(const ModelConfig& config, std::uint32_t layer);

/// The path of a block's state space.
std::string space_path(const ModelConfig& config, std::uint32_t layer);

/// Parts of the convolution of linear attention or a state space and their channels, in the order of these in files.
struct ConvolutionPart {
  const char* name;
  std::uint32_t channels;
};
std::vector<ConvolutionPart> convolution_parts(const LinearAttentionConfig& linear);
std::vector<ConvolutionPart> convolution_parts(const StateSpaceConfig& space);

/// The linear layers of a block's halves, in the model's order; none of a half that it does not have. With experts an
/// MLP has those of the one that all tokens share, and the gate of what that gives. Behind all others come those of a
/// block's inputs.
std::vector<LinearModule> attention_linears(const ModelConfig& config, std::uint32_t layer);
std::vector<LinearModule> mlp_linears(const ModelConfig& config, std::uint32_t layer);

/// The linear layers of the blocks that an adapter may have, in the model's order; the head is none of them, nor are
/// experts and routers, which transformers has as tensors (expert_factors.h). In most families that have experts PEFT
/// takes the names of an MLP's layers for theirs: so other MLPs have no adapters (ExpertsConfig::adapts_shared).
std::vector<LinearModule> linear_modules(const ModelConfig& config);

/// Of all families: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, qkv_proj, gate_up_proj, in_proj_qkv,
/// in_proj_z, in_proj_b, in_proj_a, out_proj, shared_expert_gate, in_proj_qkvz, in_proj_ba, in_proj, w1, w3, w2, proj,
/// q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj, wg, input_linear, output_linear, c_fc, c_proj, fc1, fc2,
/// query_key_value, dense, dense_h_to_4h, dense_4h_to_h, per_layer_input_gate, per_layer_projection.
const std::vector<std::string>& linear_module_names();

/// Errors: InvalidArgument naming the tensors that are missing, have another shape or do not belong to the model (the
/// first few and their number). A lm_head.weight beside a tied embedding and the rotary_emb.inv_freq buffers of old
/// checkpoints are passed over. Values are not looked at.
absl::Status check_model_tensors(const ModelConfig& config, const TensorFiles& files);

/// The files hold a head beside the embedding that has other numbers: then they are two, whatever the configuration
/// says, as in transformers 5.
bool has_own_head(const ModelConfig& config, const TensorFiles& files);

/// The factors of a LoRA adapter in the model's order, A [r, in] before B [out, r] before DoRA's magnitudes [out], then
/// what modules_to_save names;
/// named as in adapter_model.safetensors.
std::vector<ParameterSpec> adapter_parameters(const ModelConfig& config, const LoraConfig& lora);

/// The same check for adapter_model.safetensors.
absl::Status check_adapter_tensors(const ModelConfig& config, const LoraConfig& lora, const TensorFiles& files);

}  // namespace rondo::model
