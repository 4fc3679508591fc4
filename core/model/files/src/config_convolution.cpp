// See config_convolution.h; the words are those of transformers 5.23.
#include "config_convolution.h"

#include <algorithm>

#include "layer_types.h"

namespace rondo::model {
namespace {

/// transformers has attention where nothing else is said.
std::vector<bool> parse_convolution_blocks(Fields& fields, std::uint32_t layers) {
  std::vector<bool> blocks = parse_layer_types(fields, layers, "conv");
  if (blocks.size() == layers) return blocks;
  blocks.assign(layers, false);
  if (fields.has("layer_types") || !fields.has("full_attn_idxs")) return blocks;
  const Json& attending = fields.at("full_attn_idxs");
  blocks.assign(layers, true);
  const bool numbers =
      attending.is_array() && std::ranges::all_of(attending, [](const Json& one) { return one.is_number_integer(); });
  if (!numbers) {
    fields.expected("full_attn_idxs", "a list of numbers of layers");
    return blocks;
  }
  for (const Json& one : attending) {
    if (one.is_number_unsigned() && one.get<std::uint64_t>() < layers) blocks[one.get<std::size_t>()] = false;
  }
  return blocks;
}

}  // namespace

bool is_convolution(const ModelConfig& config, std::uint32_t block) {
  return config.short_convolution && config.short_convolution->blocks[block];
}

bool keeps_states(const ModelConfig& config) {
  return config.linear_attention.has_value() || config.short_convolution.has_value() || config.state_space.has_value();
}

void parse_short_convolution(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  if (!traits.short_convolution) return;
  ShortConvolutionConfig& convolution = config.short_convolution.emplace();
  convolution.width = fields.integer("conv_L_cache", 2, kMaxConvolution, 3);
  convolution.blocks = parse_convolution_blocks(fields, config.num_layers);
  if (fields.flag("conv_bias", false)) {
    fields.refuse("conv_bias", "biases of convolutions are not supported; expected false");
  }
}

}  // namespace rondo::model
