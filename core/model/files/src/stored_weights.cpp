// See stored_weights.h.
#include "rondo/model/stored_weights.h"

#include <utility>

#include "family.h"
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

/// What the names in files begin with in the place of name_prefix(); empty: nothing else. Qwen2-VL and Qwen2.5-VL were
/// published with the names that a text model's tensors have.
std::string other_prefix(const ModelConfig& config, const TensorFiles& files) {
  if (const char* stored = traits_of(config.family).prefix_in_files; stored != nullptr) return stored;
  const std::string text = name_in_text_model(std::string(kTextPartPrefix));
  const bool has_text = files.find(name_in_text_model(embedding_path(config) + ".weight")) != nullptr;
  return config.text_part && has_text ? text : "";
}

/// Such names begin as those of model_parameters() do, which some files have.
void rename_tensors(const ModelConfig& config, TensorFiles& files) {
  const std::string stored = other_prefix(config, files);
  const std::string own = name_prefix(config);
  if (stored.empty()) return;
  std::vector<TensorView> found;
  for (const auto& [name, view] : files.tensors()) {
    if (!name.starts_with(stored) || name.starts_with(own) || is_passed_over(config, name)) continue;
    found.push_back(view);
  }
  for (TensorView& view : found) {
    const std::string name = own + view.name.substr(stored.size());
    if (files.find(name) != nullptr) continue;  // and this one is unexpected
    files.erase(view.name);
    view.name = name;
    files.add(std::move(view));
  }
}

WritePlan renamed(const ModelConfig& config, WritePlan plan) {
  const FamilyTraits& traits = traits_of(config.family);
  if (traits.prefix_in_files == nullptr) return plan;
  const std::string_view own = traits.prefix;
  for (TensorToWrite& tensor : plan.tensors) {
    if (tensor.name.starts_with(own)) tensor.name = traits.prefix_in_files + tensor.name.substr(own.size());
  }
  return plan;
}

}  // namespace

absl::StatusOr<TensorFiles> open_weights(const ModelConfig& config, const std::filesystem::path& folder) {
  RONDO_ASSIGN_OR_RETURN(TensorFiles files, TensorFiles::open_model(folder));
  rename_tensors(config, files);
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
  return renamed(written, join_tensors(joined_weights(written), std::move(plan)));
}

WritePlan stored_factors(const ModelConfig& config, const LoraConfig& lora, WritePlan plan) {
  plan = join_tensors(joined_factors(config, lora), pair_rows(paired_factors(config, lora), std::move(plan)));
  return join_expert_factors(config, lora, std::move(plan));
}

}  // namespace rondo::model
