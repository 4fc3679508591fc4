// See config_factors.h; the words are those of transformers 5.23.
#include "config_factors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "rondo/base/status.h"

namespace rondo::model {
namespace {

constexpr Limits kFactors = {1e-6, 1e6};

/// Those that stand by themselves.
std::array<std::pair<const char*, double*>, 5> numbers_of(LinearFactors& factors) {
  return {{{"attention_in_multiplier", &factors.attention_input},
           {"key_multiplier", &factors.key},
           {"attention_out_multiplier", &factors.attention_output},
           {"ssm_in_multiplier", &factors.space_input},
           {"ssm_out_multiplier", &factors.space_output}}};
}

/// A null means that there is none.
double parse_cap(Fields& fields, const char* key, double absent) {
  if (absent == 0.0 || (fields.present(key) && !fields.has(key))) return 0.0;
  return fields.number(key, {1e-3, 1e6}, absent);
}

/// Norms that take the mean off, and blocks in parallel.
void parse_layer_norms(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  config.centred_norms = traits.layer_norm;
  config.norm_weight = traits.norm_weight;
  config.norm_bias = traits.norm_bias;
  config.norms_embedding = traits.norms_embedding;
  const std::string key(traits.parallel_key);
  config.parallel = key.empty() ? traits.parallel : fields.flag(key, traits.parallel);
  if (config.parallel) config.norm_place = traits.parallel_norm_place;
  if (const std::string refused(traits.refused_qk_norm_key); !refused.empty() && fields.flag(refused, false)) {
    fields.refuse(refused, "norms of queries and keys that differ from head to head are not supported; expected false");
  }
}

/// Absent and null: all 1.
template <std::size_t N>
void parse_list(Fields& fields, const char* key, std::array<double, N>& out) {
  if (!fields.has(key)) return;
  const Json& list = fields.at(key);
  const auto fits = [](const Json& one) {
    return one.is_number() && one.get<double>() >= kFactors.low && one.get<double>() <= kFactors.high;
  };
  if (!list.is_array() || list.size() != N || !std::ranges::all_of(list, fits)) {
    fields.expected(key, fmt::format("a list of {} numbers from {:g} to {:g}", N, kFactors.low, kFactors.high));
    return;
  }
  for (std::size_t i = 0; i < N; ++i) out[i] = list[i].get<double>();
}

/// A bias would have to be multiplied too.
void refuse_biases(Fields& fields, const ModelConfig& config) {
  const LinearFactors& factors = config.linear_factors;
  if (config.attention_bias && (factors.key != 1.0 || factors.attention_output != 1.0)) {
    fields.refuse("attention_bias",
                  "biases with a key_multiplier or an attention_out_multiplier are not supported; expected false");
  }
  if (config.mlp_bias && (factors.gate != 1.0 || factors.down != 1.0)) {
    fields.refuse("mlp_bias", "biases with mlp_multipliers are not supported; expected false");
  }
}

void parse_linear_factors(Fields& fields, ModelConfig& config) {
  LinearFactors& factors = config.linear_factors;
  for (const auto& [key, factor] : numbers_of(factors)) *factor = fields.number(key, kFactors, 1.0);
  parse_list(fields, "ssm_multipliers", factors.space);
  std::array<double, 2> of_mlp = {1.0, 1.0};
  parse_list(fields, "mlp_multipliers", of_mlp);
  factors.gate = of_mlp[0];
  factors.down = of_mlp[1];
  config.embedding_multiplier = fields.number("embedding_multiplier", kFactors, 1.0);
  config.logits_scaling = 1.0 / fields.number("lm_head_multiplier", kFactors, 1.0);
  refuse_biases(fields, config);
}

/// What a half of a block adds is times a factor, behind its bias in transformers.
void refuse_scaled_biases(Fields& fields, const char* factor, const ModelConfig& config) {
  for (const auto& [key, biased] :
       {std::pair("attention_bias", config.attention_output_bias), std::pair("mlp_bias", config.mlp_bias)}) {
    if (biased && config.residual_multiplier != 1.0 && config.norm_place == NormPlace::kInput) {
      fields.refuse(key, fmt::format("biases with a {} are not supported; expected false", factor));
    }
  }
}

/// MiniCPM's. A null says that there is no factor.
void parse_depth_scale(Fields& fields, ModelConfig& config) {
  const auto or_usual = [&](const char* key, double absent, double usual) {
    return fields.number(key, kFactors, fields.present(key) ? usual : absent);
  };
  const double root = std::sqrt(static_cast<double>(config.num_layers));
  config.embedding_multiplier = fields.number("scale_emb", kFactors, 12.0);
  config.residual_multiplier = or_usual("scale_depth", 1.4, root) / root;
  config.logits_scaling = config.hidden_size / or_usual("dim_model_base", 256.0, config.hidden_size);
  refuse_scaled_biases(fields, "scale_depth", config);
}

}  // namespace

void add_depth_scale(const ModelConfig& config, OrderedJson& out) {
  out["scale_emb"] = config.embedding_multiplier;
  out["scale_depth"] = config.residual_multiplier * std::sqrt(static_cast<double>(config.num_layers));
  out["dim_model_base"] = std::lround(config.hidden_size / config.logits_scaling);
}

void add_linear_factors(const ModelConfig& config, OrderedJson& out) {
  LinearFactors factors = config.linear_factors;
  for (const auto& [key, factor] : numbers_of(factors)) out[key] = *factor;
  out["ssm_multipliers"] = factors.space;
  out["mlp_multipliers"] = OrderedJson::array({factors.gate, factors.down});
  out["embedding_multiplier"] = config.embedding_multiplier;
  out["lm_head_multiplier"] = 1.0 / config.logits_scaling;
}

void parse_factors(Fields& fields, const FamilyTraits& traits, ModelConfig& config) {
  const bool plain = traits.reads_post_norm && !fields.flag("use_post_norm", true);
  config.norm_place = plain ? NormPlace::kInput : traits.norm_place;
  parse_layer_norms(fields, traits, config);
  config.qk_norm = traits.qk_norm;
  if (traits.reads_qk_norm && fields.flag("use_qk_norm", false)) config.qk_norm = QkNorm::kHead;
  config.norms_turned = traits.norms_turned;
  config.norms_add_one = traits.norms_add_one;
  config.scales_embedding_by_width = traits.is_gemma;
  if (traits.scales_queries) {
    config.attention_scale = 1.0 / std::sqrt(fields.number("query_pre_attn_scalar", kFactors, 256.0));
  }
  config.attention_cap = parse_cap(fields, "attn_logit_softcapping", traits.attention_cap);
  config.logits_cap = parse_cap(fields, "final_logit_softcapping", traits.logits_cap);
  if (traits.reads_logits_cap) {
    config.logits_cap = fields.optional_number("final_logit_softcapping", {1e-3, 1e6}).value_or(0.0);
  }
  if (traits.attention_scale != 0.0) config.attention_scale = traits.attention_scale;
  config.norms_values = traits.norms_values;
  config.scales_blocks = traits.scales_blocks;
  if (traits.reads_mup && fields.flag("mup_enabled", false)) {
    config.embedding_multiplier = std::sqrt(static_cast<double>(config.hidden_size));
  }
  if (traits.reads_logit_scale) config.logits_scaling = 1.0 / fields.number("logit_scale", kFactors, 0.0625);
  if (traits.reads_linear_factors) parse_linear_factors(fields, config);
  if (traits.reads_depth_scale) parse_depth_scale(fields, config);
  if (!traits.reads_multipliers) return;
  const double usual_scale = traits.multiplies_logits ? 1.0 / std::sqrt(config.head_dim) : 1.0;
  config.attention_scale = fields.number("attention_multiplier", kFactors, usual_scale);
  config.embedding_multiplier = fields.number("embedding_multiplier", kFactors, 1.0);
  config.residual_multiplier = fields.number("residual_multiplier", kFactors, 1.0);
  config.logits_scaling = fields.number("logits_scaling", kFactors, 1.0);
  if (traits.multiplies_logits) config.logits_scaling = 1.0 / config.logits_scaling;
  refuse_scaled_biases(fields, "residual_multiplier", config);
}

}  // namespace rondo::model
