// The files of a random model: weights, configuration, tokenizer.
#include "rondo/model/init.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <thread>

#include "family.h"
#include "init_tokenizer.h"
#include "json_reader.h"
#include "rondo/base/file.h"
#include "rondo/base/random.h"
#include "rondo/base/status.h"
#include "rondo/base/thread.h"
#include "rondo/model/new_folder.h"
#include "rondo/model/parameters.h"
#include "rondo/model/safetensors.h"
#include "rondo/model/stored_weights.h"

namespace rondo::model {
namespace {

/// Windows of a family whose layers slide by a pattern are short here: a small model's sequences are, too.
constexpr std::uint32_t kInitWindow = 512;

/// Which of the layers are not each so-many-th, or with fewer layers the last.
std::vector<bool> all_but_each(std::uint32_t interval, std::uint32_t layers) {
  interval = std::min(interval, layers);
  std::vector<bool> blocks;
  for (std::uint32_t layer = 1; layer <= layers; ++layer) blocks.push_back(layer % interval != 0);
  return blocks;
}

void add_experts(const InitOptions& options, const FamilyTraits& traits, ModelConfig& config) {
  const ExpertTraits& own = *traits.experts;
  ExpertsConfig& experts = config.experts.emplace();
  experts.count = options.num_experts;
  experts.choices = options.num_experts_per_tok;
  experts.normalised = !own.never_normalises && traits.family != Family::kOlmoe &&
                       traits.family != Family::kQwen2Moe;  // as in published ones
  experts.choice_bias = !own.choice_bias.empty();
  experts.width = config.intermediate_size;
  experts.beside_mlp = !own.switch_key.empty();
  experts.linear_router = own.linear_router;
  if (own.width != 0 || experts.beside_mlp) {
    experts.width = options.moe_intermediate_size != 0 ? options.moe_intermediate_size : config.hidden_size;
  }
  const bool shares =
      own.shared_width != 0 || !own.shared_count_key.empty() || own.shares_mlp || !own.shared_width_key.empty();
  config.shared_mlp = !own.shared_mlp_key.empty();
  if (shares || config.shared_mlp) experts.shared_width = experts.width;  // likewise
  if (own.leading != 0 && config.num_layers > 1) {
    experts.dense_blocks.assign(config.num_layers, false);
    experts.dense_blocks[0] = true;
  }
  if (own.everywhere) config.intermediate_size = 0;
  if (own.may_be_none) config.experts.reset();  // likewise
}

/// Twice as wide as the model.
StateSpaceConfig wide_space(const ModelConfig& config) {
  constexpr std::uint32_t kMostHead = 64;
  StateSpaceConfig space;
  const std::uint32_t width = 2 * config.hidden_size;
  space.head_size = std::min(kMostHead, width);
  while (width % space.head_size != 0) --space.head_size;
  space.heads = width / space.head_size;
  space.state_size = std::min(config.head_dim, kMaxStateSize);
  space.convolution = 4;
  space.convolution_bias = true;
  return space;
}

/// A state space, experts, attention, an MLP, and again from the first on.
void alternate_halves(ModelConfig& config) {
  StateSpaceConfig space;
  space.heads = config.num_heads;
  space.head_size = std::min(2 * config.head_dim, kMaxDeltaSize);
  space.state_size = std::min(config.head_dim, kMaxDeltaSize);
  space.convolution = 4;
  space.convolution_bias = true;
  space.groups = config.num_kv_heads;
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    space.blocks.push_back(layer % 4 == 0);
    config.lone_mlps.push_back(layer % 2 == 1);
    if (config.experts) config.experts->dense_blocks.push_back(layer % 4 != 1);
  }
  config.state_space = std::move(space);
}

ModelConfig plain_config(const InitOptions& options, const FamilyTraits& traits) {
  ModelConfig config;
  config.family = traits.family;
  config.model_type = options.arch;
  config.hidden_size = options.hidden_size;
  config.intermediate_size = options.intermediate_size != 0 ? options.intermediate_size : 3 * options.hidden_size;
  config.num_layers = options.num_hidden_layers;
  config.num_heads = options.num_attention_heads;
  const std::uint32_t grouped = config.num_heads % 2 == 0 ? config.num_heads / 2 : config.num_heads;
  config.num_kv_heads = options.num_key_value_heads != 0 ? options.num_key_value_heads : grouped;
  config.head_dim = options.head_dim;
  if (config.head_dim == 0 && config.num_heads != 0) config.head_dim = config.hidden_size / config.num_heads;
  config.vocab_size = options.vocab_size;
  config.max_positions = options.max_position_embeddings;
  config.norm_place = traits.norm_place;
  config.parallel = traits.parallel;
  config.rope.theta = options.rope_theta;
  if (traits.window_theta) {
    const bool own = !traits.window_theta_key.empty() || traits.sets_ropes_by_kind;
    config.window_rope.emplace().theta = own ? *traits.window_theta : options.rope_theta;
  }
  if (traits.global_head_dim != 0) {  // as in published ones
    config.rope.kind = RopeKind::kProportional;
    config.rope.turned_share = 0.25;
    const std::uint32_t fewer = config.num_kv_heads % 2 == 0 ? config.num_kv_heads / 2 : config.num_kv_heads;
    config.global_heads = HeadShape{fewer, 2 * config.head_dim, true};
  }
  if (traits.grows_queries) {  // as published ones
    constexpr std::uint32_t kStretch = 16;
    config.rope.kind = RopeKind::kYarn;
    config.rope.factor = kStretch;
    config.rope.mscale = config.rope.mscale_all_dim = 1.0;
    config.rope.original_max_positions = std::max(config.max_positions / kStretch, 1U);
    config.rope.query_growth = QueryGrowth{.rate = 0.1, .from = config.rope.original_max_positions};
  }
  const bool none_slides =
      traits.windows == Windows::kTurned || traits.windows == Windows::kBehind || traits.windows == Windows::kListed;
  if (none_slides) config.sliding_window.assign(config.num_layers, 0);
  if (traits.windows == Windows::kPattern || traits.windows == Windows::kUnturned) {
    const std::uint32_t first = traits.sees_all_first ? 0 : 1;
    for (std::uint32_t layer = first; layer < config.num_layers + first; ++layer) {
      config.sliding_window.push_back(layer % traits.window_pattern == 0 ? 0 : kInitWindow);
    }
  }
  if (traits.experts && (traits.experts->switch_key.empty() || options.moe_intermediate_size != 0)) {
    add_experts(options, traits, config);
  }
  if (traits.lone_halves) alternate_halves(config);
  if (traits.lists_attention || traits.beside_attention) {
    StateSpaceConfig& space = config.state_space.emplace(wide_space(config));
    space.beside_attention = traits.beside_attention;
    space.normed = !traits.beside_attention;  // as in published ones
    space.blocks = std::vector<bool>(config.num_layers, true);
    if (traits.lists_attention) space.blocks = all_but_each(4, config.num_layers);
  }
  if (traits.turned_share) config.rope.turned_share = *traits.turned_share;
  if (traits.linear_attention) {
    const std::uint32_t size = std::min(config.head_dim, kMaxDeltaSize);
    LinearAttentionConfig& linear = config.linear_attention.emplace();
    linear = {config.num_kv_heads, config.num_heads, size, size, 4, {}};
    linear.blocks = all_but_each(4, config.num_layers);
  }
  if (traits.latent_attention) {
    config.num_kv_heads = options.num_key_value_heads != 0 ? options.num_key_value_heads : config.num_heads;
    const bool as_wide = traits.latent_attention->value_size > traits.latent_attention->plain_size;
    LatentAttentionConfig& latent = config.latent_attention.emplace();
    latent.query_rank = std::max(config.hidden_size / 2, 1U);
    latent.rank = std::max(config.hidden_size / 2, 1U);
    latent.turned_size = std::max(config.head_dim / 4 * 2, 2U);
    latent.plain_size = config.head_dim - std::min(config.head_dim, latent.turned_size);
    latent.value_size = as_wide ? config.head_dim : latent.plain_size;
    config.turns_neighbours = true;
  }
  if (traits.short_convolution) {
    config.short_convolution = {3, all_but_each(3, config.num_layers)};
  }
  if (traits.is_gemma) config.activation = Activation::kGeluTanh;
  config.attention_cap = traits.attention_cap;
  config.logits_cap = traits.logits_cap;
  if (!traits.gated_mlp) config.activation = Activation::kReluSquared;
  if (!traits.activation.empty()) config.activation = Activation::kGeluTanh;
  config.attention_bias = traits.attention_bias || traits.use_bias || (!traits.qkv_bias_key.empty() && traits.qkv_bias);
  config.mlp_bias = traits.mlp_bias;
  config.tie_word_embeddings = options.tie_word_embeddings;
  config.initializer_range = options.initializer_range;
  config.weight_type = options.weight_type;
  if (traits.needs_bos) config.bos_token_id = kEndOfTextId;
  config.eos_token_ids = {kTurnEndId};
  config.pad_token_id = kPadId;
  return config;
}

/// The options as a configuration that has passed the same checks as a file.
absl::StatusOr<ModelConfig> checked_config(const InitOptions& options) {
  const FamilyTraits* traits = find_family(options.arch);
  if (traits == nullptr) {
    return invalid_input("init: arch: \"{}\" is not supported; supported: {}", options.arch, family_names());
  }
  if (options.vocab_size < kInitTokenizerSize) {
    return invalid_input("init: vocab_size: expected at least {} (the tokenizer's size), found {}", kInitTokenizerSize,
                         options.vocab_size);
  }
  // JSON has no such numbers: they would be written as null and come back as the defaults.
  if (!std::isfinite(options.rope_theta)) return invalid_input("init: rope_theta: expected a number, found none");
  if (!std::isfinite(options.initializer_range)) {
    return invalid_input("init: initializer_range: expected a number, found none");
  }
  const bool derived = options.head_dim == 0 && options.num_attention_heads != 0;
  if (derived && options.hidden_size % options.num_attention_heads != 0) {
    return invalid_input(
        "init: hidden_size: expected a multiple of num_attention_heads ({}), found {}; or set head_dim",
        options.num_attention_heads, options.hidden_size);
  }
  return parse_config(format_config(plain_config(options, *traits)), "init");
}

/// Calls fn(first, count) for parts of 0 ... elements - 1, a thread a part. A number depends on its place alone, so it
/// does not matter how many there are.
void for_parts(std::uint64_t elements, const std::function<void(std::uint64_t, std::uint64_t)>& fn) {
  constexpr std::uint64_t kLeast = 1U << 18U;  // what is worth a thread
  const std::uint64_t threads = std::max(std::thread::hardware_concurrency(), 1U);
  const std::uint64_t part = std::max((elements + threads - 1) / threads, kLeast);
  std::vector<std::thread> others;
  for (std::uint64_t first = part; first < elements; first += part) {
    const auto work = [&fn, first, count = std::min(part, elements - first)] { fn(first, count); };
    absl::StatusOr<std::thread> other = start_thread("weights", work);
    if (other.ok()) {
      others.push_back(*std::move(other));
    } else {
      work();
    }
  }
  fn(0, std::min(part, elements));
  for (std::thread& other : others) other.join();
}

/// What all numbers of such a parameter are; none where they are drawn.
std::optional<float> same_number_of(ParameterKind kind, const ModelConfig& config) {
  switch (kind) {
    case ParameterKind::kNorm:
      return config.norms_add_one ? 0.0F : 1.0F;
    case ParameterKind::kGain:
    case ParameterKind::kRateBias:
    case ParameterKind::kHeadScale:
    case ParameterKind::kFactor:
    case ParameterKind::kBlockScale:
      return 1.0F;
    case ParameterKind::kBias:
    case ParameterKind::kChoiceBias:
      return 0.0F;
    default:
      return std::nullopt;
  }
}

/// Logarithms of numbers from 0.01 to 16, as transformers draws them, from standard normal ones.
void make_rates(std::span<float> numbers) {
  for (float& number : numbers) {
    const double share = 0.5 * std::erfc(-static_cast<double>(number) / std::numbers::sqrt2);
    number = static_cast<float>(std::log(0.01 + 15.99 * share));
  }
}

absl::Status write_weights(const InitOptions& options, const ModelConfig& config, const std::filesystem::path& folder) {
  const std::vector<ParameterSpec> parameters = model_parameters(config);
  std::vector<TensorToWrite> tensors;
  tensors.reserve(parameters.size());
  const auto type_of = [&](const ParameterSpec& spec) {
    return spec.kind == ParameterKind::kChoiceBias ? WeightType::kFloat32 : config.weight_type;
  };
  for (const ParameterSpec& spec : parameters) tensors.push_back({spec.name, type_of(spec), spec.shape});
  constexpr std::uint64_t kPiece = 1U << 23U;  // elements
  std::vector<float> values;
  std::vector<std::byte> stored;
  const auto produce = [&](std::size_t index, const TensorSink& sink) {
    const ParameterSpec& spec = parameters[index];
    const WeightType type = type_of(spec);
    const std::uint64_t element = weight_type_size(type);
    const double deviation = spec.kind == ParameterKind::kRate ? 1.0 : config.initializer_range;
    const std::optional<float> same = same_number_of(spec.kind, config);
    for (std::uint64_t begin = 0; begin < spec.elements(); begin += kPiece) {
      values.assign(std::min(kPiece, spec.elements() - begin), same.value_or(0.0F));
      stored.resize(values.size() * element);
      for_parts(values.size(), [&](std::uint64_t first, std::uint64_t count) {
        const std::span<float> part = std::span(values).subspan(first, count);
        if (!same) fill_normal(options.seed, spec.name, begin + first, deviation, part);
        if (spec.kind == ParameterKind::kRate) make_rates(part);
        store_float32(part, type, std::span(stored).subspan(first * element, count * element));
      });
      RONDO_RETURN_IF_ERROR(sink(stored));
    }
    return absl::OkStatus();
  };
  const WritePlan plan = stored_weights(config, {std::move(tensors), produce});
  return write_sharded_safetensors(folder, plan.tensors, plan.produce);
}

std::string generation_config_json() {
  OrderedJson out;
  out["eos_token_id"] = OrderedJson::array({kTurnEndId, kEndOfTextId});
  out["pad_token_id"] = kPadId;
  return to_text(out);
}

absl::Status write_all(const InitOptions& options, const ModelConfig& config, const std::filesystem::path& folder) {
  RONDO_RETURN_IF_ERROR(write_weights(options, config, folder));
  RONDO_RETURN_IF_ERROR(write_file_atomically(folder / "config.json", format_config(config)));
  RONDO_RETURN_IF_ERROR(write_file_atomically(folder / "generation_config.json", generation_config_json()));
  RONDO_RETURN_IF_ERROR(write_file_atomically(folder / "tokenizer.json", init_tokenizer_json()));
  RONDO_RETURN_IF_ERROR(
      write_file_atomically(folder / "tokenizer_config.json", init_tokenizer_config_json(config.max_positions)));
  return write_file_atomically(folder / "chat_template.jinja", init_chat_template());
}

}  // namespace

void fill_normal(std::uint64_t seed, std::string_view name, std::uint64_t first, double deviation,
                 std::span<float> out) {
  const std::uint64_t key = mix64(seed) ^ fnv1a64(name);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t word = draw64(key, first + i);
    const double u = (static_cast<double>(word >> 32U) + 1.0) * 0x1p-32;
    const double v = static_cast<double>(word & 0xffffffffU) * 0x1p-32;
    out[i] = static_cast<float>(deviation * std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
  }
}

absl::Status init_model(const InitOptions& options, const std::filesystem::path& output_dir) {
  RONDO_ASSIGN_OR_RETURN(const ModelConfig config, checked_config(options));
  RONDO_ASSIGN_OR_RETURN(NewFolder folder, NewFolder::create(output_dir, "init"));
  RONDO_RETURN_IF_ERROR(write_all(options, config, folder.path()));
  return folder.commit();
}

}  // namespace rondo::model
