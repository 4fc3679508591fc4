// See config_block_inputs.h; the words are those of transformers 5.23.
#include "config_block_inputs.h"

#include "rondo/base/status.h"

namespace rondo::model {
namespace {

constexpr std::uint32_t kMostInputs = 1U << 16U;
constexpr std::uint32_t kMostInputRows = 1U << 24U;
constexpr std::uint32_t kUsualInputRows = 262144;

/// There is a block of its kind that has keys and values.
bool has_lender(const ModelConfig& config, std::uint32_t block) {
  for (std::uint32_t before = 0; before < config.num_layers - config.sharing_blocks; ++before) {
    if ((config.sliding_window[before] == 0) == (config.sliding_window[block] == 0)) return true;
  }
  return false;
}

}  // namespace

bool shares_keys(const ModelConfig& config, std::uint32_t block) {
  return block + config.sharing_blocks >= config.num_layers;
}

bool lends_keys(const ModelConfig& config, std::uint32_t block) {
  if (config.sharing_blocks == 0 || shares_keys(config, block)) return false;
  const bool slides = config.sliding_window[block] != 0;
  for (std::uint32_t above = block + 1; above < config.num_layers; ++above) {
    if ((config.sliding_window[above] != 0) == slides) return shares_keys(config, above);
  }
  return false;
}

std::uint32_t mlp_width(const ModelConfig& config, std::uint32_t block) {
  return config.intermediate_size * (config.widens_sharing && shares_keys(config, block) ? 2 : 1);
}

void parse_block_inputs(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  if (traits.global_head_dim == 0) return;
  config.sharing_blocks = fields.integer("num_kv_shared_layers", 0, config.num_layers - 1, 0);
  config.widens_sharing = fields.flag("use_double_wide_mlp", false) && config.sharing_blocks != 0;
  const std::uint32_t width = fields.integer("hidden_size_per_layer_input", 0, kMostInputs, traits.block_inputs);
  const std::uint32_t rows = fields.integer("vocab_size_per_layer_input", 1, kMostInputRows, kUsualInputRows);
  if (width != 0) config.block_inputs = {width, rows};
  if (!fields.status().ok()) return;
  if (width != 0 && rows < config.vocab_size) {
    fields.refuse("vocab_size_per_layer_input",
                  fmt::format("expected at least vocab_size ({}), found {}{}", config.vocab_size, rows,
                              fields.present("vocab_size_per_layer_input") ? "" : ", the default"));
  }
  for (std::uint32_t block = config.num_layers - config.sharing_blocks; block < config.num_layers; ++block) {
    if (has_lender(config, block)) continue;
    fields.refuse("num_kv_shared_layers",
                  fmt::format("layer {} is {}, and no such layer below the last {} has keys and values that it could "
                              "share",
                              block, config.sliding_window[block] == 0 ? "full_attention" : "sliding_attention",
                              config.sharing_blocks));
    return;
  }
  if (config.experts && (width != 0 || config.sharing_blocks != 0)) {
    const char* key = width != 0 ? "hidden_size_per_layer_input" : "num_kv_shared_layers";
    fields.refuse(key, fmt::format("is not supported beside experts (enable_moe_block); expected 0{}",
                                   fields.present(key) ? "" : ", and found nothing, which means 256"));
  }
}

void add_block_inputs(const ModelConfig& config, OrderedJson& out) {
  out["num_kv_shared_layers"] = config.sharing_blocks;
  out["hidden_size_per_layer_input"] = config.block_inputs ? config.block_inputs->width : 0;
  if (config.block_inputs) out["vocab_size_per_layer_input"] = config.block_inputs->vocab_size;
  if (config.widens_sharing) out["use_double_wide_mlp"] = true;
}

}  // namespace rondo::model
