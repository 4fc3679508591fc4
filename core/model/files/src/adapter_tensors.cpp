// The factors that an adapter's weights consist of.
#include <algorithm>

#include "rondo/base/status.h"
#include "tensor_check.h"

namespace rondo::model {

std::string adapter_tensor_name(const std::string& module, char factor) {
  return fmt::format("base_model.model.{}.lora_{}.weight", module, factor);
}

std::vector<ParameterSpec> adapter_parameters(const ModelConfig& config, const LoraConfig& lora) {
  std::vector<ParameterSpec> out;
  for (const LinearModule& linear : linear_modules(config)) {
    if (std::find(lora.targets.begin(), lora.targets.end(), linear.name) == lora.targets.end()) continue;
    out.push_back(
        {adapter_tensor_name(linear.path, 'A'), {lora.rank, linear.in}, ParameterKind::kMatrix, linear.layer});
    out.push_back(
        {adapter_tensor_name(linear.path, 'B'), {linear.out, lora.rank}, ParameterKind::kMatrix, linear.layer});
  }
  return out;
}

absl::Status check_adapter_tensors(const ModelConfig& config, const LoraConfig& lora, const TensorFiles& files) {
  return check_tensors(adapter_parameters(config, lora), files, [](const std::string&) { return false; });
}

}  // namespace rondo::model
