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

}  // namespace

absl::StatusOr<TensorFiles> open_weights(const ModelConfig& config, const std::filesystem::path& folder) {
  RONDO_ASSIGN_OR_RETURN(TensorFiles files, TensorFiles::open_model(folder));
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
