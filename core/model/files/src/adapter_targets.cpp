// What lora_target, target_parameters and patterns of ranks mean for a model.
#include "adapter_targets.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rondo/base/status.h"
#include "rondo/model/expert_factors.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

std::string trimmed(std::string_view word) {
  const auto first = word.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return std::string(word.substr(first, word.find_last_not_of(" \t") - first + 1));
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(trimmed(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return words;
}

/// What names of an MLP's layers mean where they mean experts.
class ExpertWords {
 public:
  explicit ExpertWords(const ModelConfig& model) {
    if (!names_mean_experts(model)) return;
    const ExpertNames names = expert_names(model);
    const std::string router = names.router;
    words_ = {router.substr(router.rfind('.') + 1), names.gate, names.up, names.down};
    linear_router_ = model.experts->has_linear_router();
  }
  const std::vector<std::string>& all() const { return words_; }
  void take_all() { taken_.insert(words_.begin(), words_.end()); }
  bool take(const std::string& word) {
    if (std::ranges::count(words_, word) == 0) return false;
    taken_.insert(word);
    return true;
  }

  /// Errors: one of gate and up, which are one tensor, without the other.
  absl::Status put(LoraConfig& lora) const {
    if (taken_.empty()) return absl::OkStatus();
    const auto has = [&](std::size_t i) { return taken_.contains(words_[i]); };
    if (has(1) != has(2)) {
      return invalid_input("lora_target: {} of experts has no adapter without {}: both are one tensor, give both",
                           words_[has(1) ? 1 : 2], words_[has(1) ? 2 : 1]);
    }
    if (has(0) && !linear_router_) lora.parameters.push_back(words_[0] + ".weight");
    if (has(1)) {
      lora.parameters.emplace_back(kInner);
      add_unless_named(lora.rank_pattern, 2 * lora.rank);
      add_unless_named(lora.alpha_pattern, 2 * lora.alpha);
    }
    if (has(3)) lora.parameters.emplace_back("down_proj");
    return absl::OkStatus();
  }

 private:
  static constexpr const char* kInner = "gate_up_proj";

  /// The user's own comes first, and a name stands in a file once.
  template <typename Value>
  static void add_unless_named(std::vector<std::pair<std::string, Value>>& patterns, Value value) {
    const bool named = std::ranges::any_of(patterns, [](const auto& one) { return one.first == kInner; });
    if (!named) patterns.emplace_back(kInner, value);
  }

  std::vector<std::string> words_;  // router, gate, up, down
  bool linear_router_ = false;      // its name is no tensor's
  std::set<std::string> taken_;
};

/// Of linear layers those that words mean: names, or ends of paths, by which PEFT tells modules of one name apart.
class ModuleWords {
 public:
  explicit ModuleWords(const ModelConfig& model) : linears_(linear_modules(model)) {
    std::set<std::string> had;
    for (const LinearModule& linear : linears_) had.insert(linear.name);
    std::ranges::copy_if(linear_module_names(), std::back_inserter(names_),
                         [&](const std::string& name) { return had.contains(name); });
  }
  const std::vector<std::string>& names() const { return names_; }
  void take_all() {
    for (const LinearModule& linear : linears_) taken_.insert(linear.path);
  }
  bool take(const std::string& word) {
    bool found = false;
    for (const LinearModule& linear : linears_) {
      if (!fits(word, linear.path)) continue;
      taken_.insert(linear.path);
      found = true;
    }
    return found;
  }

  /// Names where these say all, else paths. Errors: none of these is in the blocks that are adapted.
  absl::Status put(LoraConfig& lora) const {
    std::set<std::string> named;
    for (const LinearModule& linear : linears_) {
      if (taken_.contains(linear.path)) named.insert(linear.name);
    }
    std::ranges::copy_if(names_, std::back_inserter(lora.targets),
                         [&](const std::string& name) { return named.contains(name); });
    const auto left_out = [&](const LinearModule& linear) {
      return named.contains(linear.name) && !taken_.contains(linear.path);
    };
    if (std::ranges::none_of(linears_, left_out)) return absl::OkStatus();
    for (const LinearModule& linear : linears_) {
      const bool in_layers = lora.layers.empty() || std::ranges::count(lora.layers, linear.layer) > 0;
      if (in_layers && taken_.contains(linear.path)) lora.paths.insert(linear.path);
    }
    if (!lora.paths.empty()) return absl::OkStatus();
    return invalid_input("lora_target: {} are in no block of layers_to_transform ({})", fmt::join(taken_, ", "),
                         fmt::join(lora.layers, ", "));
  }

 private:
  std::vector<LinearModule> linears_;
  std::vector<std::string> names_;
  std::set<std::string> taken_;  // paths
};

}  // namespace

/// PEFT's layer for tensors knows less than the one for linear layers.
absl::Status check_parameters(const LoraConfig& lora, const std::string& example) {
  if (lora.parameters.empty()) return absl::OkStatus();
  const char* key = nullptr;
  if (lora.dropout > 0) key = "lora_dropout";
  if (lora.use_dora) key = "use_dora";
  if (!lora.layers.empty()) key = "layers_to_transform";
  if (key == nullptr) return absl::OkStatus();
  return invalid_input(
      "{}: adapters of experts ({}) have none, as in PEFT; leave it out, or name the linear layers that get adapters, "
      "such as {}",
      key, fmt::join(lora.parameters, ", "), example);
}

std::string attention_alone(const ModelConfig& model) {
  std::uint32_t block = 0;
  const auto has_another = [&] {
    return is_linear(model, block) || is_convolution(model, block) || space_replaces_attention(model, block) ||
           !has_attention(model, block);
  };
  while (block + 1 < model.num_layers && has_another()) ++block;
  std::vector<std::string> names;
  for (const LinearModule& linear : attention_linears(model, block)) names.push_back(linear.name);
  return fmt::format("lora_target: {}", fmt::join(names, ","));
}

absl::StatusOr<std::vector<std::pair<std::string, double>>> parse_pattern(const ModelConfig& model,
                                                                          const std::string& key,
                                                                          const std::string& text) {
  std::vector<std::pair<std::string, double>> entries;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = trimmed(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string name = trimmed(std::string_view(entry).substr(0, equals));
    const std::string number = equals < entry.size() ? trimmed(std::string_view(entry).substr(equals + 1)) : "";
    double value = 0;
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    const bool in_range = value > 0 && value <= 1e6;  // "nan" is a number to from_chars()
    if (error != std::errc() || stop != number.data() + number.size() || !in_range) {
      return invalid_input("{}: expected entries such as q_proj=16, found \"{}\"", key, entry);
    }
    const bool fits_module =
        std::ranges::any_of(linear_modules(model), [&](const LinearModule& linear) { return fits(name, linear.path); });
    const bool fits_tensor =
        std::ranges::any_of(expert_tensors(model), [&](const ExpertTensor& tensor) { return fits(name, tensor.path); });
    if (!fits_module && !fits_tensor) {
      return invalid_input(
          "{}: \"{}\" is no linear layer of {}; expected names such as q_proj or "
          "layers.0.mlp.up_proj",
          key, name, model.model_type);
    }
    if (std::ranges::any_of(entries, [&](const auto& earlier) { return earlier.first == name; })) {
      return invalid_input("{}: {}: given twice; leave one of them", key, name);
    }
    entries.emplace_back(name, value);
  }
  return entries;
}

absl::Status resolve_targets(const ModelConfig& model, const std::string& words, const std::string& parameters,
                             LoraConfig& lora) {
  ModuleWords of_modules(model);
  ExpertWords of_experts(model);
  for (const std::string& word : words_of(words)) {
    if (word == "all" || word == "all-linear") {
      of_modules.take_all();
      of_experts.take_all();
    } else if (!of_modules.take(word) && !of_experts.take(word) && (word != "none" || parameters.empty())) {
      std::vector<std::string> known = of_modules.names();
      std::ranges::copy_if(of_experts.all(), std::back_inserter(known),
                           [&](const std::string& name) { return std::ranges::count(known, name) == 0; });
      return invalid_input("lora_target: \"{}\" is no linear layer of {}; expected all or names out of {}", word,
                           model.model_type, fmt::join(known, ", "));
    }
  }
  RONDO_RETURN_IF_ERROR(of_modules.put(lora));
  RONDO_RETURN_IF_ERROR(of_experts.put(lora));
  if (parameters.empty()) return check_parameters(lora, attention_alone(model));
  const std::vector<ExpertTensor> tensors = expert_tensors(model);
  if (tensors.empty()) return invalid_input("target_parameters: {} has no experts; leave it out", model.model_type);
  for (const std::string& word : words_of(parameters)) {
    if (std::ranges::none_of(tensors, [&](const ExpertTensor& tensor) { return fits(word, tensor.path); })) {
      std::vector<std::string> possible;
      const std::string own = mixture_in_memory(model).module;
      const std::string module = own.empty() ? "experts." : own;
      for (const ExpertTensor& tensor : tensors) {
        if (tensor.layer == tensors.front().layer) possible.push_back(tensor.path.substr(tensor.path.find(module)));
      }
      return invalid_input("target_parameters: \"{}\" is no tensor of {}'s experts; expected names out of {}", word,
                           model.model_type, fmt::join(possible, ", "));
    }
    if (std::ranges::count(lora.parameters, word) == 0) lora.parameters.push_back(word);
  }
  return check_parameters(lora, attention_alone(model));
}

}  // namespace rondo::model
