// What readers of GGUF files have of Gemma 4: names of tensors, keys, and what they take for granted.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "names_experts.h"
#include "rondo/model/config.h"

namespace rondo::gguf {

/// In its files: which layers slide, and the sizes of heads of those that do.
inline constexpr std::string_view kSlidingPattern = "attention.sliding_window_pattern";
inline constexpr std::string_view kSlidingKeyLength = "attention.key_length_swa";
inline constexpr std::string_view kSlidingValueLength = "attention.value_length_swa";
inline constexpr std::string_view kSlidingTurned = "rope.dimension_count_swa";

/// What its smaller models have: how many of the last layers take keys and values from others, and how wide inputs of
/// each layer are.
inline constexpr std::string_view kSharingLayers = "attention.shared_kv_layers";
inline constexpr std::string_view kWidthOfEachLayer = "embedding_length_per_layer_input";

/// What a frequency that stands still is divided by.
inline constexpr float kStill = 1e30F;

/// Calls fn(theirs, ours) for norms of a mixture beside an MLP until it returns true, which then is returned.
bool for_names_beside_mlp(const std::function<bool(std::string_view, std::string_view)>& fn);

/// The table that rows of inputs are looked up in.
inline constexpr const char* kInputTable = "per_layer_token_embd.weight";
/// Likewise for what layers make of their inputs.
bool for_names_of_inputs(const std::function<bool(std::string_view, std::string_view)>& fn);

/// What is no module's weight or bias: pairs of theirs, within a block, and ours.
std::vector<std::pair<std::string, std::string_view>> own_parameters_of_gemma4(const model::ModelConfig& config);

/// REQUIRES: config.global_heads, as below.
Complaint complaint_of_gemma4(const model::ModelConfig& config);

/// Of heads and windows, which differ by the kind of layer.
void add_gemma4_keys(const std::string& prefix, const model::ModelConfig& config, Keys& keys);

/// What each frequency of a layer that sees all is divided by.
std::vector<float> divisors_of_gemma4(const model::ModelConfig& config);

}  // namespace rondo::gguf
