// See linear_attention.h.
#include "linear_attention.h"

#include <array>

namespace rondo::model {

static_assert(kMaxDeltaSize <= devices::kMostDeltaSize && kMaxConvolution <= devices::kMostConvolution);

LinearAttentionParts linear_attention_parts(PartsBuilder& builder, const std::string& path,
                                            const LinearAttentionConfig& linear) {
  LinearAttentionParts parts;
  for (const ConvolutionPart& part : convolution_parts(linear)) {
    parts.convolutions.push_back(builder.add(path + "." + part.name + ".weight", {part.channels, 1, linear.convolution},
                                             WeightKind::kConvolution));
  }
  parts.rates = builder.add(path + ".A_log", {linear.value_heads}, WeightKind::kRate);
  parts.rate_bias = builder.add(path + ".dt_bias", {linear.value_heads}, WeightKind::kRateBias);
  parts.gain = builder.norm(path + ".norm", linear.value_size);
  return parts;
}

TensorId record_linear_attention(Recorder& recorder, TensorId normed, WeightSource& weights, LinearRecorder& linears,
                                 const LayerParts& parts, const ModelConfig& config, bool decodes) {
  const LinearAttentionConfig& linear = *config.linear_attention;
  const LinearAttentionParts& own = *parts.linear_attention;
  const std::int64_t tokens = recorder.tokens();
  const devices::Shape of_keys = {tokens, linear.key_heads, linear.key_size};
  const devices::Shape of_values = {tokens, linear.value_heads, linear.value_size};
  const devices::Shape of_gates = {tokens, linear.value_heads};
  std::array<TensorId, 3> convolved{};
  for (std::uint32_t i = 0; i < 3; ++i) {
    const LinearUse& use = parts.linears[i];
    const TensorId x = linears.record(use, normed, {}, i < 2 ? of_keys : of_values);
    const TensorId w = weights.get(own.convolutions[i], {use.out, linear.convolution});
    convolved[i] = recorder.convolution(x, w, {}, 1 + i, decodes);
  }
  const TensorId z = linears.record(parts.linears[3], normed, {}, of_values);
  const TensorId b = linears.record(parts.linears[4], normed, {}, of_gates);
  const TensorId a = linears.record(parts.linears[5], normed, {}, of_gates);
  const Recorder::Decayed gates = recorder.decay(a, b, weights.get(own.rates), weights.get(own.rate_bias));
  const TensorId o = recorder.delta_rule(convolved[0], convolved[1], convolved[2], gates, decodes);
  const TensorId gained = recorder.norm(o, weights.get(own.gain), {}, {config.rms_norm_eps, 1.0, 0.0}, "gained");
  return recorder.gated_activation(z, gained, {devices::ActivationKind::kSilu});
}

}  // namespace rondo::model
