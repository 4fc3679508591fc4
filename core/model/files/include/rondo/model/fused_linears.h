// Linear layers that files have as one, where model_parameters() has each of its parts: those of Phi-3, GLM 4 (gate and
// up), Qwen3.5, Qwen3-Next, LFM2, Granite 4 and of attention by a latent.
//
//   model.layers.N.self_attn.qkv_proj   the rows of q_proj, then of k_proj, then of v_proj
//   model.layers.N.mlp.gate_up_proj     the rows of gate_proj, then of up_proj
//   model.layers.N.shared_mlp.input_linear   likewise, of Granite 4
//   model.layers.N.self_attn.q_proj     of each head the rows of query_proj, then of gate_proj
//   model.layers.N.conv.in_proj         the rows of b_proj, then of c_proj, then of x_proj
//   model.layers.N.self_attn.kv_a_proj_with_mqa   the rows of latent_proj, then of turned_proj
//   model.layers.N.self_attn.kv_b_proj  of each head the rows of key_proj, then of value_proj
//   model.layers.N.linear_attn.in_proj_qkvz, .in_proj_ba   of each head of keys the rows of q, k, v and z, of b and a
//   model.layers.N.linear_attn.in_proj_qkv, .conv1d (no linear layer)   the rows of q, then of k, then of v
//   model.layers.N.mamba.in_proj        the rows of z, then of x, b, c and dt
//   model.layers.N.mamba.conv1d (no linear layer)   the rows of x, then of b, then of c
//     (of Nemotron-H mixer for mamba)
//
// To PEFT it is one layer: an adapter has one factor A [r, in] for it, while the rows of B [out, r] and of DoRA's
// magnitudes [out] belong to the parts as those of the weight do. Read, they stand under the parts' names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rondo/model/adapter.h"
#include "rondo/model/config.h"
#include "rondo/model/stored_weights.h"

namespace rondo::model {

/// A tensor of a file whose rows are those of its parts: in each of `turns` turns as many of the first, then as many of
/// the next, and so on.
struct JoinedTensor {
  struct Part {
    std::string name;
    std::uint64_t rows = 0;
  };
  std::string name;
  std::vector<Part> parts;
  std::uint32_t turns = 1;
};
/// Of a model's files; none where no layers are fused.
std::vector<JoinedTensor> joined_weights(const ModelConfig& config);
/// Of an adapter's.
std::vector<JoinedTensor> joined_factors(const ModelConfig& config, const LoraConfig& lora);

/// The joined tensors, by the names of their parts.
std::map<std::string, const JoinedTensor*> by_part(const std::vector<JoinedTensor>& joined);
/// Of the whole, from that of any of its parts: rows add up.
std::vector<std::uint64_t> shape_of(const JoinedTensor& joined, std::vector<std::uint64_t> shape_of_part);

/// Puts views of its parts in the place of each joined tensor. Errors: InvalidArgument naming a tensor that is missing
/// or has another number of rows.
absl::Status split_tensors(const std::vector<JoinedTensor>& joined, TensorFiles& files);

/// The other way round. REQUIRES: of each joined tensor all parts are there or none.
WritePlan join_tensors(const std::vector<JoinedTensor>& joined, WritePlan plan);

}  // namespace rondo::model
