// See linear_recorder.h.
#include "linear_recorder.h"

namespace rondo::model {

TensorId WeightSource::get(std::uint32_t index, const devices::Shape& shape) {
  const Parameter& parameter = parts_.parameters[index];
  const TensorId id = recorder_.weight(first_ + index, parameter.name, shape, parameter.trained, parameter.encoding);
  if (parameter.wide()) recorder_.set_dtype(id, devices::DType::kFloat32);
  return id;
}

TensorId LinearRecorder::record(const LinearUse& use, TensorId x, Residual residual, const devices::Shape& shape) {
  residual.factor *= use.factor;
  if (use.magnitude) return record_dora(use, x, residual, shape);
  const TensorId y = recorder_.matmul(x, weights_.get(*use.weight), bias_of(use), residual.addend, residual.factor,
                                      shape, word_of(use), fp8_of(use));
  if (!use.lora_a) return y;
  const Shared& shared = shared_of(use, x);
  return recorder_.matmul(shared.low, weights_.get(*use.lora_b), {}, y, residual.factor * use.scale, shape,
                          word_of(use) + ".adapted");
}

TensorId LinearRecorder::record_dora(const LinearUse& use, TensorId x, Residual residual, const devices::Shape& shape) {
  const std::string word = word_of(use);
  const TensorId w = weights_.get(*use.weight);
  std::optional<TensorId> bias = bias_of(use);
  std::optional<TensorId> addend = residual.addend;
  const Shared& shared = shared_of(use, x);
  if (shared.rest) {
    addend = recorder_.matmul(*shared.rest, w, bias, addend, residual.factor, shape, word + ".undropped", fp8_of(use));
    bias.reset();
  }
  const TensorId a = weights_.get(*use.lora_a);
  const TensorId b = weights_.get(*use.lora_b);
  const TensorId base = recorder_.matmul(shared.input, w, {}, {}, residual.factor, shape, word, fp8_of(use));
  const TensorId direction =
      recorder_.matmul(shared.low, b, {}, base, residual.factor * use.scale, shape, word + ".adapted");
  const TensorId scale = recorder_.magnitude_scale(weights_.get(*use.magnitude), w, a, b, use.scale, word);
  return recorder_.column_scale(direction, scale, bias, addend, word + ".scaled");
}

const LinearRecorder::Shared& LinearRecorder::shared_of(const LinearUse& use, TensorId x) {
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

TensorId record_input(Recorder& recorder, WeightSource& weights, const LayerParts& parts, TensorId x,
                      const ModelConfig& config) {
  if (!parts.input_norm) return recorder.add(x, {}, "x_copied");
  return record_norm(recorder, weights, x, *parts.input_norm, config, "normed");
}

TensorId record_output(Recorder& recorder, WeightSource& weights, LinearRecorder& linears, const LayerParts& parts,
                       TensorId inner, TensorId x, const ModelConfig& config) {
  const devices::Shape shape = {recorder.tokens(), config.hidden_size};
  return record_sum(recorder, weights, parts, x, config,
                    [&](Residual residual) { return linears.record(parts.linears.back(), inner, residual, shape); });
}

NormUse norm_use(const ModelConfig& config, std::uint32_t first) {
  NormUse use;
  if (config.norm_weight) use.weight = first++;
  if (config.norm_bias) use.bias = first;
  return use;
}

TensorId record_norm(Recorder& recorder, TensorId x, std::optional<TensorId> weight, std::optional<TensorId> bias,
                     const ModelConfig& config, const std::string& name, double factor) {
  const bool from_one = config.norms_add_one || !weight;
  return recorder.norm(x, weight, bias, {config.rms_norm_eps, factor, from_one ? factor : 0.0, config.centred_norms},
                       name);
}

TensorId record_norm(Recorder& recorder, WeightSource& weights, TensorId x, const NormUse& use,
                     const ModelConfig& config, const std::string& name, double factor) {
  const auto get = [&](std::optional<std::uint32_t> index) {
    return index ? std::optional(weights.get(*index)) : std::nullopt;
  };
  return record_norm(recorder, x, get(use.weight), get(use.bias), config, name, factor);
}

}  // namespace rondo::model
