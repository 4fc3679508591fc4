// The factors that an adapter's weights consist of.
#include <algorithm>

#include "rondo/base/status.h"
#include "rondo/model/expert_factors.h"
#include "tensor_check.h"

namespace rondo::model {

std::string adapter_tensor_name(const std::string& module, char factor) {
  return fmt::format("base_model.model.{}.lora_{}.weight", module, factor);
}

std::string magnitude_tensor_name(const std::string& module) {
  return fmt::format("base_model.model.{}.lora_magnitude_vector", module);
}

std::string saved_tensor_name(const std::string& name) { return "base_model.model." + name; }

std::vector<ParameterSpec> adapter_parameters(const ModelConfig& config, const LoraConfig& lora) {
  std::vector<ParameterSpec> out;
  for (const LinearModule& linear : linear_modules(config)) {
    if (!lora.adapts(linear)) continue;
    const std::uint64_t rank = lora.rank_of(linear.path);
    out.push_back({adapter_tensor_name(linear.path, 'A'), {rank, linear.in}, ParameterKind::kMatrix, linear.layer});
    for (const LinearModule& part : parts_or_self(linear)) {
      out.push_back({adapter_tensor_name(part.path, 'B'), {part.out, rank}, ParameterKind::kMatrix, part.layer});
      if (lora.use_dora) {
        out.push_back({magnitude_tensor_name(part.path), {part.out}, ParameterKind::kMatrix, part.layer});
      }
    }
  }
  for (const ExpertFactors& factors : expert_factors(config, lora)) {
    const std::uint32_t layer = factors.tensor.layer;
    out.push_back({factors.a, {factors.experts * factors.rank, factors.in}, ParameterKind::kMatrix, layer});
    for (const ExpertFactors::Part& part : factors.parts) {
      out.push_back({part.b, {factors.experts * part.out, factors.rank}, ParameterKind::kMatrix, layer});
    }
  }
  for (ParameterSpec& spec : model_parameters(config)) {
    const bool saved = (spec.name == "lm_head.weight" && lora.saves("lm_head")) ||
                       (spec.kind == ParameterKind::kEmbedding && lora.saves("embed_tokens"));
    if (!saved) continue;
    spec.name = saved_tensor_name(spec.name);
    out.push_back(std::move(spec));
  }
  return out;
}

absl::Status check_adapter_tensors(const ModelConfig& config, const LoraConfig& lora, const TensorFiles& files) {
  if (config.tie_word_embeddings && !lora.modules_to_save.empty()) {
    return invalid_input("{}: modules_to_save: {} of a model whose head is its embedding are not supported",
                         files.origin(), fmt::join(lora.modules_to_save, ", "));
  }
  return check_tensors(adapter_parameters(config, lora), files,
                       [&](const std::string& name) { return is_passed_over(config, name); });
}

}  // namespace rondo::model
