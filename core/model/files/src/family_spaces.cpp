// As family.cpp, of families that have state spaces and no experts.
#include <array>

#include "family.h"

namespace rondo::model {
namespace {

constexpr std::array kSpaces = std::to_array<FamilyTraits>({
    {.family = Family::kBamba,
     .model_type = "bamba",
     .architecture = "BambaForCausalLM",
     .vocab_size = 128000,
     .num_heads = 32,
     .kv_heads = 8,
     .max_positions = 262144,
     .rms_norm_eps = 1e-5,
     .turned_share = 0.5,
     .turned_key = "",
     .bos = 1,
     .eos = 2,
     .pad = 0,
     .reads_attention_bias = true,
     .state_space = true,
     .lists_attention = true,
     .reads_mlp_bias = true,
     .last_norm_name = "final_layernorm",
     .mlp_name = "feed_forward",
     .norm_place = NormPlace::kFeedForward},
    {.family = Family::kFalconH1,
     .model_type = "falcon_h1",
     .architecture = "FalconH1ForCausalLM",
     .vocab_size = 128000,
     .num_heads = 32,
     .kv_heads = 8,
     .max_positions = 8192,
     .rms_norm_eps = 1e-5,
     .bos = 1,
     .eos = 2,
     .pad = 0,
     .reads_attention_bias = true,
     .state_space = true,
     .beside_attention = true,
     .adapts_space_output = false,
     .reads_linear_factors = true,
     .reads_mlp_bias = true,
     .last_norm_name = "final_layernorm",
     .mlp_name = "feed_forward",
     .norm_place = NormPlace::kFeedForward},
});

}  // namespace

std::span<const FamilyTraits> families_with_spaces() { return kSpaces; }

}  // namespace rondo::model
