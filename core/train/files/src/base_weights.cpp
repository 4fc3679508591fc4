#include "rondo/train/base_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "rondo/base/hash.h"
#include "rondo/model/parameters.h"

namespace rondo::train {
namespace {

/// Computed from a GGUF file's numbers by a logarithm, whose last bit may be another one elsewhere.
constexpr std::string_view kLogarithm = ".A_log";

/// All experts but the first. A block has hundreds, and some files scatter a matrix of one over all its pages.
bool is_further_expert(std::string_view name) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = name.find(kExperts);
  if (at == std::string_view::npos) return false;
  const std::string_view number = name.substr(at + kExperts.size());
  return !number.empty() && number.front() >= '0' && number.front() <= '9' && !number.starts_with("0.");
}

bool is_base(const model::Parameter& parameter) {
  const bool factor = parameter.kind == model::WeightKind::kLoraA || parameter.kind == model::WeightKind::kLoraB ||
                      parameter.kind == model::WeightKind::kMagnitude;
  return !factor && !parameter.of_adapter && !parameter.trained;
}

void add_numbers(const model::TensorView& tensor, std::vector<float>& numbers, ContentHash& hash) {
  const std::uint64_t elements = tensor.elements();
  const bool whole = elements <= kSampledStretches * kStretchNumbers;
  const std::uint64_t count = whole ? elements : kStretchNumbers;
  const std::uint64_t stretches = whole ? 1 : kSampledStretches;
  numbers.resize(count);
  for (std::uint64_t i = 0; i < stretches; ++i) {
    const std::uint64_t first = whole ? 0 : (elements - count) / (stretches - 1) * i;
    model::TensorFiles::read_as_float32(tensor, first, numbers);
    hash.add(std::as_bytes(std::span<const float>(numbers)));
  }
}

}  // namespace

std::string base_fingerprint(const model::Architecture& model, const model::TensorFiles& files) {
  ContentHash hash;
  std::vector<float> numbers;
  bool any = false;
  for (const model::Parameter& parameter : model.parameters()) {
    if (!is_base(parameter) || is_further_expert(parameter.name) || parameter.name.ends_with(kLogarithm)) continue;
    const model::TensorView* tensor = files.find(parameter.name);
    if (tensor == nullptr) continue;
    any = true;
    hash.add_text(model::name_in_text_model(parameter.name));
    hash.add_text(fmt::format("{}", fmt::join(parameter.shape, ",")));
    add_numbers(*tensor, numbers, hash);
    files.release(*tensor);
  }
  return any ? hash.hex() : std::string();
}

}  // namespace rondo::train
