// See import_latent.h.
#include "import_latent.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "names.h"
#include "names_latent.h"
#include "rondo/base/status.h"

namespace rondo::gguf {
namespace {

using model::Family;
using model::LatentAttentionConfig;

constexpr std::uint32_t kMostOfLatent = 1U << 24U;
constexpr std::uint32_t kVocabularyOfGlm = 154880;

void expect_size(KeyReader& keys, const std::string& key, std::uint32_t wanted, const char* what) {
  const std::uint32_t found = keys.integer(key, 1, kMostOfLatent, wanted);
  if (found != wanted) keys.refuse(key, fmt::format("expected {}, {}, found {}", wanted, what, found));
}

/// Matrices [heads][columns][rows] of a file, read as [heads][rows][columns].
struct Transposed {
  const Coding* coding;
  std::span<const std::byte> data;
  std::uint64_t rows;
  std::uint64_t columns;

  /// Of one head at a time: of each column the stretch of rows that is asked for lies together in the file.
  void read(std::uint64_t first, std::span<float> out) const {
    std::vector<float> stretch;
    while (!out.empty()) {
      const std::uint64_t row = first / columns;
      const std::uint64_t head = row / rows;
      const std::uint64_t end = std::min<std::uint64_t>(first + out.size(), (head + 1) * rows * columns);
      stretch.resize((end - 1) / columns - row + 1);
      for (std::uint64_t column = 0; column < columns; ++column) {
        decode_stretch(*coding, data, (head * columns + column) * rows + row % rows, stretch);
        for (std::size_t i = 0; i < stretch.size(); ++i) {
          const std::uint64_t place = (row + i) * columns + column;
          if (place >= first && place < end) out[place - first] = stretch[i];
        }
      }
      out = out.subspan(end - first);
      first = end;
    }
  }
};

}  // namespace

void read_latent_attention(KeyReader& keys, const std::string& prefix, model::ModelConfig& config) {
  const auto key = [&](std::string_view name) { return prefix + std::string(name); };
  LatentAttentionConfig& latent = config.latent_attention.emplace();
  config.turns_neighbours = true;
  config.num_kv_heads = config.num_heads;
  latent.query_rank = keys.integer(key(kQueryRank), 0, kMostOfLatent, 0);
  latent.rank = keys.integer(key(kLatentRank), 1, kMostOfLatent);
  latent.turned_size = keys.integer(key("rope.dimension_count"), 2, kMostOfLatent);
  const bool apart = keys.has(key(kKeyLength));
  const std::string key_length = key(apart ? kKeyLength : "attention.key_length");
  config.head_dim = keys.integer(key_length, 1, kMostOfLatent);
  latent.value_size = keys.integer(key(apart ? kValueLength : "attention.value_length"), 1, kMostOfLatent);
  if (!keys.status().ok()) return;
  if (config.head_dim <= latent.turned_size) {
    keys.refuse(key_length, fmt::format("expected more than rope.dimension_count ({}), found {}", latent.turned_size,
                                        config.head_dim));
    return;
  }
  latent.plain_size = config.head_dim - latent.turned_size;
  if (apart) {
    expect_size(keys, key("attention.key_length"), latent.rank + latent.turned_size, "the latent and what turns");
    expect_size(keys, key("attention.value_length"), latent.rank, "the latent");
  }
  expect_size(keys, key("attention.head_count_kv"), apart ? 1 : config.num_heads,
              apart ? "the latent" : "that of queries");
  if (keys.number(key("attention.temperature_scale"), 0.0, 1e6, 0.0) != 0.0) {
    keys.refuse(key("attention.temperature_scale"), "queries that grow are not supported beside a latent");
  }
}

void read_tenth_of_mscale(KeyReader& keys, const std::string& prefix, double factor, model::ModelConfig& config) {
  const std::string key = prefix + std::string(kLogMultiplier);
  const double tenth = keys.number(key, 0.0, 1e6, 0.0);
  if (tenth == 0.0) {
    if (factor > 1.0) keys.refuse(key, "is missing; expected a tenth of mscale_all_dim, as yarn needs");
    return;
  }
  if (config.rope.attention_factor) keys.refuse(key, "expected no rope.scaling.attn_factor beside it");
  // The decimal that it was made from: 0.0707 in fp32 is a tenth of 0.707.
  const double mscale = std::strtod(fmt::format("{}", static_cast<float>(tenth * 10.0)).c_str(), nullptr);
  config.rope.mscale = mscale;
  config.rope.mscale_all_dim = mscale;
}

Family family_by_scores(const model::ModelConfig& config) {
  if (!config.experts) return Family::kYoutu;
  if (!config.experts->sigmoid) return Family::kDeepseekV2;
  return config.vocab_size == kVocabularyOfGlm ? Family::kGlm4MoeLite : Family::kDeepseekV3;
}

std::uint32_t usual_scores(const model::ModelConfig& config) {
  if (!config.latent_attention) return kSigmoids;
  const bool glm = (config.num_layers == 47 || config.num_layers == 48) && config.vocab_size == kVocabularyOfGlm;
  return glm ? kSigmoids : kSoftmax;
}

absl::Status add_matrices_of_heads(const model::ModelConfig& config, const StoredTensor& tensor, model::TensorView view,
                                   std::vector<model::TensorView>& views) {
  const LatentAttentionConfig& latent = *config.latent_attention;
  const std::string name = std::exchange(view.name, model_tensor_name(config, view.name).value_or(view.name));
  const bool transposed = is_transposed(config, view.name);
  const std::uint64_t rows = transposed ? latent.plain_size : latent.value_size;
  const std::vector<std::uint64_t> expected =
      transposed ? std::vector<std::uint64_t>{config.num_heads, latent.rank, latent.plain_size}
                 : std::vector<std::uint64_t>{config.num_heads, latent.value_size, latent.rank};
  if (tensor.shape != expected) {
    return invalid_input("{}: tensor {}: expected [{}] numbers, found [{}]", view.file, name_in_quotes(name),
                         fmt::join(expected, ", "), fmt::join(tensor.shape, ", "));
  }
  view.shape = {config.num_heads * rows, latent.rank};
  if (transposed) {
    view.decode = [numbers = Transposed{tensor.coding, tensor.data, rows, latent.rank}](
                      std::uint64_t first, std::span<float> out) { numbers.read(first, out); };
  } else {
    view.decode = [coding = tensor.coding, data = tensor.data](std::uint64_t first, std::span<float> out) {
      decode_stretch(*coding, data, first, out);
    };
  }
  views.push_back(std::move(view));
  return absl::OkStatus();
}

}  // namespace rondo::gguf
