// GPT-OSS's files have one tensor for the experts of a block, where model_parameters() has a matrix for each. So may
// those of other families, Qwen3.5-MoE's as they were published.
//
// E experts of width W over C; `experts` is model.layers.N.mlp.experts:
//   experts.gate_up_proj [E, C, 2 W]        column 2 i is row i of gate_proj, column 2 i + 1 row i of up_proj
//   experts.gate_up_proj_bias [E, 2 W]      likewise
//   experts.down_proj [E, W, C]             transposed
//   experts.down_proj_bias [E, C]
// or, in the place of a matrix, MXFP4 (Open Compute Project, Microscaling Formats 1.0, section 5):
//   experts.gate_up_proj_blocks U8 [E, 2 W, C / 32, 16], experts.gate_up_proj_scales U8 [E, 2 W, C / 32]
//   experts.down_proj_blocks U8 [E, C, W / 32, 16], experts.down_proj_scales U8 [E, C, W / 32]
// (or numbers under these names, as transformers 5 saves what it has expanded). Rows are those of the parameters, gate
// and up in turn. A block of 32 numbers is 16 bytes, the first of two in the lower half: E2M1, times 2^(scale - 127).
//
// Of other families, whose files are written with a matrix for each:
//   experts.gate_up_proj [E, 2 W, C]        rows of gate_proj, then of up_proj
//   experts.down_proj [E, C, W]
// or, of Qwen3-VL's text part, transposed as it was published, columns of gate_proj first:
//   experts.gate_up_proj [E, C, 2 W], experts.down_proj [E, W, C]
// as Gemma 4's files are written, too: model.layers.N.experts.gate_up_proj; and of Granite, whose files are written so:
//   model.layers.N.block_sparse_moe.input_linear.weight [E, 2 W, C]
//   model.layers.N.block_sparse_moe.output_linear.weight [E, C, W]
#pragma once

#include "absl/status/status.h"
#include "rondo/model/config.h"
#include "rondo/model/safetensors.h"
#include "rondo/model/stored_weights.h"

namespace rondo::model {

/// The files are written with experts in stacks.
bool has_stacked_experts(const ModelConfig& config);

/// In such where rows of gate and up take turns, with biases: GPT-OSS's.
bool has_experts_in_turn(const ModelConfig& config);

/// Puts views of its parts, under the names of model_parameters(), in the place of each stack. Errors: InvalidArgument
/// naming a stack of another shape than the configuration's. Files that have none are left as they are.
absl::Status unstack_experts(const ModelConfig& config, TensorFiles& files);

/// The same numbers as files of the model have them. REQUIRES: the matrices and biases of all experts are there, under
/// the names of model_parameters().
WritePlan stack_experts(const ModelConfig& config, WritePlan plan);

}  // namespace rondo::model
