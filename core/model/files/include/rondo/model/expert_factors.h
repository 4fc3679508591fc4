// LoRA on a mixture of experts, as PEFT has it (target_parameters): of one tensor of all experts, or of the router's.
//
// E experts, A and B of rank r for each:
//   <experts>.lora_A.weight [r E, in]    rows of the first expert's A, then of the second's, and so on
//   <experts>.lora_B.weight [out, r E]   column c E + e is column c of expert e's B
// with <experts> = base_model.model.model.layers.N.mlp.experts, of gate_up_proj and of down_proj. Where both have an
// adapter, gate_up_proj's is <experts>.base_layer. To PEFT gate_up_proj is one matrix: gate and up share A, and rows of
// B are gate's, then up's, or in turn where they are so in stacks (stacked_experts.h). The router's, of mlp.gate.weight
// or mlp.router.weight, are those of a linear layer. Granite's mixtures are block_sparse_moe, not mlp, and Gemma 4's
// have no name: model.layers.N.experts; its router is a linear layer (target_modules). Nemotron-H's are mixer, and for
// gate_up_proj, in its experts without a gate, there is up_proj.
//
// adapter_parameters() has A as it is, and in the place of B <experts>.<gate_proj|up_proj|down_proj>.lora_B.weight
// [E out, r], expert by expert.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rondo/model/adapter.h"
#include "rondo/model/config.h"
#include "rondo/model/stored_weights.h"

namespace rondo::model {

/// A tensor that such an adapter may have. Its path is what target_parameters and the patterns are matched with.
struct ExpertTensor {
  enum class Kind : std::uint8_t { kRouter, kInner, kDown };
  Kind kind = Kind::kRouter;
  std::string path;    // model.layers.0.mlp.experts.gate_up_proj, .down_proj, model.layers.0.mlp.gate.weight
  std::string module;  // whose tensor it is: model.layers.0.mlp.experts, model.layers.0.mlp.gate
  std::uint32_t layer = 0;
};
/// Of all blocks that have experts, in the model's order; none in a model without.
std::vector<ExpertTensor> expert_tensors(const ModelConfig& config);

/// What an adapter has of one of them.
struct ExpertFactors {
  /// Linear layers that B's rows belong to: router; gate, up; or down.
  struct Part {
    std::string b;          // name of B [experts * out, rank]
    std::uint64_t out = 0;  // of one expert
  };
  ExpertTensor tensor;
  std::uint64_t experts = 1;  // of the router 1
  std::uint64_t in = 0;
  std::uint32_t rank = 0;
  double scale = 0;
  std::string a;         // name of A [experts * rank, in]
  std::string stored_b;  // in files [stored_rows(), rank * experts]
  std::vector<Part> parts;
  bool in_turn = false;  // rows of the parts alternate there

  std::uint64_t stored_rows() const;
};
/// In the model's order.
std::vector<ExpertFactors> expert_factors(const ModelConfig& config, const LoraConfig& lora);
std::vector<ExpertFactors> expert_factors(const ModelConfig& config, const LoraConfig& lora, std::uint32_t layer);

/// The name in model_parameters() of the matrix that a part of B belongs to.
std::string weight_of_expert(const ModelConfig& config, const ExpertTensor& tensor, std::uint64_t expert,
                             std::size_t part);

/// PEFT takes names of an MLP's layers in target_modules for the experts' tensors, and all-linear for all of these:
/// Mixtral, Qwen3-MoE, OLMoE, Qwen3-Next.
bool names_mean_experts(const ModelConfig& config);

/// Puts views of B's parts in its place. Errors: InvalidArgument naming a tensor that is missing or of another shape.
absl::Status split_expert_factors(const ModelConfig& config, const LoraConfig& lora, TensorFiles& files);
/// The other way round. REQUIRES: all parts are there.
WritePlan join_expert_factors(const ModelConfig& config, const LoraConfig& lora, WritePlan plan);

}  // namespace rondo::model
