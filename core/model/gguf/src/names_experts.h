// What readers of GGUF files have of mixtures of experts: names of tensors, keys, and what they take for granted.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "container.h"
#include "rondo/model/config.h"

namespace rondo::gguf {

/// A key of config.json and what is wrong with it.
using Complaint = std::optional<std::pair<const char*, const char*>>;

inline constexpr std::string_view kLayers = "model.layers.";
inline constexpr std::string_view kBlocks = "blk.";
inline constexpr std::string_view kRouter = "ffn_gate_inp";

/// Of these files say how wide the one is that all tokens share by how many experts it is as wide as.
bool counts_shared_experts(model::Family family);

/// Of these files say how many blocks without experts come first; those of others have experts in all.
bool counts_leading_blocks(model::Family family);

/// Of these files say whether scores are sigmoids.
bool names_scores(model::Family family);

/// Calls fn(theirs, ours) for modules of a mixture until it returns true, which then is returned.
bool for_names_of_experts(const model::ModelConfig& config,
                          const std::function<bool(std::string_view, std::string_view)>& fn);

/// Likewise for the layers of ModelConfig::shared_mlp.
bool for_names_of_shared_mlp(const model::ModelConfig& config,
                             const std::function<bool(std::string_view, std::string_view)>& fn);

/// What an architecture's readers have otherwise than the model.
Complaint complaint_of_experts(const model::ModelConfig& config);

/// Those of the architecture's keys that are of experts.
void add_expert_keys(const std::string& prefix, const model::ModelConfig& config, Keys& keys);

/// Number of the block and what follows, of a name that goes on behind `start`; nothing where it is another's.
std::optional<std::pair<std::string_view, std::string_view>> in_block(std::string_view name, std::string_view start);

}  // namespace rondo::gguf
