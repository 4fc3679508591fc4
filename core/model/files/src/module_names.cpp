// What linear layers are called, whatever the family: from a model of each kind that has some of its own.
#include <algorithm>
#include <string>
#include <vector>

#include "rondo/model/parameters.h"

namespace rondo::model {

const std::vector<std::string>& linear_module_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    ModelConfig dense;
    dense.num_layers = 1;
    ModelConfig fused = dense;
    fused.fused_linears = true;
    fused.fused_mlp = true;
    ModelConfig linear = dense;
    linear.linear_attention.emplace().blocks = {true};
    ModelConfig mixture = dense;
    mixture.experts.emplace().shared_width = 1;
    mixture.experts->gates_shared = true;
    ModelConfig joined = linear;
    joined.linear_attention->joined_by_heads = true;
    ModelConfig convolution = dense;
    convolution.num_layers = 2;
    convolution.short_convolution = {3, {true, false}};
    ModelConfig beside = dense;
    beside.family = Family::kGemma4;
    beside.experts.emplace().beside_mlp = true;
    ModelConfig routed = dense;
    routed.family = Family::kHunYuanMoe;
    routed.experts.emplace().linear_router = true;
    routed.experts->shared_width = 1;
    ModelConfig shared = dense;
    shared.shared_mlp = true;
    ModelConfig latent = dense;
    latent.latent_attention.emplace().query_rank = 1;
    ModelConfig ungated = dense;
    ungated.family = Family::kStarcoder2;
    ungated.gated_mlp = false;
    ModelConfig numbered = ungated;
    numbered.family = Family::kNanoChat;
    ModelConfig by_heads = ungated;
    by_heads.family = Family::kGptNeoX;
    by_heads.fused_linears = true;
    ModelConfig with_inputs = dense;
    with_inputs.block_inputs.emplace().width = 1;
    for (const ModelConfig& config : {dense, fused, linear, mixture, joined, convolution, beside, latent, routed,
                                      shared, ungated, numbered, by_heads, with_inputs}) {
      for (const LinearModule& module : linear_modules(config)) {
        if (std::ranges::count(all, module.name) == 0) all.push_back(module.name);
      }
    }
    return all;
  }();
  return names;
}

}  // namespace rondo::model
