// LoRA adapters in PEFT's layout: adapter_config.json and adapter_model.safetensors.
//
// Names: base_model.model.<path>.lora_A.weight [r, in] and base_model.model.<path>.lora_B.weight [out, r], where <path>
// is the module's path in the model, e.g. model.layers.0.self_attn.q_proj.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/model/config.h"

namespace rondo::model {

struct LoraConfig {
  std::uint32_t rank = 8;
  double alpha = 16.0;
  double dropout = 0.0;
  bool use_rslora = false;
  std::vector<std::string> targets;  // module names: q_proj, ... ; never empty once resolved
  std::string base_model;            // path or Hub id, for adapter_config.json
  /// Factor of B A x: alpha / r, with rsLoRA alpha / sqrt(r).
  double scale() const;
};

/// `all` is every linear layer of the blocks but not the head; other words must be module names of the model.
/// Errors: InvalidArgument naming the word and the possible ones.
absl::StatusOr<std::vector<std::string>> resolve_targets(const ModelConfig& model, const std::string& words);

/// Reads adapter_config.json. Errors: InvalidArgument naming file and key; adapters of another kind, and features that
/// are not supported (DoRA, per-module ranks, biases), are refused by name.
absl::StatusOr<LoraConfig> load_adapter_config(const std::filesystem::path& folder);

/// The text of an adapter_config.json that PEFT loads.
std::string format_adapter_config(const LoraConfig& config);

/// Name of a factor's tensor in adapter_model.safetensors. `module`: e.g. model.layers.0.self_attn.q_proj; `factor`:
/// 'A', 'B'.
std::string adapter_tensor_name(const std::string& module, char factor);

}  // namespace rondo::model
