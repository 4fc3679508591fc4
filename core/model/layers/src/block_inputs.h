// Gemma 4's inputs of each block: from every token's embedding and its row of a table, gated by the residual stream.
#pragma once

#include "carried.h"
#include "layer_parts.h"
#include "linear_recorder.h"

namespace rondo::model {

/// Takes the last two linear layers of the parts, and adds what else there is. `prefix`: of the block.
void add_input_parts(PartsBuilder& builder, const ModelConfig& config, const MethodSpec& method,
                     const std::string& prefix);

/// y = x + norm(output(activation(gate(x)) * (norm(projection(embedded)) + rows) / sqrt(2)))
TensorId record_block_inputs(Recorder& recorder, WeightSource& weights, LinearRecorder& linears,
                             const LayerParts& parts, TensorId x, Carried& carried, const ModelConfig& config);

}  // namespace rondo::model
