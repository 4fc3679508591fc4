// What readers of GGUF files have of state spaces (Mamba 2) and of blocks that are one half alone: names of tensors,
// keys, and what they take for granted.
//
//   ssm_in       [z, x, b, c and dt][hidden]
//   ssm_conv1d   [x, b and c][tokens], its bias [x, b and c]
//   ssm_a        [heads][1]   -exp(A_log)
//   ssm_d        [heads][1]
//   ssm_dt.bias  [heads]
//   ssm_norm     [groups][channels of a group]
//   ssm_out      [hidden][channels]
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "names_experts.h"
#include "rondo/model/config.h"

namespace rondo::gguf {

inline constexpr std::string_view kMoeLatent = "moe_latent_size";
inline constexpr std::string_view kHeadsOfKeys = "attention.head_count_kv";
/// Whether queries and keys turn at all.
inline constexpr std::string_view kTurns = "rope.scaling.finetuned";
/// Of Nemotron-H, whose readers have none: what a step of time is at least.
inline constexpr double kLeastStep = 0.001;

/// Of these files say by lists which blocks are what: Granite 4, Bamba, Nemotron-H.
bool lists_blocks(model::Family family);

/// What stands within a block in front of a module's last name: "mamba.", "mixer.".
std::string space_module(const model::ModelConfig& config);

/// Calls fn(theirs, ours) for modules of state spaces, of blocks that are one half alone, and of MLPs that are called
/// otherwise than others' until it returns true, which then is returned.
bool for_names_of_spaces(const model::ModelConfig& config,
                         const std::function<bool(std::string_view, std::string_view)>& fn);

/// What is no module's weight or bias: pairs of theirs, within a block, and ours.
std::vector<std::pair<std::string, std::string_view>> own_parameters_of_spaces(const model::ModelConfig& config);

/// Writers keep it in fp32, though it has two dimensions.
bool is_of_space(const std::string& name);
/// Dimensions in files of what models have as a vector.
std::vector<std::uint64_t> shape_of_space(const model::ModelConfig& config, const std::string& name,
                                          std::uint64_t elements);

Complaint complaint_of_spaces(const model::ModelConfig& config);

/// Those of the architecture's keys that are of state spaces, and of which blocks are what.
void add_space_keys(const std::string& prefix, const model::ModelConfig& config, Keys& keys);

/// Falcon-H1's files have no factors: weights are stored times what the model multiplies by, of `path` of a layer, of
/// the embedding or the head. Layers that are not there have 1.
std::map<std::string, double> stored_factors(const model::ModelConfig& config);

}  // namespace rondo::gguf
