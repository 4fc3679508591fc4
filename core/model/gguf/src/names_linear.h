// What readers of GGUF files have of linear attention: names of tensors, keys, and what they take for granted.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "names_experts.h"
#include "rondo/model/config.h"
#include "rondo/model/fused_linears.h"
#include "rondo/model/parameters.h"

namespace rondo::gguf {

/// Qwen3.5, Qwen3-Next.
bool has_linear_attention(model::Family family);

/// Calls fn(theirs, ours) for modules of linear attention until it returns true, which then is returned.
bool for_names_of_linear_attention(const model::ModelConfig& config,
                                   const std::function<bool(std::string_view, std::string_view)>& fn);

/// What is no module's weight or bias: pairs of theirs, behind "linear_attn.", and ours.
inline constexpr std::pair<std::string_view, std::string_view> kDecay = {"A_log", "ssm_a"};
inline constexpr std::pair<std::string_view, std::string_view> kStepBias = {"dt_bias", "ssm_dt.bias"};

/// Files have -exp(A_log). Of the model's name.
bool is_decay(const std::string& name);

/// Which blocks attend to all tokens, as files say it: each so-many-th. 0: they lie otherwise.
std::uint32_t full_attention_interval(const model::LinearAttentionConfig& linear);

Complaint complaint_of_linear_attention(const model::ModelConfig& config);

/// Those of the architecture's keys that are of linear attention.
void add_linear_attention_keys(const std::string& prefix, const model::ModelConfig& config, Keys& keys);

/// Of weights or of factors: files of Qwen3-Next have q, k and v one behind the other and z by itself, where models
/// have all four by turns; those of Granite 4 have gate and up apart, those of a latent keys and values.
std::vector<model::JoinedTensor> joined_as_in_files(std::vector<model::JoinedTensor> joined);

/// The layers that files have in the place of this one: itself, but for Qwen3-Next's and Granite 4's.
std::vector<model::LinearModule> layers_in_files(const model::LinearModule& linear);

}  // namespace rondo::gguf
