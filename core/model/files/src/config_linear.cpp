// See config_linear.h; the words are those of transformers 5.23.
#include "config_linear.h"

#include <algorithm>

#include "layer_types.h"
#include "rondo/base/status.h"

namespace rondo::model {
namespace {

constexpr std::uint32_t kMostHeads = 1U << 14U;

/// Each but the so-many-th, where nothing else is said.
std::vector<bool> parse_blocks(Fields& fields, std::uint32_t layers) {
  std::vector<bool> blocks = parse_layer_types(fields, layers, "linear_attention");
  if (blocks.size() == layers) return blocks;
  blocks.assign(layers, false);  // looked at even where the list is refused
  if (fields.has("layer_types")) return blocks;
  const std::uint32_t interval = fields.integer("full_attention_interval", 1, kMaxLayers, 4);
  for (std::uint32_t layer = 0; layer < layers; ++layer) blocks[layer] = (layer + 1) % interval != 0;
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
  linear.key_size = fields.integer("linear_key_head_dim", 1, kMaxDeltaSize, 128);
  linear.value_size = fields.integer("linear_value_head_dim", 1, kMaxDeltaSize, 128);
  linear.convolution = fields.integer("linear_conv_kernel_dim", 1, kMaxConvolution, 4);
  linear.joined_by_heads = traits.joined_by_heads;
  linear.blocks = parse_blocks(fields, config.num_layers);
  if (fields.status().ok() && linear.value_heads % linear.key_heads != 0) {
    fields.refuse("linear_num_value_heads", fmt::format("expected a multiple of linear_num_key_heads ({}), found {}",
                                                        linear.key_heads, linear.value_heads));
  }
  // transformers takes it behind the convolutions too, where ops have silu alone.
  if (std::ranges::count(linear.blocks, true) > 0 && config.activation != Activation::kSilu) {
    fields.refuse("hidden_act", fmt::format("expected silu beside linear attention, whose convolutions have no other "
                                            "activation here, found {}",
                                            activation_name(config.activation)));
  }
}

}  // namespace rondo::model
