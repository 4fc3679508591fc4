// What config.json calls dtypes, activations and kinds of rotary embedding.
#include "family.h"
#include "rondo/base/status.h"

namespace rondo::model {

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
    case Activation::kReluSquared:
      return "relu2";
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
    case RopeKind::kLongRope:
      return "longrope";
    case RopeKind::kProportional:
      return "proportional";
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
