// Attention half and MLP half of a Llama-like block.
#include "block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rondo::model {
namespace {

class PartsBuilder {
 public:
  PartsBuilder(const ModelConfig& config, const MethodSpec& method, std::uint32_t block)
      : method_(method), block_(block), trains_(method.trains_block(block, config.num_layers)) {}

  std::uint32_t add(std::string name, devices::Shape shape, WeightKind kind, bool trained) {
    parts_.parameters.push_back({std::move(name), std::move(shape), kind, trained});
    return static_cast<std::uint32_t>(parts_.parameters.size() - 1);
  }
  std::uint32_t norm(const std::string& module, std::int64_t width) {
    return add(module + ".weight", {width}, WeightKind::kNorm, trains_);
  }
  void linear(const std::string& prefix, const std::string& word, std::int64_t out, std::int64_t in, bool bias) {
    LinearUse use{prefix + "." + word, out, in, static_cast<std::uint32_t>(parts_.linears.size()), {}, {}, {}, {}, {}};
    use.weight = add(use.module + ".weight", {out, in}, WeightKind::kMatrix, trains_);
    if (!trains_) parts_.parameters.back().encoding = method_.base_encoding;
    if (bias) use.bias = add(use.module + ".bias", {out}, WeightKind::kBias, trains_);
    if (method_.lora && method_.lora->adapts(word, block_)) {
      use.rank = method_.lora->rank_of(use.module);
      use.scale = method_.lora->scale_of(use.module);
      use.lora_a = add(adapter_tensor_name(use.module, 'A'), {use.rank, in}, WeightKind::kLoraA, method_.train_lora);
      use.lora_b = add(adapter_tensor_name(use.module, 'B'), {out, use.rank}, WeightKind::kLoraB, method_.train_lora);
      parts_.parameters.back().rate_factor = method_.lora_b_rate;
      if (method_.lora->use_dora) {
        use.magnitude = add(magnitude_tensor_name(use.module), {out}, WeightKind::kMagnitude, method_.train_lora);
        parts_.parameters.back().rate_factor = method_.lora_b_rate;
      }
    }
    parts_.linears.push_back(std::move(use));
  }
  LayerParts& parts() { return parts_; }

 private:
  const MethodSpec& method_;
  const std::uint32_t block_;
  const bool trains_;
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

/// y = x' W^T + m / |W + scale B A| * (W + scale B A) dropout(x) (+ b) (+ addend), x' being what dropping takes from x:
/// PEFT drops out the input of all that the magnitude scales, beyond what the base gives unscaled.
TensorId record_dora(Recorder& recorder, WeightSource& weights, const MethodSpec& method, const LinearUse& use,
                     TensorId x, std::optional<TensorId> addend, const devices::Shape& shape) {
  const std::string word = use.module.substr(use.module.rfind('.') + 1);
  const TensorId w = weights.get(*use.weight);
  std::optional<TensorId> bias;
  if (use.bias) bias = weights.get(*use.bias);
  TensorId input = x;
  if (method.train_lora && method.lora->dropout > 0.0) {
    input = recorder.dropout(x, method.lora->dropout, use.site, word + ".dropped");
    const TensorId rest = recorder.dropout(x, method.lora->dropout, use.site, word + ".rest", true);
    addend = recorder.matmul(rest, w, bias, addend, 1.0, shape, word + ".undropped", method.fp8);
    bias.reset();
  }
  const TensorId a = weights.get(*use.lora_a);
  const TensorId b = weights.get(*use.lora_b);
  const TensorId base = recorder.matmul(input, w, {}, {}, 1.0, shape, word, method.fp8);
  const TensorId low = recorder.matmul(input, a, {}, {}, 1.0, {recorder.tokens(), use.rank}, word + ".low");
  const TensorId direction = recorder.matmul(low, b, {}, base, use.scale, shape, word + ".adapted");
  const TensorId scale = recorder.magnitude_scale(weights.get(*use.magnitude), w, a, b, use.scale, word);
  return recorder.column_scale(direction, scale, bias, addend, word + ".scaled");
}

/// y = x W^T (+ b) (+ scale B A dropout(x)) (+ addend). PEFT: the adapter's input is dropped out, the base's is not.
TensorId record_linear(Recorder& recorder, WeightSource& weights, const MethodSpec& method, const LinearUse& use,
                       TensorId x, std::optional<TensorId> addend, const devices::Shape& shape) {
  if (use.magnitude) return record_dora(recorder, weights, method, use, x, addend, shape);
  const std::string word = use.module.substr(use.module.rfind('.') + 1);
  std::optional<TensorId> bias;
  if (use.bias) bias = weights.get(*use.bias);
  TensorId y = recorder.matmul(x, weights.get(*use.weight), bias, addend, 1.0, shape, word, method.fp8);
  if (!use.lora_a) return y;
  TensorId input = x;
  if (method.train_lora && method.lora->dropout > 0.0) {
    input = recorder.dropout(x, method.lora->dropout, use.site, word + ".dropped");
  }
  const TensorId low =
      recorder.matmul(input, weights.get(*use.lora_a), {}, {}, 1.0, {recorder.tokens(), use.rank}, word + ".low");
  return recorder.matmul(low, weights.get(*use.lora_b), {}, y, use.scale, shape, word + ".adapted");
}

}  // namespace

LayerParts attention_parts(const ModelConfig& config, const MethodSpec& method, std::uint32_t block) {
  const std::string prefix = fmt::format("model.layers.{}", block);
  const std::string attention = prefix + ".self_attn";
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q_width = static_cast<std::int64_t>(config.num_heads) * config.head_dim;
  const std::int64_t kv_width = static_cast<std::int64_t>(config.num_kv_heads) * config.head_dim;
  PartsBuilder builder(config, method, block);
  builder.parts().norm = builder.norm(prefix + ".input_layernorm", hidden);
  builder.linear(attention, "q_proj", q_width, hidden, config.attention_bias);
  builder.linear(attention, "k_proj", kv_width, hidden, config.attention_bias);
  builder.linear(attention, "v_proj", kv_width, hidden, config.attention_bias);
  builder.linear(attention, "o_proj", hidden, q_width, config.attention_output_bias);
  if (config.qk_norm) {
    builder.parts().q_norm = builder.norm(attention + ".q_norm", config.head_dim);
    builder.parts().k_norm = builder.norm(attention + ".k_norm", config.head_dim);
  }
  return std::move(builder.parts());
}

LayerParts mlp_parts(const ModelConfig& config, const MethodSpec& method, std::uint32_t block) {
  const std::string prefix = fmt::format("model.layers.{}", block);
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t inner = config.intermediate_size;
  PartsBuilder builder(config, method, block);
  builder.parts().norm = builder.norm(prefix + ".post_attention_layernorm", hidden);
  builder.linear(prefix + ".mlp", "gate_proj", inner, hidden, config.mlp_bias);
  builder.linear(prefix + ".mlp", "up_proj", inner, hidden, config.mlp_bias);
  builder.linear(prefix + ".mlp", "down_proj", hidden, inner, config.mlp_bias);
  return std::move(builder.parts());
}

TensorId record_attention(Recorder& recorder, TensorId x, const LayerParts& parts, const ModelConfig& config,
                          const MethodSpec& method, const devices::RopeAttributes& rope, std::uint32_t block,
                          std::uint32_t capacity) {
  WeightSource weights(recorder, parts);
  const std::int64_t tokens = recorder.tokens();
  const devices::Shape q_shape = {tokens, config.num_heads, config.head_dim};
  const devices::Shape kv_shape = {tokens, config.num_kv_heads, config.head_dim};
  const TensorId normed = recorder.rms_norm(x, weights.get(parts.norm), config.rms_norm_eps, "normed");
  TensorId q = record_linear(recorder, weights, method, parts.linears[0], normed, {}, q_shape);
  TensorId k = record_linear(recorder, weights, method, parts.linears[1], normed, {}, kv_shape);
  const TensorId v = record_linear(recorder, weights, method, parts.linears[2], normed, {}, kv_shape);
  if (parts.q_norm) q = recorder.rms_norm(q, weights.get(*parts.q_norm), config.rms_norm_eps, "q_normed");
  if (parts.k_norm) k = recorder.rms_norm(k, weights.get(*parts.k_norm), config.rms_norm_eps, "k_normed");
  q = recorder.rope(q, rope, "q_rotated");
  k = recorder.rope(k, rope, "k_rotated");
  const devices::AttentionAttributes attributes{
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))), config.sliding_window[block]};
  const TensorId o =
      capacity > 0 ? recorder.cached_attention(q, k, v, capacity, attributes) : recorder.attention(q, k, v, attributes);
  return record_linear(recorder, weights, method, parts.linears[3], o, x, {tokens, config.hidden_size});
}

TensorId record_mlp(Recorder& recorder, TensorId x, const LayerParts& parts, const ModelConfig& config,
                    const MethodSpec& method) {
  WeightSource weights(recorder, parts);
  const std::int64_t tokens = recorder.tokens();
  const devices::Shape inner = {tokens, config.intermediate_size};
  const TensorId normed = recorder.rms_norm(x, weights.get(parts.norm), config.rms_norm_eps, "normed");
  const TensorId gate = record_linear(recorder, weights, method, parts.linears[0], normed, {}, inner);
  const TensorId up = record_linear(recorder, weights, method, parts.linears[1], normed, {}, inner);
  const devices::ActivationKind kinds[] = {devices::ActivationKind::kSilu, devices::ActivationKind::kGelu,
                                           devices::ActivationKind::kGeluTanh};
  const TensorId activated = recorder.gated_activation(gate, up, kinds[static_cast<std::size_t>(config.activation)]);
  return record_linear(recorder, weights, method, parts.linears[2], activated, x, {tokens, config.hidden_size});
}

}  // namespace rondo::model
