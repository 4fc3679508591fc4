// See import_gemma4.h.
#include "import_gemma4.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "names_gemma4.h"
#include "rondo/base/status.h"

namespace rondo::gguf {
namespace {

constexpr std::uint32_t kMostChannels = 1U << 24U;
constexpr std::uint32_t kMostTokens = 0x7fffffffU;
constexpr float kLeastStill = 1e20F;  // and more: the frequency moves no angle of any position

/// A number of all layers, or a list of each one's.
std::vector<std::int32_t> read_kv_heads(KeyReader& keys, const std::string& key, const model::ModelConfig& config) {
  if (!keys.is_list(key)) {
    const std::uint32_t all = keys.integer(key, 1, kMostChannels, config.num_heads);
    return std::vector<std::int32_t>(config.num_layers, static_cast<std::int32_t>(all));
  }
  std::vector<std::int32_t> heads = keys.integers(key);
  if (heads.size() == config.num_layers && std::ranges::min(heads) > 0) return heads;
  keys.refuse(key, fmt::format("expected {} numbers from 1 on, one a layer", config.num_layers));
  return {};
}

/// Which layers slide, of which the last does not.
std::vector<bool> read_sliding_layers(KeyReader& keys, const std::string& key, const model::ModelConfig& config) {
  std::vector<bool> slides = keys.flags(key);
  if (slides.size() != config.num_layers) {
    keys.refuse(key, fmt::format("expected {}, one a layer, found {}", config.num_layers, slides.size()));
    return {};
  }
  if (slides.back()) keys.refuse(key, "a last layer that slides is not supported; expected one that sees all");
  return slides;
}

void read_inputs(KeyReader& keys, const StoredFile& file, const std::string& key, model::ModelConfig& config) {
  const std::uint32_t width = keys.integer(key, 0, kMostChannels, 0);
  if (width == 0) return;
  const auto table = file.tensors.find(std::string_view(kInputTable));
  if (table == file.tensors.end() || table->second.shape.size() != 2 || table->second.shape[0] > kMostTokens) {
    keys.refuse(key, fmt::format("expected a tensor {} of rows of {} channels a layer", kInputTable, width));
    return;
  }
  config.block_inputs = {width, static_cast<std::uint32_t>(table->second.shape[0])};
}

/// Of MLPs, layer by layer: all alike, or those of layers that share keys and values are twice as wide.
void read_widths(KeyReader& keys, const std::string& key, model::ModelConfig& config) {
  const std::vector<std::int32_t> widths = keys.integers(key);
  if (widths.size() != config.num_layers || widths.front() <= 0 ||
      static_cast<std::uint32_t>(widths.front()) > kMostTokens / 2) {
    keys.refuse(key, fmt::format("expected {} numbers from 1 on, one a layer", config.num_layers));
    return;
  }
  config.intermediate_size = static_cast<std::uint32_t>(widths.front());
  config.widens_sharing = config.sharing_blocks != 0 && widths.back() != widths.front();
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const std::uint32_t wanted = mlp_width(config, layer);
    if (static_cast<std::uint32_t>(widths[layer]) == wanted) continue;
    keys.refuse(key, fmt::format("expected {} in layer {}, found {}", wanted, layer, widths[layer]));
    return;
  }
}

void expect_same(KeyReader& keys, const std::string& key, std::uint32_t wanted) {
  const std::uint32_t found = keys.integer(key, 1, kMostChannels, wanted);
  if (found != wanted) keys.refuse(key, fmt::format("expected {}, the width of a head, found {}", wanted, found));
}

}  // namespace

void read_gemma4(KeyReader& keys, const StoredFile& file, const std::string& prefix, model::ModelConfig& config) {
  const auto key = [&](std::string_view name) { return prefix + std::string(name); };
  config.sharing_blocks = keys.integer(key(kSharingLayers), 0, config.num_layers - 1, 0);
  read_inputs(keys, file, key(kWidthOfEachLayer), config);
  if (const std::string widths = key("feed_forward_length"); keys.is_list(widths)) read_widths(keys, widths, config);
  model::HeadShape& global = config.global_heads.emplace();
  global.size = keys.integer(key("attention.key_length"), 2, kMostChannels);
  expect_same(keys, key("attention.value_length"), global.size);
  expect_same(keys, key("rope.dimension_count"), global.size);
  config.head_dim = keys.integer(key(kSlidingKeyLength), 2, kMostChannels);
  expect_same(keys, key(kSlidingValueLength), config.head_dim);
  expect_same(keys, key(kSlidingTurned), config.head_dim);
  const std::string heads_key = key("attention.head_count_kv");
  const std::vector<std::int32_t> heads = read_kv_heads(keys, heads_key, config);
  const std::vector<bool> slides = read_sliding_layers(keys, key(kSlidingPattern), config);
  const std::uint32_t window = keys.integer(key("attention.sliding_window"), 1, kMostTokens);
  if (!keys.status().ok()) return;
  // Of layers that slide where there are any; of those that see all the last one is.
  const auto first = static_cast<std::size_t>(std::ranges::find(slides, true) - slides.begin());
  global.kv_heads = static_cast<std::uint32_t>(heads.back());
  config.num_kv_heads = static_cast<std::uint32_t>(heads[std::min(first, heads.size() - 1)]);
  std::uint32_t seer = config.num_layers - config.sharing_blocks - 1;  // one that sees all, with keys of its own
  while (seer > 0 && slides[seer]) --seer;
  global.keys_are_values = !file.tensors.contains(fmt::format("blk.{}.attn_v.weight", seer));
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    config.sliding_window.push_back(slides[layer] ? window : 0);
    const std::uint32_t wanted = slides[layer] ? config.num_kv_heads : global.kv_heads;
    if (static_cast<std::uint32_t>(heads[layer]) == wanted) continue;
    keys.refuse(heads_key, fmt::format("expected {} in layer {}, as in others of its kind, found {}", wanted, layer,
                                       heads[layer]));
    return;
  }
  if (!global.keys_are_values && global.kv_heads != config.num_kv_heads) {
    keys.refuse(heads_key, "numbers that differ are not supported where layers that see all have an attn_v");
  }
}

absl::Status read_still_frequencies(const StoredFile& file, model::ModelConfig& config) {
  const std::uint64_t pairs = config.global_heads->size / 2;
  const auto found = file.tensors.find(std::string_view("rope_freqs.weight"));
  if (found == file.tensors.end() || found->second.shape != std::vector<std::uint64_t>{pairs}) {
    return invalid_input("{}: tensor rope_freqs.weight: expected [{}] numbers, half the width of a head that sees all",
                         file.origin(), pairs);
  }
  std::vector<float> divisors(pairs);
  decode_stretch(*found->second.coding, found->second.data, 0, divisors);
  const auto turned = static_cast<std::size_t>(
      std::ranges::find_if(divisors, [](float divisor) { return !(divisor < kLeastStill); }) - divisors.begin());
  const float factor = turned == 0 ? 1.0F : divisors.front();
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    if (pair < turned ? divisors[pair] == factor : divisors[pair] >= kLeastStill) continue;
    return invalid_input(
        "{}: tensor {}: expected one number from 1 on for frequencies that are there and {:g} or more behind them, "
        "found {:g}",
        file.origin(), found->first, kLeastStill, divisors[pair]);
  }
  if (!(factor >= 1.0F && factor <= 1e6F)) {
    return invalid_input("{}: tensor {}: expected divisors from 1 to 1e6, found {:g}", file.origin(), found->first,
                         factor);
  }
  if (turned == pairs && factor == 1.0F) return absl::OkStatus();
  config.rope.kind = model::RopeKind::kProportional;
  config.rope.turned_share = static_cast<double>(turned) / static_cast<double>(pairs);
  // The decimal that it was written from, as KeyReader::number() has it.
  config.rope.factor = std::strtod(fmt::format("{}", factor).c_str(), nullptr);
  return absl::OkStatus();
}

}  // namespace rondo::gguf
