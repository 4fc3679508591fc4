// Attention half and MLP half of a Llama-like block, whose MLP may be a mixture of experts.
#include "block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "block_inputs.h"
#include "latent_attention.h"
#include "layer_parts.h"
#include "linear_attention.h"
#include "linear_recorder.h"
#include "rope.h"
#include "state_space.h"

namespace rondo::model {

static_assert(kMaxExperts <= devices::kMostExperts && kMaxChoices <= devices::kMostChoices);

devices::GatedActivationAttributes activation_of(const ModelConfig& config) {
  constexpr devices::ActivationKind kKinds[] = {devices::ActivationKind::kSilu, devices::ActivationKind::kGelu,
                                                devices::ActivationKind::kGeluTanh, devices::ActivationKind::kRelu};
  return {kKinds[static_cast<std::size_t>(config.activation)]};
}

namespace {

devices::GatedActivationAttributes activation_of_experts(const ModelConfig& config) {
  const std::optional<ClampedSwiglu>& clamped = config.experts->clamped;
  if (!clamped) return activation_of(config);
  return {devices::ActivationKind::kClampedSwiglu, static_cast<float>(clamped->alpha),
          static_cast<float>(clamped->limit)};
}

/// activation(up). Relu squared is relu(up) * up.
TensorId record_ungated(Recorder& recorder, TensorId up, const ModelConfig& config) {
  const bool squared = config.activation == Activation::kReluSquared;
  return recorder.gated_activation(up, squared ? std::optional(up) : std::nullopt, activation_of(config));
}

/// What down() reads: activation(gate) * up, or without a gate activation(up).
TensorId record_inner(Recorder& recorder, LinearRecorder& linears, const LayerParts& parts, TensorId normed,
                      const ModelConfig& config) {
  const devices::Shape inner = {recorder.tokens(), parts.linears[0].out};
  if (!config.gated_mlp) return record_ungated(recorder, linears.record(parts.linears[0], normed, {}, inner), config);
  const TensorId gate = linears.record(parts.linears[0], normed, {}, inner);
  const TensorId up = linears.record(parts.linears[1], normed, {}, inner);
  return recorder.gated_activation(gate, up, activation_of(config));
}

/// What all tokens go through, perhaps times the sigmoid of a gate: as an expert alone among its kind.
TensorId record_shared_expert(Recorder& recorder, LinearRecorder& linears, const LayerParts& parts, TensorId normed,
                              Residual residual, const ModelConfig& config) {
  const TensorId inner = record_inner(recorder, linears, parts, normed, config);
  const devices::Shape outer = {recorder.tokens(), config.hidden_size};
  const LinearUse& last = parts.linears[config.gated_mlp ? 2 : 1];
  if (!config.experts->gates_shared) return linears.record(last, inner, residual, outer);
  const TensorId down = linears.record(last, inner, {}, outer);
  const TensorId gate = linears.record(parts.linears[3], normed, {}, {recorder.tokens(), 1});
  const Recorder::Routed all = recorder.route(gate, 1, {.sigmoid = true});
  return recorder.combine(down, all, residual.addend, residual.factor);
}

/// Products of the rows of each expert, with what its adapter adds.
class ExpertRecorder {
 public:
  ExpertRecorder(Recorder& recorder, WeightSource& weights, const Recorder::Routed& routed, const ModelConfig& config)
      : recorder_(recorder), weights_(weights), routed_(routed), count_(config.experts->count) {}

  /// y [k T, out]
  TensorId product(TensorId x, const ExpertLinears& layer, std::int64_t out, const std::string& name) {
    std::vector<TensorId> w;
    for (const std::uint32_t index : layer.weights) w.push_back(weights_.get(index));
    TensorId y = recorder_.grouped_matmul(x, routed_, w, name);
    if (layer.adapter) {
      const TensorId b = weights_.get(layer.adapter->b, {count_, out, layer.adapter->rank});
      y = recorder_.stacked_matmul(low_of(x, *layer.adapter, name), routed_, b, y, layer.adapter->scale,
                                   name + ".adapted");
    }
    return layer.bias ? recorder_.grouped_bias(y, routed_, weights_.get(*layer.bias), name + ".biased") : y;
  }

 private:
  /// What a factor A makes of x; gate and up share it.
  TensorId low_of(TensorId x, const ExpertAdapter& adapter, const std::string& name) {
    const auto found = lows_.find(adapter.a);
    if (found != lows_.end()) return found->second;
    const std::int64_t in = recorder_.columns(x);
    const TensorId a = weights_.get(adapter.a, {count_, adapter.rank, in});
    return lows_.emplace(adapter.a, recorder_.stacked_matmul(x, routed_, a, {}, 1.0, name + ".low")).first->second;
  }

  Recorder& recorder_;
  WeightSource& weights_;
  const Recorder::Routed& routed_;
  const std::int64_t count_;
  std::map<std::uint32_t, TensorId> lows_;  // by A
};

TensorId record_router(Recorder& recorder, WeightSource& weights, const ExpertParts& parts, TensorId normed,
                       const ModelConfig& config) {
  const devices::Shape shape = {recorder.tokens(), config.experts->count};
  std::optional<TensorId> bias;
  if (parts.router_bias) bias = weights.get(*parts.router_bias);
  const TensorId logits = recorder.matmul(normed, weights.get(parts.router), bias, {}, 1.0, shape, "router");
  if (!parts.router_adapter) return logits;
  const ExpertAdapter& adapter = *parts.router_adapter;
  const TensorId low =
      recorder.matmul(normed, weights.get(adapter.a), {}, {}, 1.0, {recorder.tokens(), adapter.rank}, "router.low");
  return recorder.matmul(low, weights.get(adapter.b), {}, logits, adapter.scale, shape, "router.adapted");
}

/// c * convolution(b * x), but for the last product.
TensorId record_convolution(Recorder& recorder, WeightSource& weights, LinearRecorder& linears, const LayerParts& parts,
                            TensorId normed, const ModelConfig& config, bool decodes) {
  const std::int64_t hidden = config.hidden_size;
  const devices::Shape shape = {recorder.tokens(), hidden};
  constexpr devices::GatedActivationAttributes kTimes{devices::ActivationKind::kIdentity};
  const TensorId b = linears.record(parts.linears[0], normed, {}, shape);
  const TensorId c = linears.record(parts.linears[1], normed, {}, shape);
  const TensorId x = linears.record(parts.linears[2], normed, {}, shape);
  const TensorId gated = recorder.gated_activation(b, x, kTimes);
  const TensorId w = weights.get(*parts.convolution, {hidden, config.short_convolution->width});
  return recorder.gated_activation(c, recorder.convolution(gated, w, {}, 0, decodes, false), kTimes);
}

Recorder::Routed record_route(Recorder& recorder, WeightSource& weights, const ExpertParts& own, TensorId logits,
                              const ModelConfig& config) {
  const ExpertsConfig& experts = *config.experts;
  std::optional<TensorId> choice_bias;
  if (own.choice_bias) choice_bias = weights.get(*own.choice_bias, {experts.count});
  return recorder.route(logits, experts.choices,
                        {.normalised = experts.normalised,
                         .sigmoid = experts.sigmoid,
                         .has_bias = choice_bias.has_value(),
                         .factor = static_cast<float>(experts.factor),
                         .added = static_cast<float>(experts.added),
                         .groups = static_cast<std::int32_t>(experts.groups),
                         .chosen_groups = static_cast<std::int32_t>(experts.chosen_groups)},
                        choice_bias);
}

/// What experts make of their tokens' rows of `read`, [k T, C].
TensorId record_routed(Recorder& recorder, WeightSource& weights, const ExpertParts& own, TensorId read,
                       const Recorder::Routed& routed, const ModelConfig& config) {
  const ExpertsConfig& experts = *config.experts;
  ExpertRecorder each(recorder, weights, routed, config);
  const TensorId sent = recorder.dispatch(read, routed);
  if (!config.gated_mlp) {
    const TensorId up = each.product(sent, own.up, experts.width, "up");
    return each.product(record_ungated(recorder, up, config), own.down, config.hidden_size, "down");
  }
  const TensorId gate = each.product(sent, own.gate, experts.width, "gate");
  const TensorId up = each.product(sent, own.up, experts.width, "up");
  const TensorId activated = recorder.gated_activation(gate, up, activation_of_experts(config));
  return each.product(activated, own.down, config.hidden_size, "down");
}

/// Of each token the experts that its router chooses, and the one that all share.
TensorId record_experts(Recorder& recorder, WeightSource& weights, LinearRecorder& linears, const LayerParts& parts,
                        TensorId normed, TensorId x, const ModelConfig& config) {
  const ExpertParts& own = *parts.experts;
  const devices::Shape scores = {recorder.tokens(), config.experts->count};
  const TensorId logits = config.experts->has_linear_router() ? linears.record(parts.linears.back(), normed, {}, scores)
                                                              : record_router(recorder, weights, own, normed, config);
  const Recorder::Routed routed = record_route(recorder, weights, own, logits, config);
  const TensorId down = record_routed(recorder, weights, own, normed, routed, config);
  return record_sum(recorder, weights, parts, x, config, [&](Residual residual) {
    if (!parts.linears.empty()) {
      residual.addend = record_shared_expert(recorder, linears, parts, normed, residual, config);
    }
    return recorder.combine(down, routed, residual.addend, residual.factor);
  });
}

/// Gemma 4: an MLP and the experts that its router chooses by the residual stream, each normed by itself.
TensorId record_experts_beside(Recorder& recorder, WeightSource& weights, LinearRecorder& linears,
                               const LayerParts& parts, TensorId normed, TensorId x, const ModelConfig& config) {
  const BesideParts& beside = *parts.beside;
  const auto norm = [&](TensorId of, std::uint32_t weight, const char* name) {
    return record_norm(recorder, of, weights.get(weight), {}, config, name);
  };
  const devices::Shape outer = {recorder.tokens(), config.hidden_size};
  const TensorId inner = record_inner(recorder, linears, parts, normed, config);
  const TensorId mlp = linears.record(parts.linears[2], inner, {}, outer);
  const double per_channel = 1.0 / std::sqrt(static_cast<double>(config.hidden_size));
  const TensorId judged =
      recorder.norm(x, weights.get(beside.router_scale), {}, {config.rms_norm_eps, per_channel, 0.0}, "judged");
  const TensorId logits = linears.record(parts.linears[3], judged, {}, {recorder.tokens(), config.experts->count});
  Recorder::Routed routed = record_route(recorder, weights, *parts.experts, logits, config);
  routed.shares = recorder.share_scale(routed, weights.get(beside.expert_scale));
  const TensorId read = norm(x, beside.experts_input, "experts_normed");
  const TensorId down = record_routed(recorder, weights, *parts.experts, read, routed, config);
  const TensorId given = norm(recorder.combine(down, routed, {}, 1.0), beside.experts_output, "experts_output_normed");
  const TensorId both = recorder.add(norm(mlp, beside.mlp_output, "mlp_output_normed"), given, "both");
  return recorder.add(x, record_norm(recorder, weights, both, *parts.output_norm, config, "output_normed"), "sum");
}

}  // namespace

LayerParts attention_parts(const ModelConfig& config, const MethodSpec& method, std::uint32_t block) {
  const std::string prefix = fmt::format("{}layers.{}", name_prefix(config), block);
  const std::string attention = attention_path(config, block);
  const std::int64_t hidden = config.hidden_size;
  const HeadShape heads = heads_of(config, block);
  const std::int64_t q_width = static_cast<std::int64_t>(config.num_heads) * heads.size;
  const std::int64_t kv_width = static_cast<std::int64_t>(heads.kv_heads) * heads.size;
  const NormNames norms = norm_names(config.norm_place);
  PartsBuilder builder(config, method, block);
  builder.parts().input_norm = builder.norm_if(config, prefix, norms.attention_input);
  for (const LinearModule& linear : attention_linears(config, block)) builder.linear(linear);
  if (is_convolution(config, block)) {
    builder.parts().convolution =
        builder.add(attention + ".conv.weight", {hidden, 1, config.short_convolution->width}, WeightKind::kConvolution);
    return std::move(builder.parts());
  }
  if (is_state_space(config, block)) {
    builder.parts().state_space = state_space_parts(builder, space_path(config, block), *config.state_space);
    if (space_replaces_attention(config, block)) return std::move(builder.parts());
  }
  if (is_linear(config, block)) {
    builder.parts().linear_attention = linear_attention_parts(builder, attention, *config.linear_attention);
    builder.parts().output_norm = builder.norm_if(config, prefix, norms.attention_output);
    return std::move(builder.parts());
  }
  if (config.latent_attention) {
    for (const LatentNorm& norm : latent_norms(config)) {
      builder.parts().latent_norms.push_back(builder.norm(attention + "." + norm.name, norm.width));
    }
  }
  if (config.attention_sinks) {
    builder.parts().sinks = builder.add(attention + ".sinks", {config.num_heads}, WeightKind::kSink);
  }
  if (config.qk_norm != QkNorm::kNone && config.norm_weight) {
    const bool all = config.qk_norm == QkNorm::kAllHeads;
    const auto [q_norm, k_norm] = qk_norm_names(config);
    builder.parts().q_norm = builder.norm(attention + "." + q_norm, all ? q_width : heads.size);
    if (!shares_keys(config, block))
      builder.parts().k_norm = builder.norm(attention + "." + k_norm, all ? kv_width : heads.size);
  }
  builder.parts().output_norm = builder.norm_if(config, prefix, norms.attention_output);
  return std::move(builder.parts());
}

LayerParts mlp_parts(const ModelConfig& config, const MethodSpec& method, std::uint32_t block) {
  const std::string prefix = fmt::format("{}layers.{}", name_prefix(config), block);
  const NormNames norms = norm_names(config.norm_place);
  PartsBuilder builder(config, method, block);
  builder.parts().input_norm = builder.norm_if(config, prefix, norms.mlp_input);
  for (const LinearModule& linear : mlp_linears(config, block)) builder.linear(linear);
  if (has_experts(config, block)) builder.experts(prefix, config);
  builder.parts().output_norm = builder.norm_if(config, prefix, norms.mlp_output);
  if (config.block_inputs) add_input_parts(builder, config, method, prefix);
  if (config.scales_blocks) {
    builder.parts().scale = builder.add(prefix + "." + kBlockScaleName, {1}, WeightKind::kBlockScale);
    builder.parts().parameters.back().trained = false;
  }
  return std::move(builder.parts());
}

std::vector<Parameter> ParallelParts::parameters() const {
  std::vector<Parameter> all = attention.parameters;
  all.insert(all.end(), mlp.parameters.begin(), mlp.parameters.end());
  return all;
}

ParallelParts parallel_parts(const ModelConfig& config, const MethodSpec& method, std::uint32_t block) {
  ParallelParts parts{attention_parts(config, method, block), mlp_parts(config, method, block)};
  for (LinearUse& use : parts.mlp.linears) use.site += static_cast<std::uint32_t>(parts.attention.linears.size());
  return parts;
}

namespace {

/// The attention half from `normed`, what its first linear layers read.
TensorId record_attention_of(Recorder& recorder, WeightSource& weights, Carried& carried, TensorId normed,
                             const LayerParts& parts, const ModelConfig& config, const MethodSpec& method,
                             const devices::RopeAttributes* rope, std::uint32_t block, std::uint32_t capacity) {
  TensorId x = carried.stream();
  LinearRecorder linears(recorder, weights, method);
  const bool decodes = capacity > 0;
  if (parts.linear_attention || parts.convolution) {
    const TensorId inner = parts.convolution
                               ? record_convolution(recorder, weights, linears, parts, normed, config, decodes)
                               : record_linear_attention(recorder, normed, weights, linears, parts, config, decodes);
    return record_output(recorder, weights, linears, parts, inner, x, config);
  }
  const auto* linear = parts.linears.data();
  if (parts.state_space) {
    const TensorId inner = record_state_space(recorder, normed, weights, linears, parts, config, decodes);
    if (space_replaces_attention(config, block)) {
      return record_output(recorder, weights, linears, parts, inner, x, config);
    }
    linear += kLinearsOfSpace;
    x = linears.record(linear[-1], inner, {x, 1.0}, {recorder.tokens(), config.hidden_size});
  }
  const devices::AttentionAttributes attributes{static_cast<float>(scale_of_scores(config)),
                                                config.sliding_window[block], static_cast<float>(config.attention_cap)};
  if (config.latent_attention) {
    const devices::RopeAttributes turning = decodes ? settled_rope(*rope, capacity) : *rope;
    const TensorId inner =
        record_latent_attention(recorder, normed, weights, linears, parts, config, turning, attributes, capacity);
    return record_output(recorder, weights, linears, parts, inner, x, config);
  }
  const std::int64_t tokens = recorder.tokens();
  const HeadShape heads = heads_of(config, block);
  const devices::Shape q_shape = {tokens, config.num_heads, heads.size};
  const devices::Shape kv_shape = {tokens, heads.kv_heads, heads.size};
  const auto normed_if = [&](TensorId of, std::optional<std::uint32_t> norm, const char* name) {
    if (config.qk_norm == QkNorm::kNone) return of;
    return record_norm(recorder, of, norm ? std::optional(weights.get(*norm)) : std::nullopt, {}, config, name);
  };
  TensorId q = linears.record(*linear++, normed, {}, q_shape);
  std::optional<TensorId> gate;
  if (config.gates_attention) gate = linears.record(*linear++, normed, {}, q_shape);
  std::optional<TensorId> k, v;  // before they are normed and turned; none where another block's are shared
  if (!shares_keys(config, block)) {
    k = linears.record(*linear++, normed, {}, kv_shape);
    v = heads.keys_are_values ? k : linears.record(*linear, normed, {}, kv_shape);
    if (config.norms_values) v = recorder.norm(*v, {}, {}, {config.rms_norm_eps, 0.0, 1.0}, "v_normed");
  }
  const auto norm_both = [&] {
    q = normed_if(q, parts.q_norm, "q_normed");
    if (k) k = normed_if(*k, parts.k_norm, "k_normed");
  };
  if (!config.norms_turned) norm_both();
  if (rope != nullptr) {
    devices::RopeAttributes turning = capacity > 0 ? settled_rope(*rope, capacity) : *rope;
    q = recorder.rope(q, turning, "q_rotated");
    turning.grows_from = 0;  // keys do not
    if (k) k = recorder.rope(*k, turning, "k_rotated");
  }
  if (config.norms_turned) norm_both();
  const Carried::Keys keys = k ? Carried::Keys{*k, *v} : carried.shared_keys(block);
  if (lends_keys(config, block)) carried.lend(keys, block);
  Recorder::Attended attended = capacity > 0 ? recorder.cached_attention(q, keys.k, keys.v, capacity, attributes)
                                             : recorder.attention(q, keys.k, keys.v, attributes);
  if (parts.sinks) attended = recorder.attention_sink(attended, weights.get(*parts.sinks));
  if (gate) attended.o = recorder.gated_activation(*gate, attended.o, {devices::ActivationKind::kSigmoid});
  return record_output(recorder, weights, linears, parts, attended.o, x, config);
}

}  // namespace

TensorId record_attention(Recorder& recorder, Carried& carried, const LayerParts& parts, const ModelConfig& config,
                          const MethodSpec& method, const devices::RopeAttributes* rope, std::uint32_t block,
                          std::uint32_t capacity) {
  WeightSource weights(recorder, parts);
  const TensorId normed = record_input(recorder, weights, parts, carried.stream(), config);
  return record_attention_of(recorder, weights, carried, normed, parts, config, method, rope, block, capacity);
}

TensorId record_parallel(Recorder& recorder, Carried& carried, const ParallelParts& parts, const ModelConfig& config,
                         const MethodSpec& method, const devices::RopeAttributes* rope, std::uint32_t block,
                         std::uint32_t capacity) {
  WeightSource weights(recorder, parts.attention);
  WeightSource of_mlp(recorder, parts.mlp, static_cast<std::uint32_t>(parts.attention.parameters.size()));
  const TensorId x = carried.stream();
  const TensorId normed = record_input(recorder, weights, parts.attention, x, config);
  TensorId read = normed;
  if (parts.mlp.input_norm) read = record_norm(recorder, of_mlp, x, *parts.mlp.input_norm, config, "mlp_normed");
  const TensorId attended =
      record_attention_of(recorder, weights, carried, normed, parts.attention, config, method, rope, block, capacity);
  LinearRecorder linears(recorder, of_mlp, method);
  const TensorId inner = record_inner(recorder, linears, parts.mlp, read, config);
  return record_output(recorder, of_mlp, linears, parts.mlp, inner, attended, config);
}

TensorId record_mlp(Recorder& recorder, Carried& carried, const LayerParts& parts, const ModelConfig& config,
                    const MethodSpec& method) {
  WeightSource weights(recorder, parts);
  const TensorId x = carried.stream();
  const TensorId normed = record_input(recorder, weights, parts, x, config);
  LinearRecorder linears(recorder, weights, method);
  TensorId y = x;
  if (parts.beside) {
    y = record_experts_beside(recorder, weights, linears, parts, normed, x, config);
  } else if (parts.experts) {
    y = record_experts(recorder, weights, linears, parts, normed, x, config);
  } else {
    const TensorId inner = record_inner(recorder, linears, parts, normed, config);
    y = record_output(recorder, weights, linears, parts, inner, x, config);
  }
  if (parts.inputs) y = record_block_inputs(recorder, weights, linears, parts, y, carried, config);
  return parts.scale ? recorder.column_scale(y, weights.get(*parts.scale), {}, {}, "scaled") : y;
}

}  // namespace rondo::model
