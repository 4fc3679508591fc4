// See state_space.h.
#include "state_space.h"

#include <array>

namespace rondo::model {

/// Behind the first one and those of the convolutions.
constexpr std::uint32_t kSecondState = 4;

StateSpaceParts state_space_parts(PartsBuilder& builder, const std::string& path, const StateSpaceConfig& space) {
  StateSpaceParts parts;
  for (const ConvolutionPart& part : convolution_parts(space)) {
    const std::string module = path + "." + part.name;
    parts.convolutions.push_back(
        builder.add(module + ".weight", {part.channels, 1, space.convolution}, WeightKind::kConvolution));
    if (!space.convolution_bias) continue;
    parts.biases.push_back(builder.add(module + ".bias", {part.channels}, WeightKind::kBias));
  }
  parts.rates = builder.add(path + ".A_log", {space.heads}, WeightKind::kRate);
  parts.step_bias = builder.add(path + ".dt_bias", {space.heads}, WeightKind::kRateBias);
  parts.passed = builder.add(path + ".D", {space.heads}, WeightKind::kHeadScale);
  if (!space.normed) return parts;
  const WeightKind gain = space.groups == 1 ? WeightKind::kNorm : WeightKind::kGroupGain;
  parts.gain = builder.add(path + ".norm.weight", {space.width()}, gain);
  return parts;
}

namespace {

/// scan(x, b, c, steps).
TensorId record_scan(Recorder& recorder, TensorId x, TensorId b, TensorId c, const Recorder::Decayed& steps,
                     const StateSpaceConfig& space, std::uint32_t first_state, bool decodes) {
  constexpr auto kSpace = devices::Recurrence::kStateSpace;
  if (space.state_size <= kMaxDeltaSize) return recorder.delta_rule(c, b, x, steps, decodes, kSpace, first_state);
  const std::int64_t tokens = recorder.tokens();
  const devices::Shape of_first = {tokens, space.groups, kMaxDeltaSize};
  const devices::Shape of_second = {tokens, space.groups, space.state_size - kMaxDeltaSize};
  const auto [b_first, b_second] = recorder.parted(b, of_first, of_second, "b_first", "b_second");
  const auto [c_first, c_second] = recorder.parted(c, of_first, of_second, "c_first", "c_second");
  const TensorId first = recorder.delta_rule(c_first, b_first, x, steps, decodes, kSpace, first_state);
  const TensorId second =
      recorder.delta_rule(c_second, b_second, x, steps, decodes, kSpace, first_state + kSecondState);
  return recorder.add(first, second, "scanned");
}

/// silu(z) * y, normed as the model has it.
TensorId record_gate(Recorder& recorder, WeightSource& weights, TensorId z, TensorId y, const StateSpaceParts& own,
                     const ModelConfig& config) {
  const StateSpaceConfig& space = *config.state_space;
  constexpr devices::GatedActivationAttributes kSilu{devices::ActivationKind::kSilu};
  const auto normed = [&](TensorId of) {
    if (space.groups == 1) {
      return recorder.norm(of, weights.get(own.gain), {}, {config.rms_norm_eps, 1.0, 0.0}, "gained");
    }
    const TensorId of_group = recorder.norm(of, {}, {}, {config.rms_norm_eps, 0.0, 1.0}, "group_normed");
    return recorder.column_scale(of_group, weights.get(own.gain), {}, {}, "gained");
  };
  if (space.normed_first) return recorder.gated_activation(z, normed(y), kSilu);
  const TensorId gated = recorder.gated_activation(z, y, kSilu);
  return space.normed ? normed(gated) : gated;
}

}  // namespace

TensorId record_state_space(Recorder& recorder, TensorId normed, WeightSource& weights, LinearRecorder& linears,
                            const LayerParts& parts, const ModelConfig& config, bool decodes) {
  const StateSpaceConfig& space = *config.state_space;
  const StateSpaceParts& own = *parts.state_space;
  const std::int64_t tokens = recorder.tokens();
  const devices::Shape of_values = {tokens, space.heads, space.head_size};
  const devices::Shape of_keys = {tokens, space.groups, space.state_size};
  const devices::Shape of_groups = {tokens, space.groups, space.width() / space.groups};
  const TensorId z = linears.record(parts.linears[0], normed, {}, space.groups == 1 ? of_values : of_groups);
  const std::uint32_t first_state = space.beside_attention ? kStatesOfAttention : 0;
  std::array<TensorId, 3> convolved{};
  for (std::uint32_t i = 0; i < 3; ++i) {
    const LinearUse& use = parts.linears[1 + i];
    const TensorId read = linears.record(use, normed, {}, i == 0 ? of_values : of_keys);
    const TensorId w = weights.get(own.convolutions[i], {use.out, space.convolution});
    const std::uint32_t state = first_state + 1 + i;
    if (own.biases.empty()) {
      convolved[i] = recorder.convolution(read, w, {}, state, decodes);
      continue;
    }
    // Apart, so that the bias's gradient is that of a sum.
    const TensorId sum = recorder.convolution(read, w, weights.get(own.biases[i]), state, decodes, false);
    convolved[i] = recorder.gated_activation(sum, {}, {devices::ActivationKind::kSilu});
  }
  const TensorId dt = linears.record(parts.linears[4], normed, {}, {tokens, space.heads});
  const Recorder::Decayed steps =
      recorder.steps(dt, weights.get(own.rates), weights.get(own.step_bias), space.least_step, space.most_step);
  const auto [x, b, c] = convolved;
  const TensorId scanned = record_scan(recorder, x, b, c, steps, space, first_state, decodes);
  const TensorId both = recorder.column_scale(x, weights.get(own.passed), {}, scanned, "passed");
  return record_gate(recorder, weights, z, both, own, config);
}

}  // namespace rondo::model
