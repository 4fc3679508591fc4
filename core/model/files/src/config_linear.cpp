// See config_linear.h; the words are those of transformers 5.23.
#include "config_linear.h"

#include "rondo/base/status.h"

namespace rondo::model {
namespace {

constexpr std::uint32_t kMostHeads = 1U << 14U;
// What devices have: devices::kMostDeltaSize, kMostConvolution.
constexpr std::uint32_t kMostSize = 128;
constexpr std::uint32_t kMostTokens = 8;

std::vector<bool> parse_blocks(Fields& fields, std::uint32_t layers) {
  std::vector<bool> blocks(layers, false);
  if (!fields.has("layer_types")) {
    const std::uint32_t interval = fields.integer("full_attention_interval", 1, kMaxLayers, 4);
    for (std::uint32_t layer = 0; layer < layers; ++layer) blocks[layer] = (layer + 1) % interval != 0;
    return blocks;
  }
  const Json& types = fields.at("layer_types");
  if (!types.is_array() || types.size() != layers) {
    fields.expected("layer_types", fmt::format("a list of num_hidden_layers ({}) names", layers));
    return blocks;
  }
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    blocks[layer] = types[layer] == "linear_attention";
    if (blocks[layer] || types[layer] == "full_attention") continue;
    fields.refuse("layer_types", fmt::format("the layer {} is not supported; supported: full_attention, "
                                             "linear_attention",
                                             excerpt(types[layer])));
  }
  return blocks;
}

}  // namespace

bool is_linear(const ModelConfig& config, std::uint32_t block) {
  return config.linear_attention && config.linear_attention->blocks[block];
}

void parse_linear_attention(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  if (!traits.linear_attention) return;
  config.gates_attention = true;
  LinearAttentionConfig& linear = config.linear_attention.emplace();
  linear.key_heads = fields.integer("linear_num_key_heads", 1, kMostHeads, 16);
  linear.value_heads = fields.integer("linear_num_value_heads", 1, kMostHeads, 32);
  linear.key_size = fields.integer("linear_key_head_dim", 1, kMostSize, 128);
  linear.value_size = fields.integer("linear_value_head_dim", 1, kMostSize, 128);
  linear.convolution = fields.integer("linear_conv_kernel_dim", 1, kMostTokens, 4);
  linear.blocks = parse_blocks(fields, config.num_layers);
  if (fields.status().ok() && linear.value_heads % linear.key_heads != 0) {
    fields.refuse("linear_num_value_heads", fmt::format("expected a multiple of linear_num_key_heads ({}), found {}",
                                                        linear.key_heads, linear.value_heads));
  }
}

}  // namespace rondo::model
