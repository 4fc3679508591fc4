// The comparison of a model's weights with its files.
#include "tensor_check.h"

#include <algorithm>
#include <set>

#include "family.h"
#include "json_reader.h"
#include "rondo/base/status.h"

namespace rondo::model {
namespace {

constexpr std::size_t kNamed = 3;  // tensors that an error names; the others it counts

}  // namespace

absl::Status check_tensors(const std::vector<ParameterSpec>& expected, const TensorFiles& files,
                           const std::function<bool(const std::string&)>& tolerated) {
  const auto listing = [](const std::vector<std::string>& names) {
    const std::size_t shown = std::min(names.size(), kNamed);
    std::string text =
        fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
    if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
    return text;
  };
  std::set<std::string> known;
  std::vector<std::string> missing;
  std::vector<std::string> reshaped;
  for (const ParameterSpec& spec : expected) {
    known.insert(spec.name);
    const TensorView* view = files.find(spec.name);
    if (view == nullptr) {
      missing.push_back(spec.name);
    } else if (view->codes) {
      return invalid_input("{}: tensor {}: dtype: expected F32, BF16 or F16, found U8", view->file, spec.name);
    } else if (view->shape != spec.shape) {
      reshaped.push_back(fmt::format("{} (expected [{}], found [{}])", spec.name, fmt::join(spec.shape, ", "),
                                     fmt::join(view->shape, ", ")));
    }
  }
  std::vector<std::string> unexpected;
  for (const auto& [name, view] : files.tensors()) {
    if (!known.contains(name) && !tolerated(name)) unexpected.push_back(quoted_name(name));
  }
  if (!missing.empty()) {
    return invalid_input("{}: {} of {} tensors missing: {}{}", files.origin(), missing.size(), expected.size(),
                         listing(missing), unexpected.empty() ? "" : "; not expected: " + listing(unexpected));
  }
  if (!reshaped.empty()) {
    return invalid_input("{}: {} tensors of a shape that disagrees with the configuration: {}", files.origin(),
                         reshaped.size(), listing(reshaped));
  }
  if (!unexpected.empty()) {
    return invalid_input("{}: {} tensors that the configuration has no place for: {}", files.origin(),
                         unexpected.size(), listing(unexpected));
  }
  return absl::OkStatus();
}

bool has_own_head(const ModelConfig& config, const TensorFiles& files) {
  const TensorView* head = files.find("lm_head.weight");
  const TensorView* embedding = files.find(embedding_path(config) + ".weight");
  if (head == nullptr || embedding == nullptr || head->shape != embedding->shape) return false;
  return head->type != embedding->type || head->codes != embedding->codes ||
         !std::ranges::equal(head->data, embedding->data);
}

absl::Status check_model_tensors(const ModelConfig& config, const TensorFiles& files) {
  return check_tensors(model_parameters(config), files, [&](const std::string& name) {
    const FamilyTraits& traits = traits_of(config.family);
    const bool mask =
        traits.stores_masks && (name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias"));
    const bool head = name == "lm_head.weight" || name == traits.head_in_files + std::string(".weight");
    return mask || name.ends_with("rotary_emb.inv_freq") || (config.tie_word_embeddings && head) ||
           is_passed_over(config, name);
  });
}

}  // namespace rondo::model
