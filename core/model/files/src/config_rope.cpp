// transformers 4: "rope_theta": x, "rope_scaling": null | {"type" | "rope_type": kind, "factor": f, ...}
// transformers 5: "rope_parameters": {"rope_type": kind, "rope_theta": x, "factor": f, ...}
//
// Where both stand in one file, transformers 5.23 takes a rope_scaling that is not empty, and a rope_theta inside the
// object before the one outside. Types that it only warns about are errors here.
#include "config_rope.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rondo::model {
namespace {

constexpr Limits kThetaLimits = {1.0, 1e18};
constexpr Limits kFactorLimits = {1.0, 1e6};
constexpr Limits kLongRopeLimits = {1e-6, 1e6};

struct KindName {
  std::string_view name;
  RopeKind kind;
};
constexpr std::array<KindName, 6> kKinds = {{{"default", RopeKind::kDefault},
                                             {"linear", RopeKind::kLinear},
                                             {"dynamic", RopeKind::kDynamic},
                                             {"yarn", RopeKind::kYarn},
                                             {"llama3", RopeKind::kLlama3},
                                             {"longrope", RopeKind::kLongRope}}};

bool is_filled(const Json& value) { return !value.is_null() && !(value.is_object() && value.empty()); }

RopeKind parse_kind(Fields& rope, const FamilyTraits& traits) {
  const char* key = rope.has("rope_type") || !rope.has("type") ? "rope_type" : "type";
  const std::string name = rope.word(key, "default");
  if (traits.long_rope_from != 0 && name != "default") {
    if (name == "longrope" || name == "su" || name == "yarn") return RopeKind::kLongRope;
    rope.refuse(key, fmt::format("the rotary embedding {} is none of {}; expected default or longrope",
                                 quoted_name(name), traits.model_type));
    return RopeKind::kDefault;
  }
  if (traits.sets_ropes_by_kind && traits.global_head_dim != 0) {
    if (name == "proportional") return RopeKind::kProportional;
    if (name != "default") {
      rope.refuse(key, fmt::format("the rotary embedding {} is not supported for {}; expected default or proportional",
                                   quoted_name(name), traits.model_type));
    }
    return RopeKind::kDefault;
  }
  const auto* found = std::find_if(kKinds.begin(), kKinds.end(), [&](const KindName& k) { return k.name == name; });
  if (found != kKinds.end()) return found->kind;
  rope.refuse(key, fmt::format("the rotary embedding {} is not supported; supported: default, linear, dynamic, yarn, "
                               "llama3, longrope",
                               quoted_name(name)));
  return RopeKind::kDefault;
}

/// The top-level key wins, as in transformers; without either the model was not stretched.
std::uint32_t original_positions(Fields& fields, Fields& rope, const ModelConfig& config) {
  const char* key = "original_max_position_embeddings";
  Fields& holder = fields.has(key) ? fields : rope;
  return holder.integer(key, 1, kMaxPositions, config.max_positions);
}

void parse_yarn(Fields& rope, const ModelConfig& config, RopeConfig& out) {
  if (!rope.present("factor")) rope.expected("factor", "a number, at least 1");
  // transformers takes a null as the ratio of the two lengths.
  out.factor = rope.number("factor", kFactorLimits, std::max(1.0, stretch_of(config, out)));
  out.attention_factor = rope.optional_number("attention_factor", {0.0, 1e6});
  const auto number_or = [&](const char* key, double fallback) {
    const double value = rope.number(key, {0.0, 1e6}, fallback);
    return value == 0.0 ? fallback : value;  // as Python's `or`
  };
  out.beta_fast = number_or("beta_fast", out.beta_fast);
  out.beta_slow = number_or("beta_slow", out.beta_slow);
  if (out.beta_fast < out.beta_slow) {
    rope.refuse("beta_fast",
                fmt::format("expected at least beta_slow ({:g}), found {:g}", out.beta_slow, out.beta_fast));
  }
  const auto scale = [&](const char* key) {
    const auto value = rope.optional_number(key, {0.0, 1e6});
    return value == 0.0 ? std::nullopt : value;  // zero counts as absent
  };
  out.mscale = scale("mscale");
  out.mscale_all_dim = scale("mscale_all_dim");
  out.truncate = rope.flag("truncate", true);
  if (out.theta <= 1.0) rope.expected("rope_theta", "a number greater than 1 (yarn divides by its logarithm)");
}

void parse_llama3(Fields& rope, RopeConfig& out) {
  out.factor = rope.number("factor", kFactorLimits);
  // A zero would be divided by.
  out.low_frequency_factor = rope.number("low_freq_factor", {1e-6, 1e6});
  out.high_frequency_factor = rope.number("high_freq_factor", {1e-6, 1e6});
  if (out.high_frequency_factor <= out.low_frequency_factor) {
    rope.refuse("high_freq_factor", fmt::format("expected more than low_freq_factor ({:g}), found {:g}",
                                                out.low_frequency_factor, out.high_frequency_factor));
  }
}

std::vector<double> parse_factors(Fields& rope, const char* key, std::size_t count) {
  const Json& list = rope.at(key);
  const bool right =
      list.is_array() && list.size() == count && std::ranges::all_of(list, [](const Json& one) {
        return one.is_number() && one.get<double>() >= kLongRopeLimits.low && one.get<double>() <= kLongRopeLimits.high;
      });
  if (right) return list.get<std::vector<double>>();
  rope.expected(key, fmt::format("a list of {} numbers from {:g} to {:g}, one for each two channels that turn", count,
                                 kLongRopeLimits.low, kLongRopeLimits.high));
  return {};
}

void parse_long_rope(Fields& rope, const ModelConfig& config, RopeConfig& out) {
  out.factor = rope.number("factor", kLongRopeLimits, stretch_of(config, out));
  out.attention_factor = rope.optional_number("attention_factor", {0.0, 1e6});
  const std::size_t count = turned_channels(config, out) / 2;
  out.short_factors = parse_factors(rope, "short_factor", count);
  out.long_factors = parse_factors(rope, "long_factor", count);
}

void parse_kind_settings(Fields& fields, Fields& rope, const FamilyTraits& traits, const ModelConfig& config,
                         RopeConfig& out) {
  switch (out.kind) {
    case RopeKind::kDefault:
    case RopeKind::kProportional:
      return;
    case RopeKind::kLinear:
      out.factor = rope.number("factor", kFactorLimits);
      return;
    case RopeKind::kDynamic:
      if (traits.reads_alpha) out.alpha = rope.optional_number("alpha", {0.0, 1e12});
      if (out.alpha == 0.0) out.alpha.reset();  // as Python has it
      out.factor = rope.number("factor", kFactorLimits, out.alpha ? std::optional(1.0) : std::nullopt);
      // Its exponent is head_dim / (head_dim - 2).
      if (config.head_dim <= 2) rope.refuse("rope_type", "dynamic needs a head_dim greater than 2");
      return;
    case RopeKind::kYarn:
      out.original_max_positions = original_positions(fields, rope, config);
      parse_yarn(rope, config, out);
      return;
    case RopeKind::kLlama3:
      out.original_max_positions = original_positions(fields, rope, config);
      parse_llama3(rope, out);
      return;
    case RopeKind::kLongRope:
      out.original_max_positions = traits.long_rope_from == 0 ? original_positions(fields, rope, config)
                                                              : fields.integer("original_max_position_embeddings", 1,
                                                                               kMaxPositions, traits.long_rope_from);
      parse_long_rope(rope, config, out);
      return;
  }
}

const Json& no_settings() {
  static const Json kEmpty = Json::object();
  return kEmpty;
}

/// From the length that the scaling was made for; a scaling that has none must say it all the same.
void parse_query_growth(Fields& rope, RopeConfig& out) {
  const std::uint32_t known = out.original_max_positions;
  out.query_growth =
      QueryGrowth{.rate = rope.number("llama_4_scaling_beta", {0.0, 1e6}),
                  .from = known != 0 ? known : rope.integer("original_max_position_embeddings", 1, kMaxPositions)};
}

/// What the settings say wins over what stands outside.
void parse_turned_share(Fields& fields, Fields& rope, const FamilyTraits& traits, const ModelConfig& config,
                        RopeConfig& out) {
  const auto key_in = [&](const Fields& holder) {
    return std::string(&holder == &fields ? traits.turned_key : "partial_rotary_factor");
  };
  out.turned_share = traits.turned_share.value_or(1.0);
  if (traits.reads_rotary_dim && fields.has("rotary_dim")) {
    out.turned_share = fields.integer("rotary_dim", 1, config.head_dim) / static_cast<double>(config.head_dim);
  }
  for (Fields* holder : {&fields, &rope}) {
    const std::string key = key_in(*holder);
    if (key.empty() || !holder->has(key)) continue;
    out.turned_share = holder->number(key, {0.0, 1.0});
    if (!holder->status().ok()) return;
    if (traits.turned_share || out.turned_share == 1.0) continue;
    holder->refuse(key,
                   fmt::format("heads of {} that turn in part are not supported; expected 1.0", traits.model_type));
    return;
  }
  // Also of the share that holds where the file says nothing.
  const std::uint32_t turned = turned_channels(config, out);
  if (turned != 0 && turned % 2 == 0) return;
  Fields& holder = rope.has(key_in(rope)) || traits.turned_key.empty() ? rope : fields;
  holder.refuse(key_in(holder),
                fmt::format("{:g} of head_dim ({}): expected an even number of channels to turn, found {}",
                            out.turned_share, config.head_dim, turned));
}

/// One set. `theta`: what holds where the set has none.
RopeConfig parse_set(Fields& fields, const Json& settings, const std::string& path, double theta,
                     const FamilyTraits& traits, const ModelConfig& config) {
  RopeConfig out;
  Fields rope(settings, fields.origin(), path + ".");
  out.kind = parse_kind(rope, traits);
  if (out.kind == RopeKind::kProportional) {
    out.turned_share = rope.number("partial_rotary_factor", {0.0, 1.0}, 1.0);
    out.factor = rope.number("factor", kFactorLimits, 1.0);
  } else {
    parse_turned_share(fields, rope, traits, config, out);
  }
  out.theta = rope.number("rope_theta", kThetaLimits, theta);
  parse_kind_settings(fields, rope, traits, config, out);
  if (traits.grows_queries) parse_query_growth(rope, out);
  fields.adopt(rope.status());
  return out;
}

/// The object that `key` has, an empty one where there is none.
const Json& settings_at(Fields& fields, const char* key) {
  if (!fields.has(key)) return no_settings();
  if (fields.at(key).is_object()) return fields.at(key);
  fields.expected(key, "an object or null");
  return no_settings();
}

/// transformers looks for `truncate` beside the kinds of layer, not among the settings of one.
void forget_truncation(ModelConfig& config) { config.rope.truncate = config.window_rope->truncate = true; }

/// As parse_by_kind(), of a family that was never written by transformers 4: what stands outside of rope_parameters has
/// no effect, and what stands there is all.
void parse_sets(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  if (fields.has("rope_scaling")) {
    fields.refuse("rope_scaling", fmt::format("is none of {}; expected rope_parameters", traits.model_type));
  }
  const Json given = fields.has("rope_parameters") ? fields.at("rope_parameters") : Json::parse(traits.default_rope);
  const auto set = [&](const char* name) {
    const Json settings = given.is_object() ? given.value(name, Json()) : Json();
    if (!settings.is_object()) {
      fields.refuse("rope_parameters", fmt::format("expected settings for full_attention and sliding_attention, found "
                                                   "none for {}",
                                                   name));
    } else if (!settings.contains("rope_theta")) {
      fields.refuse(fmt::format("rope_parameters.{}.rope_theta", name), "expected a number, found none");
    }
    const Json all = settings.is_object() ? settings : Json::object();
    return parse_set(fields, all, fmt::format("rope_parameters.{}", name), traits.theta, traits, config);
  };
  config.rope = set("full_attention");
  config.window_rope = set("sliding_attention");
  forget_truncation(config);
}

/// Settings by kind of layer: in rope_parameters, or rope_scaling for layers that see all and no scaling for those that
/// slide.
void parse_by_kind(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  const Json& sets = settings_at(fields, "rope_parameters");
  const Json& scaling = settings_at(fields, "rope_scaling");
  for (const auto& [name, value] : sets.items()) {
    const bool known = name == "full_attention" || name == "sliding_attention";
    if (known && (value.is_object() || value.is_null())) continue;
    fields.refuse(
        "rope_parameters",
        fmt::format("expected full_attention and sliding_attention with settings, found {}", quoted_name(name)));
    return;
  }
  const auto set = [&](const char* name) -> const Json& {
    const auto found = sets.find(name);
    return found == sets.end() || found->is_null() ? no_settings() : *found;
  };
  // transformers puts it into settings that have a rope_type, before which another name counts for nothing.
  if (!fields.has("rope_parameters") && !scaling.contains("rope_type") && scaling.contains("type")) {
    fields.refuse("rope_scaling", fmt::format("the type of {} has no effect here; name it rope_type or leave it out",
                                              traits.model_type));
  }
  Json full = set("full_attention");
  full.update(scaling);
  const double theta = fields.number("rope_theta", kThetaLimits, traits.theta);
  config.rope = parse_set(fields, full, scaling.empty() ? "rope_parameters.full_attention" : "rope_scaling", theta,
                          traits, config);
  const double window_theta = traits.window_theta_key.empty() ? *traits.window_theta
                                                              : fields.number(std::string(traits.window_theta_key),
                                                                              kThetaLimits, traits.window_theta);
  config.window_rope =
      parse_set(fields, set("sliding_attention"), "rope_parameters.sliding_attention", window_theta, traits, config);
  forget_truncation(config);
}

}  // namespace

double stretch_of(const ModelConfig& config, const RopeConfig& rope) {
  return static_cast<double>(config.max_positions) / rope.original_max_positions;
}

double stretched_theta(const ModelConfig& config, const RopeConfig& rope) {
  if (!rope.alpha) return rope.theta;
  return rope.theta * std::pow(*rope.alpha, static_cast<double>(config.head_dim) / (config.head_dim - 2.0));
}

double long_rope_amplitude(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_max_positions)));
}

void parse_ropes(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  if (traits.sets_ropes_by_kind) return parse_sets(fields, traits, config);
  if (traits.window_theta) return parse_by_kind(fields, traits, config);
  const char* key = is_filled(fields.at("rope_scaling")) ? "rope_scaling" : "rope_parameters";
  const bool given = traits.default_rope.empty() || fields.has(key);
  const Json settings = given ? settings_at(fields, key) : Json::parse(traits.default_rope);
  for (const auto& [name, value] : settings.items()) {
    if (!value.is_object()) continue;
    fields.refuse(key, fmt::format("rotary settings by kind of layer ({}) are not supported; expected one set for all",
                                   quoted_name(name)));
    return;
  }
  const double theta = fields.number(std::string(traits.theta_key), kThetaLimits, traits.theta);
  config.rope = parse_set(fields, settings, key, theta, traits, config);
}

void parse_listed_thetas(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  const char* key = "layer_rope_theta";
  if (!traits.lists_thetas || !fields.has(key)) return;
  const Json& list = fields.at(key);
  const bool thetas =
      list.is_array() && list.size() == config.num_layers && std::ranges::all_of(list, [](const Json& one) {
        if (!one.is_number()) return false;
        const auto theta = one.get<double>();
        return theta == 0.0 || (theta >= kThetaLimits.low && theta <= kThetaLimits.high);
      });
  if (!thetas) {
    fields.expected(key, fmt::format("a list of num_hidden_layers ({}) numbers, each 0 or from {:g} to {:g}",
                                     config.num_layers, kThetaLimits.low, kThetaLimits.high));
    return;
  }
  std::optional<double> full;
  std::optional<double> window;
  config.without_rope.assign(config.num_layers, false);
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const auto theta = list[layer].get<double>();
    config.without_rope[layer] = theta == 0.0;
    if (theta == 0.0) continue;
    std::optional<double>& of_kind = config.sliding_window[layer] != 0 ? window : full;
    if (of_kind.value_or(theta) != theta) {
      fields.refuse(key, fmt::format("expected one of all layers that slide and one of all that see all, found {:g} "
                                     "and {:g} (layer {}) in one kind",
                                     *of_kind, theta, layer));
      return;
    }
    of_kind = theta;
  }
  config.rope.theta = full.value_or(window.value_or(config.rope.theta));
  if (!full || !window || *full == *window) return;
  config.window_rope = config.rope;
  config.window_rope->theta = *window;
}

std::vector<double> listed_thetas(const ModelConfig& config) {
  std::vector<double> thetas;
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const bool slides = config.sliding_window[layer] != 0;
    const double theta = slides && config.window_rope ? config.window_rope->theta : config.rope.theta;
    const bool turns = config.without_rope.empty() || !config.without_rope[layer];
    thetas.push_back(turns ? theta : 0.0);
  }
  return thetas;
}

}  // namespace rondo::model
