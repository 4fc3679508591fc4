// Attention half and MLP half of a Llama-like block, whose MLP may be a mixture of experts.
#include "block.h"

#include <fmt/format.h>

#include <algorithm>

#include "layer_parts.h"
#include "linear_attention.h"
#include "linear_recorder.h"
#include "rope.h"

namespace rondo::model {

static_assert(kMaxExperts <= devices::kMostExperts && kMaxChoices <= devices::kMostChoices);

namespace {

devices::GatedActivationAttributes activation_of(const ModelConfig& config) {
  constexpr devices::ActivationKind kKinds[] = {devices::ActivationKind::kSilu, devices::ActivationKind::kGelu,
                                                devices::ActivationKind::kGeluTanh};
  return {kKinds[static_cast<std::size_t>(config.activation)]};
}

devices::GatedActivationAttributes activation_of_experts(const ModelConfig& config) {
  const std::optional<ClampedSwiglu>& clamped = config.experts->clamped;
  if (!clamped) return activation_of(config);
  return {devices::ActivationKind::kClampedSwiglu, static_cast<float>(clamped->alpha),
          static_cast<float>(clamped->limit)};
}

/// down(activation(gate) * up), but for the last product.
TensorId record_inner(Recorder& recorder, LinearRecorder& linears, const LayerParts& parts, TensorId normed,
                      const ModelConfig& config) {
  const devices::Shape inner = {recorder.tokens(), parts.linears[0].out};
  const TensorId gate = linears.record(parts.linears[0], normed, {}, inner);
  const TensorId up = linears.record(parts.linears[1], normed, {}, inner);
  return recorder.gated_activation(gate, up, activation_of(config));
}

/// What all tokens go through, times the sigmoid of a gate: as an expert alone among its kind.
TensorId record_shared_expert(Recorder& recorder, LinearRecorder& linears, const LayerParts& parts, TensorId normed,
                              Residual residual, const ModelConfig& config) {
  const TensorId inner = record_inner(recorder, linears, parts, normed, config);
  const TensorId down = linears.record(parts.linears[2], inner, {}, {recorder.tokens(), config.hidden_size});
  const TensorId gate = linears.record(parts.linears[3], normed, {}, {recorder.tokens(), 1});
  const Recorder::Routed all = recorder.route(gate, 1, {.sigmoid = true});
  return recorder.combine(down, all, residual.addend, residual.factor);
}

/// Of each token the experts that its router chooses, and the one that all share.
TensorId record_experts(Recorder& recorder, WeightSource& weights, LinearRecorder& linears, const LayerParts& parts,
                        TensorId normed, TensorId x, const ModelConfig& config) {
  const ExpertsConfig& experts = *config.experts;
  const auto of_each = [&](const std::vector<std::uint32_t>& indices) {
    std::vector<TensorId> ids;
    for (const std::uint32_t index : indices) ids.push_back(weights.get(index));
    return ids;
  };
  const ExpertParts& own = *parts.experts;
  std::optional<TensorId> router_bias;
  if (own.router_bias) router_bias = weights.get(*own.router_bias);
  const TensorId logits = recorder.matmul(normed, weights.get(own.router), router_bias, {}, 1.0,
                                          {recorder.tokens(), experts.count}, "router");
  const Recorder::Routed routed = recorder.route(logits, experts.choices, {experts.normalised});
  const auto product = [&](TensorId of, const ExpertLinears& layer, const std::string& name) {
    const TensorId y = recorder.grouped_matmul(of, routed, of_each(layer.weights), name);
    return layer.bias ? recorder.grouped_bias(y, routed, weights.get(*layer.bias), name + ".biased") : y;
  };
  const TensorId sent = recorder.dispatch(normed, routed);
  const TensorId gate = product(sent, own.gate, "gate");
  const TensorId up = product(sent, own.up, "up");
  const TensorId activated = recorder.gated_activation(gate, up, activation_of_experts(config));
  const TensorId down = product(activated, own.down, "down");
  return record_sum(recorder, weights, parts, x, config, [&](Residual residual) {
    if (!parts.linears.empty()) {
      residual.addend = record_shared_expert(recorder, linears, parts, normed, residual, config);
    }
    return recorder.combine(down, routed, residual.addend, residual.factor);
  });
}

}  // namespace

LayerParts attention_parts(const ModelConfig& config, const MethodSpec& method, std::uint32_t block) {
  const std::string prefix = fmt::format("{}layers.{}", name_prefix(config), block);
  const std::string attention = attention_path(config, block);
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q_width = static_cast<std::int64_t>(config.num_heads) * config.head_dim;
  const std::int64_t kv_width = static_cast<std::int64_t>(config.num_kv_heads) * config.head_dim;
  const NormNames norms = norm_names(config.norm_place);
  PartsBuilder builder(config, method, block);
  builder.parts().input_norm = builder.norm_if(prefix, norms.attention_input, hidden);
  for (const LinearModule& linear : attention_linears(config, block)) builder.linear(linear);
  if (is_linear(config, block)) {
    builder.parts().linear_attention = linear_attention_parts(builder, attention, *config.linear_attention);
    builder.parts().output_norm = builder.norm_if(prefix, norms.attention_output, hidden);
    return std::move(builder.parts());
  }
  if (config.attention_sinks) {
    builder.parts().sinks = builder.add(attention + ".sinks", {config.num_heads}, WeightKind::kSink);
  }
  if (config.qk_norm != QkNorm::kNone) {
    const bool all = config.qk_norm == QkNorm::kAllHeads;
    builder.parts().q_norm = builder.norm(attention + ".q_norm", all ? q_width : config.head_dim);
    builder.parts().k_norm = builder.norm(attention + ".k_norm", all ? kv_width : config.head_dim);
  }
  builder.parts().output_norm = builder.norm_if(prefix, norms.attention_output, hidden);
  return std::move(builder.parts());
}

LayerParts mlp_parts(const ModelConfig& config, const MethodSpec& method, std::uint32_t block) {
  const std::string prefix = fmt::format("{}layers.{}", name_prefix(config), block);
  const std::int64_t hidden = config.hidden_size;
  const NormNames norms = norm_names(config.norm_place);
  PartsBuilder builder(config, method, block);
  builder.parts().input_norm = builder.norm_if(prefix, norms.mlp_input, hidden);
  for (const LinearModule& linear : mlp_linears(config, block)) builder.linear(linear);
  if (has_experts(config, block)) builder.experts(prefix, config);
  builder.parts().output_norm = builder.norm_if(prefix, norms.mlp_output, hidden);
  return std::move(builder.parts());
}

TensorId record_attention(Recorder& recorder, TensorId x, const LayerParts& parts, const ModelConfig& config,
                          const MethodSpec& method, const devices::RopeAttributes* rope, std::uint32_t block,
                          std::uint32_t capacity) {
  WeightSource weights(recorder, parts);
  if (parts.linear_attention) {
    const TensorId normed = record_input(recorder, weights, parts, x, config);
    LinearRecorder linears(recorder, weights, method);
    const TensorId inner = record_linear_attention(recorder, normed, weights, linears, parts, config, capacity > 0);
    return record_output(recorder, weights, linears, parts, inner, x, config);
  }
  const std::int64_t tokens = recorder.tokens();
  const devices::Shape q_shape = {tokens, config.num_heads, config.head_dim};
  const devices::Shape kv_shape = {tokens, config.num_kv_heads, config.head_dim};
  const auto normed_if = [&](TensorId of, std::optional<std::uint32_t> norm, const char* name) {
    return norm ? record_norm(recorder, of, weights.get(*norm), config, name) : of;
  };
  const TensorId normed = record_input(recorder, weights, parts, x, config);
  LinearRecorder linears(recorder, weights, method);
  const auto* linear = parts.linears.data();
  TensorId q = linears.record(*linear++, normed, {}, q_shape);
  std::optional<TensorId> gate;
  if (config.gates_attention) gate = linears.record(*linear++, normed, {}, q_shape);
  TensorId k = linears.record(*linear++, normed, {}, kv_shape);
  const TensorId v = linears.record(*linear, normed, {}, kv_shape);
  q = normed_if(q, parts.q_norm, "q_normed");
  k = normed_if(k, parts.k_norm, "k_normed");
  if (rope != nullptr) {
    const devices::RopeAttributes turning = capacity > 0 ? settled_rope(*rope, capacity) : *rope;
    q = recorder.rope(q, turning, "q_rotated");
    k = recorder.rope(k, turning, "k_rotated");
  }
  const devices::AttentionAttributes attributes{static_cast<float>(scale_of_scores(config)),
                                                config.sliding_window[block]};
  Recorder::Attended attended =
      capacity > 0 ? recorder.cached_attention(q, k, v, capacity, attributes) : recorder.attention(q, k, v, attributes);
  if (parts.sinks) attended = recorder.attention_sink(attended, weights.get(*parts.sinks));
  if (gate) attended.o = recorder.gated_activation(*gate, attended.o, {devices::ActivationKind::kSigmoid});
  return record_output(recorder, weights, linears, parts, attended.o, x, config);
}

TensorId record_mlp(Recorder& recorder, TensorId x, const LayerParts& parts, const ModelConfig& config,
                    const MethodSpec& method) {
  WeightSource weights(recorder, parts);
  const TensorId normed = record_input(recorder, weights, parts, x, config);
  LinearRecorder linears(recorder, weights, method);
  if (parts.experts) return record_experts(recorder, weights, linears, parts, normed, x, config);
  const TensorId inner = record_inner(recorder, linears, parts, normed, config);
  return record_output(recorder, weights, linears, parts, inner, x, config);
}

}  // namespace rondo::model
