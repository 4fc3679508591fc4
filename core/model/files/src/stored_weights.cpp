// See stored_weights.h.
#include "rondo/model/stored_weights.h"

#include <utility>

#include "rondo/base/status.h"
#include "rondo/model/expert_factors.h"
#include "rondo/model/fused_linears.h"
#include "rondo/model/paired_rows.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stacked_experts.h"

namespace rondo::model {

namespace {

/// Of a tied model some files have the head alone: then it is the embedding.
void find_embedding(const ModelConfig& config, TensorFiles& files) {
  const std::string name = embedding_path(config) + ".weight";
  const TensorView* head = files.find("lm_head.weight");
  if (!config.tie_word_embeddings || head == nullptr || files.find(name) != nullptr) return;
  TensorView embedding = *head;
  embedding.name = name;
  files.erase("lm_head.weight");
  files.add(std::move(embedding));
}

/// Qwen2-VL and Qwen2.5-VL were published with the names that a text model's tensors have.
void find_text_part(const ModelConfig& config, TensorFiles& files) {
  if (!config.text_part || files.find(name_in_text_model(embedding_path(config) + ".weight")) == nullptr) return;
  const std::string prefix = name_in_text_model(std::string(kTextPartPrefix));
  std::vector<TensorView> moved;
  for (const auto& [name, tensor] : files.tensors()) {
    if (!name.starts_with(prefix) || name.starts_with(kTextPartPrefix) || is_passed_over(config, name)) continue;
    moved.push_back(tensor);
  }
  for (TensorView& tensor : moved) {
    files.erase(tensor.name);
    tensor.name = std::string(kTextPartPrefix) + tensor.name.substr(prefix.size());
    files.add(std::move(tensor));
  }
}

}  // namespace

absl::StatusOr<TensorFiles> open_weights(const ModelConfig& config, const std::filesystem::path& folder) {
  RONDO_ASSIGN_OR_RETURN(TensorFiles files, TensorFiles::open_model(folder));
  find_text_part(config, files);
  find_embedding(config, files);
  RONDO_RETURN_IF_ERROR(unstack_experts(config, files));
  RONDO_RETURN_IF_ERROR(split_tensors(joined_weights(config), files));
  part_pairs(paired_weights(config), files);
  return files;
}

absl::StatusOr<TensorFiles> open_factors(const ModelConfig& config, const LoraConfig& lora,
                                         const std::filesystem::path& file) {
  RONDO_ASSIGN_OR_RETURN(TensorFiles files, TensorFiles::open_file(file));
  RONDO_RETURN_IF_ERROR(split_tensors(joined_factors(config, lora), files));
  RONDO_RETURN_IF_ERROR(split_expert_factors(config, lora, files));
  part_pairs(paired_factors(config, lora), files);
  return files;
}

WritePlan stored_weights(const ModelConfig& config, WritePlan plan) {
  ModelConfig written = config;
  written.text_part = false;
  plan = pair_rows(paired_weights(written), stack_experts(written, std::move(plan)));
  return join_tensors(joined_weights(written), std::move(plan));
}

WritePlan stored_factors(const ModelConfig& config, const LoraConfig& lora, WritePlan plan) {
  plan = join_tensors(joined_factors(config, lora), pair_rows(paired_factors(config, lora), std::move(plan)));
  return join_expert_factors(config, lora, std::move(plan));
}

}  // namespace rondo::model
