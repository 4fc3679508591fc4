// Attention half and MLP half of a Llama-like block, whose MLP may be a mixture of experts.
#include "block.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "rondo/model/parameters.h"
#include "rope.h"

namespace rondo::model {

static_assert(kMaxExperts <= devices::kMostExperts && kMaxChoices <= devices::kMostChoices);

namespace {

class PartsBuilder {
 public:
  PartsBuilder(const ModelConfig& config, const MethodSpec& method, std::uint32_t block)
      : method_(method), block_(block), trains_(method.trains_block(block, config.num_layers)) {}
  /// Layers from here on have no adapters.
  void without_adapters() { adaptable_ = false; }

  std::uint32_t add(std::string name, devices::Shape shape, WeightKind kind, bool trained) {
    parts_.parameters.push_back({std::move(name), std::move(shape), kind, trained});
    return static_cast<std::uint32_t>(parts_.parameters.size() - 1);
  }
  std::uint32_t norm(const std::string& module, std::int64_t width) {
    return add(module + ".weight", {width}, WeightKind::kNorm, trains_);
  }
  /// `name`: null for none.
  std::optional<std::uint32_t> norm_if(const std::string& prefix, const char* name, std::int64_t width) {
    return name == nullptr ? std::nullopt : std::optional(norm(prefix + "." + name, width));
  }
  std::uint32_t matrix(const std::string& module, std::int64_t out, std::int64_t in) {
    const std::uint32_t index = add(module + ".weight", {out, in}, WeightKind::kMatrix, trains_);
    if (!trains_) parts_.parameters.back().encoding = method_.base_encoding;
    return index;
  }
  std::uint32_t matrix_of_expert(const std::string& module, std::int64_t out, std::int64_t in) {
    const std::uint32_t index = matrix(module, out, in);
    if (!trains_ && method_.keeps_mxfp4) parts_.parameters.back().encoding = devices::Encoding::kMxfp4;
    return index;
  }
  void linear(const LinearModule& module) {
    const bool adapted = adaptable_ && method_.lora && method_.lora->adapts(module.name, block_);
    const auto site = static_cast<std::uint32_t>(parts_.linears.size());
    std::optional<std::uint32_t> lora_a;
    for (const LinearModule& part : parts_or_self(module)) {
      const auto out = static_cast<std::int64_t>(part.out);
      const auto in = static_cast<std::int64_t>(part.in);
      LinearUse use{part.path, out, in, site, {}, {}, {}, {}, {}};
      use.weight = matrix(part.path, out, in);
      if (part.bias) use.bias = add(part.path + ".bias", {out}, WeightKind::kBias, trains_);
      if (adapted) {
        use.rank = method_.lora->rank_of(module.path);
        use.scale = method_.lora->scale_of(module.path);
        if (!lora_a) lora_a = factor(adapter_tensor_name(module.path, 'A'), {use.rank, in}, WeightKind::kLoraA, 1.0);
        use.lora_a = lora_a;
        const double rate = method_.lora_b_rate;
        use.lora_b = factor(adapter_tensor_name(part.path, 'B'), {out, use.rank}, WeightKind::kLoraB, rate);
        if (method_.lora->use_dora) {
          use.magnitude = factor(magnitude_tensor_name(part.path), {out}, WeightKind::kMagnitude, rate);
        }
      }
      parts_.linears.push_back(std::move(use));
    }
  }
  std::uint32_t sinks(const std::string& attention, std::int64_t heads) {
    return add(attention + ".sinks", {heads}, WeightKind::kSink, trains_);
  }
  /// `prefix`: of the block. The router stays as it is: it decides by small differences.
  void experts(const std::string& prefix, const ModelConfig& config) {
    const ExpertNames names = expert_names(config);
    const std::string module = prefix + "." + names.module;
    const std::string router = module + "." + names.router;
    const std::int64_t count = config.experts->count;
    const std::int64_t hidden = config.hidden_size;
    const std::int64_t width = config.experts->width;
    ExpertParts& parts = parts_.experts.emplace();
    parts.router = add(router + ".weight", {count, hidden}, WeightKind::kMatrix, trains_);
    for (std::int64_t expert = 0; expert < count; ++expert) {
      const std::string one = fmt::format("{}.experts.{}.", module, expert);
      parts.gate.weights.push_back(matrix_of_expert(one + names.gate, width, hidden));
      parts.up.weights.push_back(matrix_of_expert(one + names.up, width, hidden));
      parts.down.weights.push_back(matrix_of_expert(one + names.down, hidden, width));
    }
    if (!config.experts->biases) return;
    const auto bias = [&](const std::string& name, const devices::Shape& shape) {
      return add(name + ".bias", shape, WeightKind::kBias, trains_);
    };
    parts.router_bias = bias(router, {count});
    parts.gate.bias = bias(module + ".experts." + names.gate, {count, width});
    parts.up.bias = bias(module + ".experts." + names.up, {count, width});
    parts.down.bias = bias(module + ".experts." + names.down, {count, hidden});
  }
  LayerParts& parts() { return parts_; }

 private:
  std::uint32_t factor(std::string name, devices::Shape shape, WeightKind kind, double rate) {
    const std::uint32_t index = add(std::move(name), std::move(shape), kind, method_.train_lora);
    parts_.parameters.back().rate_factor = rate;
    return index;
  }

  const MethodSpec& method_;
  const std::uint32_t block_;
  const bool trains_;
  bool adaptable_ = true;
  LayerParts parts_;
};

/// Finds or makes weight tensors of a layer.
class WeightSource {
 public:
  WeightSource(Recorder& recorder, const LayerParts& parts) : recorder_(recorder), parts_(parts) {}
  TensorId get(std::uint32_t index) {
    const Parameter& parameter = parts_.parameters[index];
    const TensorId id = recorder_.weight(index, parameter.name, parameter.shape, parameter.trained, parameter.encoding);
    if (parameter.wide()) recorder_.set_dtype(id, devices::DType::kFloat32);
    return id;
  }

 private:
  Recorder& recorder_;
  const LayerParts& parts_;
};

/// What becomes of a linear layer's product: it is multiplied by `factor` and added to `addend`.
struct Residual {
  std::optional<TensorId> addend;
  double factor = 1.0;  // 1 where the layer has a bias
};

/// Records linear layers, perhaps with adapters, of one half of a block. Parts of a fused layer share what its adapter
/// makes of their input.
class LinearRecorder {
 public:
  LinearRecorder(Recorder& recorder, WeightSource& weights, const MethodSpec& method)
      : recorder_(recorder), weights_(weights), method_(method) {}

  /// y = factor (x W^T (+ scale B A dropout(x))) (+ b) (+ addend). PEFT: the adapter's input is dropped out, the base's
  /// is not.
  TensorId record(const LinearUse& use, TensorId x, Residual residual, const devices::Shape& shape) {
    if (use.magnitude) return record_dora(use, x, residual, shape);
    const TensorId y = recorder_.matmul(x, weights_.get(*use.weight), bias_of(use), residual.addend, residual.factor,
                                        shape, word_of(use), method_.fp8);
    if (!use.lora_a) return y;
    const Shared& shared = shared_of(use, x);
    return recorder_.matmul(shared.low, weights_.get(*use.lora_b), {}, y, residual.factor * use.scale, shape,
                            word_of(use) + ".adapted");
  }

 private:
  struct Shared {
    TensorId input;                // dropped out
    std::optional<TensorId> rest;  // what dropping takes from x, of DoRA
    TensorId low;
  };

  /// y = factor (x' W^T + m / |W + scale B A| * (W + scale B A) dropout(x)) (+ b) (+ addend), x' being what dropping
  /// takes from x: PEFT drops out the input of all that the magnitude scales, beyond what the base gives unscaled.
  TensorId record_dora(const LinearUse& use, TensorId x, Residual residual, const devices::Shape& shape) {
    const std::string word = word_of(use);
    const TensorId w = weights_.get(*use.weight);
    std::optional<TensorId> bias = bias_of(use);
    std::optional<TensorId> addend = residual.addend;
    const Shared& shared = shared_of(use, x);
    if (shared.rest) {
      addend =
          recorder_.matmul(*shared.rest, w, bias, addend, residual.factor, shape, word + ".undropped", method_.fp8);
      bias.reset();
    }
    const TensorId a = weights_.get(*use.lora_a);
    const TensorId b = weights_.get(*use.lora_b);
    const TensorId base = recorder_.matmul(shared.input, w, {}, {}, residual.factor, shape, word, method_.fp8);
    const TensorId direction =
        recorder_.matmul(shared.low, b, {}, base, residual.factor * use.scale, shape, word + ".adapted");
    const TensorId scale = recorder_.magnitude_scale(weights_.get(*use.magnitude), w, a, b, use.scale, word);
    return recorder_.column_scale(direction, scale, bias, addend, word + ".scaled");
  }

  const Shared& shared_of(const LinearUse& use, TensorId x) {
    const auto found = shared_.find(*use.lora_a);
    if (found != shared_.end()) return found->second;
    const std::string word = word_of(use);
    Shared shared{x, {}, x};
    if (method_.train_lora && method_.lora->dropout > 0.0) {
      shared.input = recorder_.dropout(x, method_.lora->dropout, use.site, word + ".dropped");
      if (use.magnitude) {
        shared.rest = recorder_.dropout(x, method_.lora->dropout, use.site, word + ".rest", true);
      }
    }
    shared.low = recorder_.matmul(shared.input, weights_.get(*use.lora_a), {}, {}, 1.0, {recorder_.tokens(), use.rank},
                                  word + ".low");
    return shared_.emplace(*use.lora_a, shared).first->second;
  }

  std::optional<TensorId> bias_of(const LinearUse& use) {
    return use.bias ? std::optional(weights_.get(*use.bias)) : std::nullopt;
  }
  static std::string word_of(const LinearUse& use) { return use.module.substr(use.module.rfind('.') + 1); }

  Recorder& recorder_;
  WeightSource& weights_;
  const MethodSpec& method_;
  std::map<std::uint32_t, Shared> shared_;  // by lora_a
};

/// What the first linear layers of a half of a block read.
TensorId record_input(Recorder& recorder, WeightSource& weights, const LayerParts& parts, TensorId x,
                      const ModelConfig& config) {
  if (!parts.input_norm) return recorder.add(x, {}, "x_copied");
  return record_norm(recorder, x, weights.get(*parts.input_norm), config, "normed");
}

/// What a half of a block adds to the residual stream `x`, normed first where the model does that. `last(residual)`
/// records what comes before.
template <typename Last>
TensorId record_sum(Recorder& recorder, WeightSource& weights, const LayerParts& parts, TensorId x,
                    const ModelConfig& config, const Last& last) {
  if (!parts.output_norm) return last(Residual{x, config.residual_multiplier});
  const TensorId normed =
      record_norm(recorder, last(Residual{}), weights.get(*parts.output_norm), config, "output_normed");
  return recorder.add(x, normed, "sum");
}

/// The same of the last linear layer.
TensorId record_output(Recorder& recorder, WeightSource& weights, LinearRecorder& linears, const LayerParts& parts,
                       TensorId inner, TensorId x, const ModelConfig& config) {
  const devices::Shape shape = {recorder.tokens(), config.hidden_size};
  return record_sum(recorder, weights, parts, x, config,
                    [&](Residual residual) { return linears.record(parts.linears.back(), inner, residual, shape); });
}

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

/// Of each token the experts that its router chooses.
TensorId record_experts(Recorder& recorder, WeightSource& weights, const LayerParts& parts, TensorId normed, TensorId x,
                        const ModelConfig& config) {
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
  const Recorder::Routed routed = recorder.route(logits, experts.choices, experts.normalised);
  const auto product = [&](TensorId of, const ExpertLinears& linears, const std::string& name) {
    const TensorId y = recorder.grouped_matmul(of, routed, of_each(linears.weights), name);
    return linears.bias ? recorder.grouped_bias(y, routed, weights.get(*linears.bias), name + ".biased") : y;
  };
  const TensorId sent = recorder.dispatch(normed, routed);
  const TensorId gate = product(sent, own.gate, "gate");
  const TensorId up = product(sent, own.up, "up");
  const TensorId activated = recorder.gated_activation(gate, up, activation_of_experts(config));
  const TensorId down = product(activated, own.down, "down");
  return record_sum(recorder, weights, parts, x, config, [&](Residual residual) {
    return recorder.combine(down, routed, residual.addend, residual.factor);
  });
}

}  // namespace

LayerParts attention_parts(const ModelConfig& config, const MethodSpec& method, std::uint32_t block) {
  const std::string prefix = fmt::format("{}layers.{}", name_prefix(config), block);
  const std::string attention = prefix + ".self_attn";
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q_width = static_cast<std::int64_t>(config.num_heads) * config.head_dim;
  const std::int64_t kv_width = static_cast<std::int64_t>(config.num_kv_heads) * config.head_dim;
  const NormNames norms = norm_names(config.norm_place);
  PartsBuilder builder(config, method, block);
  builder.parts().input_norm = builder.norm_if(prefix, norms.attention_input, hidden);
  for (const LinearModule& linear : attention_linears(config, block)) builder.linear(linear);
  if (config.attention_sinks) builder.parts().sinks = builder.sinks(attention, config.num_heads);
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
  if (config.experts) builder.without_adapters();  // see linear_modules()
  if (has_experts(config, block)) {
    builder.experts(prefix, config);
  } else {
    for (const LinearModule& linear : mlp_linears(config, block)) builder.linear(linear);
  }
  builder.parts().output_norm = builder.norm_if(prefix, norms.mlp_output, hidden);
  return std::move(builder.parts());
}

TensorId record_norm(Recorder& recorder, TensorId x, TensorId weight, const ModelConfig& config,
                     const std::string& name, double factor) {
  return recorder.rms_norm(x, weight, {config.rms_norm_eps, factor, config.norms_add_one ? factor : 0.0}, name);
}

TensorId record_attention(Recorder& recorder, TensorId x, const LayerParts& parts, const ModelConfig& config,
                          const MethodSpec& method, const devices::RopeAttributes* rope, std::uint32_t block,
                          std::uint32_t capacity) {
  WeightSource weights(recorder, parts);
  const std::int64_t tokens = recorder.tokens();
  const devices::Shape q_shape = {tokens, config.num_heads, config.head_dim};
  const devices::Shape kv_shape = {tokens, config.num_kv_heads, config.head_dim};
  const auto normed_if = [&](TensorId of, std::optional<std::uint32_t> norm, const char* name) {
    return norm ? record_norm(recorder, of, weights.get(*norm), config, name) : of;
  };
  const TensorId normed = record_input(recorder, weights, parts, x, config);
  LinearRecorder linears(recorder, weights, method);
  TensorId q = linears.record(parts.linears[0], normed, {}, q_shape);
  TensorId k = linears.record(parts.linears[1], normed, {}, kv_shape);
  const TensorId v = linears.record(parts.linears[2], normed, {}, kv_shape);
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
  return record_output(recorder, weights, linears, parts, attended.o, x, config);
}

TensorId record_mlp(Recorder& recorder, TensorId x, const LayerParts& parts, const ModelConfig& config,
                    const MethodSpec& method) {
  WeightSource weights(recorder, parts);
  const devices::Shape inner = {recorder.tokens(), config.intermediate_size};
  const TensorId normed = record_input(recorder, weights, parts, x, config);
  if (parts.experts) return record_experts(recorder, weights, parts, normed, x, config);
  LinearRecorder linears(recorder, weights, method);
  const TensorId gate = linears.record(parts.linears[0], normed, {}, inner);
  const TensorId up = linears.record(parts.linears[1], normed, {}, inner);
  const TensorId activated = recorder.gated_activation(gate, up, activation_of(config));
  return record_output(recorder, weights, linears, parts, activated, x, config);
}

}  // namespace rondo::model
