// Values of the configuration classes of transformers 5.23.
#include "family.h"

#include <array>

#include "rondo/base/status.h"

namespace rondo::model {
namespace {

constexpr std::array<FamilyTraits, 4> kFamilies = {{
    {Family::kLlama, "llama", "LlamaForCausalLM", 0, 0, 2048, 1, 2, false, true, true, false},
    {Family::kMistral, "mistral", "MistralForCausalLM", 8, 0, 131072, 1, 2, false, false, false, false},
    {Family::kQwen2, "qwen2", "Qwen2ForCausalLM", 32, 0, 32768, std::nullopt, std::nullopt, true, false, false, true},
    {Family::kQwen3, "qwen3", "Qwen3ForCausalLM", 32, 128, 32768, std::nullopt, std::nullopt, false, true, false, true},
}};

}  // namespace

std::span<const FamilyTraits> all_families() { return kFamilies; }

const FamilyTraits& traits_of(Family family) {
  for (const FamilyTraits& traits : kFamilies) {
    if (traits.family == family) return traits;
  }
  return kFamilies.front();
}

const FamilyTraits* find_family(std::string_view model_type) {
  for (const FamilyTraits& traits : kFamilies) {
    if (traits.model_type == model_type) return &traits;
  }
  return nullptr;
}

std::string family_names() {
  std::string names;
  for (const FamilyTraits& traits : kFamilies) {
    if (!names.empty()) names += ", ";
    names += traits.model_type;
  }
  return names;
}

std::string_view weight_type_name(WeightType type) {
  switch (type) {
    case WeightType::kFloat32:
      return "float32";
    case WeightType::kBfloat16:
      return "bfloat16";
    case WeightType::kFloat16:
      return "float16";
  }
  return "";
}

std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGelu:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu_pytorch_tanh";
  }
  return "";
}

std::string_view rope_kind_name(RopeKind kind) {
  switch (kind) {
    case RopeKind::kDefault:
      return "default";
    case RopeKind::kLinear:
      return "linear";
    case RopeKind::kDynamic:
      return "dynamic";
    case RopeKind::kYarn:
      return "yarn";
    case RopeKind::kLlama3:
      return "llama3";
  }
  return "";
}

std::size_t weight_type_size(WeightType type) { return type == WeightType::kFloat32 ? 4 : 2; }

absl::StatusOr<WeightType> parse_weight_type(std::string_view word) {
  if (word == "float32" || word == "fp32" || word == "f32") return WeightType::kFloat32;
  if (word == "bfloat16" || word == "bf16") return WeightType::kBfloat16;
  if (word == "float16" || word == "fp16" || word == "f16") return WeightType::kFloat16;
  return invalid_input("expected float32, bfloat16 or float16 (fp32, bf16, fp16), found \"{}\"", word);
}

}  // namespace rondo::model
