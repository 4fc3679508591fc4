// See config_experts.h; the words are those of transformers 5.23.
#include "config_experts.h"

#include <algorithm>

#include "rondo/base/status.h"

namespace rondo::model {
namespace {

/// Either spelling of their number.
std::string count_key(const Fields& fields, const ExpertTraits& traits) {
  const std::string own(traits.count_key);
  const std::string other = own == "num_experts" ? "num_local_experts" : "num_experts";
  return !fields.has(own) && fields.has(other) ? other : own;
}

/// Blocks with one MLP, where not all have experts.
std::vector<bool> parse_dense_blocks(Fields& fields, std::uint32_t layers) {
  const std::uint32_t step = fields.integer("decoder_sparse_step", 1, kMaxLayers, 1);
  std::vector<bool> dense(layers, false);
  for (std::uint32_t layer = 0; layer < layers; ++layer) dense[layer] = (layer + 1) % step != 0;
  if (fields.has("mlp_only_layers")) {
    const Json& list = fields.at("mlp_only_layers");
    if (!list.is_array()) fields.expected("mlp_only_layers", "a list of numbers of layers");
    for (const Json& one : list.is_array() ? list : Json::array()) {
      if (!one.is_number_unsigned()) {
        fields.expected("mlp_only_layers", "a list of numbers of layers");
      } else if (one.get<std::uint64_t>() < layers) {
        dense[one.get<std::size_t>()] = true;
      }
    }
  }
  return std::find(dense.begin(), dense.end(), true) == dense.end() ? std::vector<bool>() : dense;
}

}  // namespace

bool has_experts(const ModelConfig& config, std::uint32_t block) {
  if (!config.experts) return false;
  return config.experts->dense_blocks.empty() || !config.experts->dense_blocks[block];
}

void refuse_experts(Fields& fields) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size"}) {
    if (fields.has(key) && fields.at(key) != 0) {
      fields.refuse(key, "this family is not supported as a mixture of experts; expected a dense model");
    }
  }
}

void parse_experts(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  if (!traits.experts) return;
  const ExpertTraits& own = *traits.experts;
  if (fields.flag("output_router_logits", false)) {
    fields.refuse("output_router_logits", "an auxiliary loss of the routers is not supported; expected false");
  }
  if (fields.number("router_jitter_noise", {0.0, 1.0}, 0.0) != 0.0) {
    fields.refuse("router_jitter_noise", "noise before the routers is not supported; expected 0.0");
  }
  ExpertsConfig experts;
  experts.count = fields.integer(count_key(fields, own), own.some_blocks ? 0 : 1, kMaxExperts, own.count);
  experts.choices = fields.integer("num_experts_per_tok", 1, kMaxChoices, own.choices);
  experts.width = own.width == 0 ? config.intermediate_size
                                 : fields.integer("moe_intermediate_size", 1, kMaxIntermediate, own.width);
  experts.normalised = own.normalises_always || fields.flag("norm_topk_prob", own.normalises);
  experts.biases = own.stacked;
  if (own.stacked) {
    experts.mxfp4 = fields.has("quantization_config");  // others are refused
    experts.clamped = {fields.number("swiglu_alpha", {1e-3, 1e3}, ClampedSwiglu{}.alpha),
                       fields.number("swiglu_limit", {1e-3, 1e6}, ClampedSwiglu{}.limit)};
  }
  if (own.shared_width != 0) {
    experts.shared_width = fields.integer("shared_expert_intermediate_size", 1, kMaxIntermediate, own.shared_width);
    experts.adapts_shared = own.adapts_shared;
  }
  if (own.some_blocks) experts.dense_blocks = parse_dense_blocks(fields, config.num_layers);
  if (experts.count == 0 || !fields.status().ok()) return;
  if (experts.choices > experts.count) {
    fields.refuse("num_experts_per_tok", fmt::format("expected at most as many as there are experts ({}), found {}",
                                                     experts.count, experts.choices));
  }
  config.experts = std::move(experts);
}

}  // namespace rondo::model
