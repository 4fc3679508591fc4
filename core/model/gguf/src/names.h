// What the keys and tensors of an architecture are called in GGUF files, and what readers of them cannot express.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "container.h"
#include "rondo/model/config.h"

namespace rondo::gguf {

/// Files say what embeddings, scores, residuals and logits are multiplied by.
bool has_factors(model::Family family);

/// Readers let all layers slide but each so-many-th, or those of Gemma 4 that a list names; 0: none of this family
/// slides in a pattern.
std::uint32_t window_pattern(model::Family family);

/// Of norms, those too that take the mean off.
std::string epsilon_key(model::Family family);

/// Whether yarn's ramp begins and ends at whole pairs, which readers do not ask the file: they always take whole ones,
/// but GPT-OSS was trained otherwise.
bool truncates_yarn(model::Family family);

/// Files say how wide experts are; others have them as wide as feed_forward_length.
bool names_width_of_experts(model::Family family);

/// Of scores, as readers have it where no key says otherwise: the largest Gemma 2 and 3 differ from the others.
double usual_attention_scale(const model::ModelConfig& config);

/// What readers have where no key says it: the activation, the theta of layers that slide in a pattern, and for SmolLM3
/// each so-many-th layer that does not rotate.
model::Activation usual_activation(model::Family family);
double usual_window_theta(const model::ModelConfig& config);
inline constexpr std::uint32_t kUnrotatedInterval = 4;

/// Of Gemma 2, which readers have where a file does not say: they cap and slide in any case. Of Gemma 4 the cap of
/// logits, unless the file says 0.
inline constexpr double kAttentionCap = 50.0;
inline constexpr double kLogitsCap = 30.0;
inline constexpr std::uint32_t kWindowOfGemma2 = 4096;

/// Readers know by the number of layers whether those of EXAONE 4 slide; where they do, the others are not turned.
inline constexpr std::uint32_t kLayersOfSlidingExaone4 = 64;

/// Errors: InvalidArgument naming the key of config.json that has no counterpart: activations that the architecture has
/// not, dynamic scaling, yarn with settings of its own, biases, layers in another pattern, and the like.
absl::Status check_expressible(const model::ModelConfig& config, const std::string& origin);

/// The architecture's keys. Readers attend to the whole context where window_pattern() is 0: where the model slides a
/// window, the context is cut to it, within which both are the same.
void add_architecture_keys(const model::ModelConfig& config, Keys& keys);

/// Of Qwen's VL: pairs of channels that turn by time, height, width and a fourth coordinate; blocks behind which what
/// pictures give is added.
inline constexpr std::string_view kPairsByCoordinate = "rope.dimension_sections";
inline constexpr std::string_view kDeepBlocks = "n_deepstack_layers";

/// Of longrope, as tensors: one number for each two channels that turn.
inline constexpr const char* kShortFactors = "rope_factors_short.weight";
inline constexpr const char* kLongFactors = "rope_factors_long.weight";

/// "blk.3.attn_q.weight" for "model.layers.3.self_attn.q_proj.weight". `name` is one of model_parameters(), but no
/// expert's, or one of joined_weights().
std::string tensor_name(const model::ModelConfig& config, const std::string& name);

/// The way back: "model.layers.3.self_attn.q_proj.weight" for "blk.3.attn_q.weight"; nothing for names that no weight
/// of a model has.
std::optional<std::string> model_tensor_name(const model::ModelConfig& config, const std::string& name);

/// A matrix of an expert, which files have in one tensor with those of the others.
struct Stacked {
  std::string name;          // "blk.3.ffn_gate_exps.weight"
  std::uint32_t expert = 0;  // its place there
  std::uint32_t part = 0;    // of an expert's matrices in the tensor, one behind the other: gate, then up
  std::uint32_t parts = 1;
};
/// Nothing for all other weights.
std::optional<Stacked> stacked(const model::ModelConfig& config, const std::string& name);

/// The way back: the names of all experts in the tensor, of each expert gate and up where one tensor has both; empty
/// for all other tensors.
std::vector<std::string> model_names_of_stack(const model::ModelConfig& config, const std::string& name);

/// A convolution's, which files have as [C, W], models as [C, 1, W].
bool is_convolution_weight(const std::string& name);

/// Writers keep it in fp32 whatever the others are in: a router, biases of experts, a convolution.
bool stays_wide(const std::string& name);

/// A matrix of one row, which files have without that dimension: the gate of the expert that all tokens share, and of
/// ERNIE 4.5 the bias by which experts are chosen.
bool is_stored_as_vector(const model::ModelConfig& config, const std::string& name);

/// Files say whether shares of experts sum to 1, and what they are multiplied by.
bool names_shares(model::Family family);

/// Whether shares sum to 1 in the others, which readers know from the architecture.
bool normalises_shares(model::Family family);

/// expert_gating_func: scores of experts are softmax of logits, or sigmoids of them.
inline constexpr std::uint32_t kSoftmax = 1;
inline constexpr std::uint32_t kSigmoids = 2;

/// What a tensor's numbers have more in a file than in a model: norms of Gemma, Nemotron and Qwen3.5 are stored with
/// the one that they add.
float stored_offset(const model::ModelConfig& config, const std::string& name);

/// What each rotary frequency is divided by with llama3's scaling, and of Gemma 4 in layers that see all; empty for all
/// others.
std::vector<float> frequency_divisors(const model::ModelConfig& config);

}  // namespace rondo::gguf
