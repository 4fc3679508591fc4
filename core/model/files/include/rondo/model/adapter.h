// LoRA adapters in PEFT's layout: adapter_config.json and adapter_model.safetensors.
//
// Names: base_model.model.<path>.lora_A.weight [r, in] and base_model.model.<path>.lora_B.weight [out, r], where <path>
// is the module's path in the model, e.g. model.layers.0.self_attn.q_proj; with DoRA also
// base_model.model.<path>.lora_magnitude_vector [out].
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// Of a model that reads pictures too: the modules that an adapter of its text part leaves alone, some of which have
/// the names of others. A regular expression, as PEFT has it.
inline constexpr const char* kPicturesExcluded = ".*(vision_tower|multi_modal_projector|visual).*";

/// How a mixture's adapter leaves its experts alone, for messages: "lora_target: " and the layers of attention.
std::string attention_alone(const ModelConfig& model);

struct LinearModule;

struct LoraConfig {
  std::uint32_t rank = 8;
  double alpha = 16.0;
  double dropout = 0.0;
  bool use_rslora = false;
  bool use_dora = false;             // weights decomposed into magnitude and direction
  std::vector<std::string> targets;  // module names: q_proj, ...
  /// Of an adapter that chooses among the modules of a name (by ends of their paths, or in a file by a regular
  /// expression too): the paths of those that have factors. Empty: all of `targets`.
  std::set<std::string> paths;
  /// PEFT's target_parameters: ends of the paths of experts' tensors and routers' (expert_factors.h). With `targets`
  /// never empty once resolved.
  std::vector<std::string> parameters;
  std::string exclude_modules;  // empty, or kPicturesExcluded
  std::string base_model;       // path or Hub id, for adapter_config.json
  /// Other ranks and alphas by the end of the module's path (q_proj, layers.3.self_attn.q_proj): the first that fits.
  std::vector<std::pair<std::string, std::uint32_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::vector<std::uint32_t> layers;         // blocks that are adapted, rising; empty: all
  std::vector<std::string> modules_to_save;  // out of embed_tokens, lm_head: trained and saved whole

  bool adapts(const LinearModule& module) const;
  /// `path`: model.layers.3.mlp.experts.gate_up_proj
  bool adapts_tensor(const std::string& path) const;
  /// `module`: its path, model.layers.3.self_attn.q_proj.
  std::uint32_t rank_of(const std::string& module) const;
  double alpha_of(const std::string& module) const;
  /// Factor of B A x: alpha / r, with rsLoRA alpha / sqrt(r).
  double scale_of(const std::string& module) const;
  bool saves(const std::string& module) const;
};

/// Sets `targets`, `paths` and `parameters`. `words`: all, which is every linear layer of the blocks but not the head,
/// or names of modules or ends of their paths (self_attn.q_proj, layers.3.self_attn.q_proj); where names mean experts
/// (names_mean_experts()), as in PEFT those of an MLP's layers stand for the tensors of all experts, gate and up
/// together for one of twice the rank and alpha, and all is these too; none: no module. `parameters`: ends of the paths
/// of expert_tensors(). REQUIRES: all else of `lora` is set. Errors: InvalidArgument naming the word and the possible
/// ones, or what adapters of experts do not know: dropout, DoRA, single blocks.
absl::Status resolve_targets(const ModelConfig& model, const std::string& words, const std::string& parameters,
                             LoraConfig& lora);

/// "q_proj=8,layers.3.mlp.up_proj=16": what rank_pattern and alpha_pattern mean as text, checked against the model.
/// `key` begins messages. Errors: InvalidArgument naming the entry; one that fits no module of the model.
absl::StatusOr<std::vector<std::pair<std::string, double>>> parse_pattern(const ModelConfig& model,
                                                                          const std::string& key,
                                                                          const std::string& text);

/// Reads adapter_config.json, and where target_modules or exclude_modules choose otherwise than by names of modules the
/// names in adapter_model.safetensors. Errors: InvalidArgument naming file and key; adapters of another kind, and
/// features that are not supported (trained biases, ranks by regular expressions), are refused by name.
absl::StatusOr<LoraConfig> load_adapter_config(const std::filesystem::path& folder);

/// The text of an adapter_config.json that PEFT loads.
std::string format_adapter_config(const LoraConfig& config);

/// Name in adapter_model.safetensors of a weight that modules_to_save names. `name`: lm_head.weight, ...
std::string saved_tensor_name(const std::string& name);

/// Name of a factor's tensor in adapter_model.safetensors. `module`: e.g. model.layers.0.self_attn.q_proj; `factor`:
/// 'A', 'B'.
std::string adapter_tensor_name(const std::string& module, char factor);
/// Of its magnitudes.
std::string magnitude_tensor_name(const std::string& module);

}  // namespace rondo::model
