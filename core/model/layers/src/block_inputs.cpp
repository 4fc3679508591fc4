// See block_inputs.h. The rows come with the batch, already multiplied by sqrt(width).
#include "block_inputs.h"

#include <cmath>
#include <utility>

namespace rondo::model {

void add_input_parts(PartsBuilder& builder, const ModelConfig& config, const MethodSpec& method,
                     const std::string& prefix) {
  LayerParts& parts = builder.parts();
  InputParts inputs;
  inputs.output = std::move(parts.linears.back());
  parts.linears.pop_back();
  inputs.gate = std::move(parts.linears.back());
  parts.linears.pop_back();
  const std::int64_t width = config.block_inputs->width;
  const std::string outside = name_prefix(config);
  inputs.projection = builder.add(outside + BlockInputNames::kProjection + ".weight",
                                  {width * config.num_layers, config.hidden_size}, WeightKind::kMatrix);
  parts.parameters.back().trained = method.trains_end(BlockInputNames::kProjection);
  inputs.projection_norm = builder.norm(outside + BlockInputNames::kProjectionNorm, width);
  parts.parameters.back().trained = false;  // all blocks have the same
  inputs.output_norm = builder.norm(prefix + "." + BlockInputNames::kOutputNorm, config.hidden_size);
  parts.inputs = std::move(inputs);
}

TensorId record_block_inputs(Recorder& recorder, WeightSource& weights, LinearRecorder& linears,
                             const LayerParts& parts, TensorId x, Carried& carried, const ModelConfig& config) {
  const InputParts& inputs = *parts.inputs;
  const std::int64_t width = config.block_inputs->width;
  const devices::Shape inner = {recorder.tokens(), width};
  const devices::Shape outer = {recorder.tokens(), config.hidden_size};
  const double by_width = 1.0 / std::sqrt(static_cast<double>(config.hidden_size));
  const TensorId projected = recorder.matmul(carried.embedded(), weights.get(inputs.projection, {width, outer[1]}), {},
                                             {}, by_width, inner, "projected");
  const TensorId normed =
      record_norm(recorder, projected, weights.get(inputs.projection_norm), {}, config, "projected_normed");
  const TensorId own = recorder.add(normed, recorder.block_rows(width), "block_inputs");
  const TensorId gate = linears.record(inputs.gate, x, {}, inner);
  const TensorId gated = recorder.gated_activation(gate, own, activation_of(config));
  const TensorId given = linears.record(inputs.output, gated, {{}, std::sqrt(0.5)}, outer);
  const TensorId given_normed =
      record_norm(recorder, given, weights.get(*inputs.output_norm), {}, config, "given_normed");
  return recorder.add(x, given_normed, "with_inputs");
}

}  // namespace rondo::model
