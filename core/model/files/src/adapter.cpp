// adapter_config.json: what PEFT 0.21 writes is read, what it needs is written, and every option that would change
// the arithmetic is refused by name.
#include "rondo/model/adapter.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "adapter_targets.h"
#include "json_fields.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/model/parameters.h"
#include "rondo/model/safetensors.h"

namespace rondo::model {
namespace {

constexpr std::uint32_t kMaxRank = 1U << 16U;

/// Options of other tuning methods, or of LoRA by parts: null, false and empty are as good as absent.
constexpr std::array<const char*, 13> kUnsupported = {
    "lora_bias",     "fan_in_fan_out",          "layer_replication",       "megatron_config", "use_qalora",
    "use_bdlora",    "alora_invocation_tokens", "trainable_token_indices", "arrow_config",    "kasa_config",
    "velora_config", "monteclora_config",       "ensure_weight_tying"};
constexpr std::array<const char*, 2> kSavable = {"embed_tokens", "lm_head"};

bool is_off(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  return (value.is_object() || value.is_array() || value.is_string()) && value.empty();
}

void refuse_other_kinds(Fields& fields) {
  const std::string kind = fields.word("peft_type");
  if (fields.status().ok() && kind != "LORA") {
    fields.refuse("peft_type", fmt::format("adapters of kind {} are not supported; expected LORA", quoted_name(kind)));
  }
  const std::string task = fields.word("task_type", "CAUSAL_LM");
  if (task != "CAUSAL_LM") fields.expected("task_type", "CAUSAL_LM");
  for (const char* key : kUnsupported) {
    if (!is_off(fields.at(key))) {
      fields.refuse(
          key, fmt::format("is not supported; expected it to be absent or empty, found {}", excerpt(fields.at(key))));
    }
  }
  if (fields.word("bias", "none") != "none") fields.expected("bias", "\"none\" (trained biases are not supported)");
  // These initialisations move part of the base weights into the adapter, which then fits no other base.
  if (const Json& init = fields.at("init_lora_weights"); init.is_string()) {
    const auto name = init.get<std::string>();
    const bool keeps_base = name == "gaussian" || name == "orthogonal" || name == "eva";
    if (!keeps_base) {
      fields.refuse("init_lora_weights", fmt::format("{} changes the base weights, which is not supported; convert the "
                                                     "adapter to plain LoRA with PEFT",
                                                     quoted_name(name)));
    }
  }
}

/// What format_adapter_config() writes, and wrote before there were models whose pictures' part has that name.
bool is_of_pictures(const Json& value) {
  return value == kPicturesExcluded || value == ".*(vision_tower|multi_modal_projector).*";
}

/// Empty or what format_adapter_config() writes. `paths_known`: others have told what is left.
std::string parse_excluded(Fields& fields, bool paths_known) {
  const Json& value = fields.at("exclude_modules");
  if (is_off(value)) return "";
  if (!is_of_pictures(value)) {
    if (paths_known) return "";
    fields.expected("exclude_modules", fmt::format("null or \"{}\"", kPicturesExcluded));
  }
  return kPicturesExcluded;
}

/// One entry of target_modules: a module of every layer, or of one.
struct Target {
  std::string name;
  std::string module;  // "self_attn." ...
  std::optional<std::uint32_t> layer;
};

/// [["model." ["language_model."] | "gpt_neox."] "layers." N "."] ["self_attn." | "attention." | "linear_attn." |
/// "conv." | "mamba." | "feed_forward." | ["mixer." | "mlp."] ["shared_expert." | "shared_experts." | "shared_mlp." |
/// "gate."] | "router."] name, as PEFT matches the ends of paths.
Target split_target(std::string_view text) {
  Target target;
  const auto skip = [&](std::string_view start) {
    if (!text.starts_with(start)) return false;
    text.remove_prefix(start.size());
    return true;
  };
  if (skip("model.")) skip("language_model.");
  skip("gpt_neox.");
  if (skip("layers.")) {
    std::uint32_t layer = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
    if (error != std::errc() || end == text.data() + text.size() || *end != '.') return {};
    target.layer = layer;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  }
  for (const char* module : {"self_attn.", "attention.", "linear_attn.", "conv.", "mamba.", "feed_forward.", "mixer.",
                             "mlp.", "shared_expert.", "shared_experts.", "shared_mlp.", "gate.", "router."}) {
    if (skip(module)) target.module = module;
  }
  target.name = text;
  return target;
}

/// PEFT spells "all-linear" out, layer by layer, for small models. Such lists stand for their names when each layer
/// from 0 on is there, and names of one module for the same layers; whether these are all of the model's shows in its
/// tensors.
bool covers_layers(const std::vector<Target>& targets) {
  std::map<std::string, std::map<std::string, std::set<std::uint32_t>>> layers_of;  // by module and name
  std::set<std::uint32_t> all;
  for (const Target& target : targets) {
    if (!target.layer) continue;
    layers_of[target.module][target.name].insert(*target.layer);
    all.insert(*target.layer);
  }
  if (!all.empty() && *all.rbegin() + 1 != all.size()) return false;
  return std::ranges::all_of(layers_of, [](const auto& module) {
    const auto& names = module.second;
    return std::ranges::all_of(names, [&](const auto& entry) { return entry.second == names.begin()->second; });
  });
}

bool is_module(const std::string& name) { return std::ranges::count(linear_module_names(), name) > 0; }

/// The modules that have factors in `file`; none where there is no file, which those miss who read the factors.
absl::StatusOr<std::set<std::string>> paths_in(const std::filesystem::path& file) {
  constexpr std::string_view kBegin = "base_model.model.";
  constexpr std::string_view kEnd = ".lora_A.weight";
  std::set<std::string> paths;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return paths;
  RONDO_ASSIGN_OR_RETURN(const TensorFiles files, TensorFiles::open_file(file));
  for (const auto& [name, tensor] : files.tensors()) {
    if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) continue;
    const std::string path = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
    const Target target = split_target(path);
    if (target.layer && is_module(target.name)) paths.insert(path);
  }
  return paths;
}

/// PEFT takes names of modules, ends of their paths and regular expressions; only names say all without the file.
bool names_alone(const Fields& fields) {
  const Json& value = fields.at("target_modules");
  const bool names = value == "all-linear" || !(value.is_array() || value.is_string()) ||
                     (value.is_array() && std::ranges::all_of(value, [](const Json& one) {
                        return one.is_string() && is_module(one.get<std::string>());
                      }));
  const Json& excluded = fields.at("exclude_modules");
  return names && (is_off(excluded) || is_of_pictures(excluded));
}

/// The names in the model's order, which makes equal adapters equal: PEFT keeps a set and writes it in any order.
std::vector<std::string> in_order(const std::set<std::string>& names) {
  std::vector<std::string> targets;
  std::ranges::copy_if(linear_module_names(), std::back_inserter(targets),
                       [&](const std::string& name) { return names.contains(name); });
  return targets;
}

/// `paths`: paths_in() where names alone do not say all.
std::vector<std::string> parse_targets(Fields& fields, const std::set<std::string>& paths) {
  const Json& value = fields.at("target_modules");
  const auto& known = linear_module_names();
  const bool pattern = value.is_string() && value != "all-linear" && !value.empty();
  if (!paths.empty() && (pattern || value == "all-linear")) {
    std::set<std::string> named;
    for (const std::string& path : paths) named.insert(split_target(path).name);
    return in_order(named);
  }
  if (value == "all-linear") return known;
  if (is_off(value) && !is_off(fields.at("target_parameters"))) return {};
  if (!value.is_array() || value.empty()) {
    fields.expected("target_modules", "a list of module names or \"all-linear\"");
    return {};
  }
  const bool all_there =
      !paths.empty() && is_off(fields.at("exclude_modules")) && is_off(fields.at("layers_to_transform"));
  std::set<std::string> named;
  std::vector<Target> read;
  for (const Json& element : value) {
    const std::string end = element.is_string() ? element.get<std::string>() : "";
    Target target = split_target(end);
    const auto has_end = [&](const std::string& path) { return fits(end, path); };
    const auto found = std::ranges::find_if(paths, has_end);
    if (!is_module(target.name)) {
      // PEFT's all-linear also has ends such as 1.mlp.up_proj, and modules for pictures that it then passed over.
      if (found != paths.end() || (!paths.empty() && !is_off(fields.at("exclude_modules")) && !end.empty())) {
        std::ranges::for_each(paths, [&](const std::string& path) {
          if (has_end(path)) named.insert(split_target(path).name);
        });
        continue;
      }
      fields.refuse("target_modules",
                    fmt::format("expected names out of {}, found {}", fmt::join(known, ", "), excerpt(element)));
      return {};
    }
    if (all_there && found == paths.end()) {
      fields.refuse("target_modules", fmt::format("{} has no factors in adapter_model.safetensors", excerpt(element)));
    }
    named.insert(target.name);
    read.push_back(std::move(target));
  }
  if (paths.empty() && !covers_layers(read)) {
    fields.refuse("target_modules", "adapters of single layers are not supported; expected every layer for each name");
  }
  return in_order(named);
}

/// PEFT matches patterns as regular expressions against the ends of paths: plain names mean themselves.
bool is_plain(std::string_view pattern) {
  return !pattern.empty() && std::ranges::all_of(pattern, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

template <typename Value>
const Value* first_fit(const std::vector<std::pair<std::string, Value>>& patterns, const std::string& module) {
  for (const auto& [pattern, value] : patterns) {
    if (fits(pattern, module)) return &value;
  }
  return nullptr;
}

/// A regular expression that PEFT writes for tensors of experts, as the plain name that means the same; others as they
/// are.
std::string plain_pattern(const std::string& pattern) {
  constexpr std::string_view kAnyPath = ".*\\.";
  return pattern.starts_with(kAnyPath) ? pattern.substr(kAnyPath.size()) : pattern;
}

/// `ordered`: the same document in the file's order, on which it depends which of two patterns is first.
template <typename Value>
std::vector<std::pair<std::string, Value>> parse_patterns(Fields& fields, const OrderedJson& ordered, const char* key,
                                                          double low, double high) {
  std::vector<std::pair<std::string, Value>> patterns;
  if (!fields.has(key)) return patterns;
  if (!fields.at(key).is_object()) {
    fields.expected(key, "an object of module names and numbers");
    return patterns;
  }
  for (const auto& [written, value] : ordered[key].items()) {
    const std::string pattern = plain_pattern(written);
    const bool right = std::is_integral_v<Value> ? value.is_number_integer() : value.is_number();
    if (!is_plain(pattern)) {
      fields.refuse(key, fmt::format("expected plain module names, found {}; regular expressions are not supported",
                                     quoted_name(written)));
    } else if (!right || value.template get<double>() < low || value.template get<double>() > high) {
      fields.refuse(key, fmt::format("{}: expected a number from {} to {}", quoted_name(pattern), low, high));
    } else {
      patterns.emplace_back(pattern, value.template get<Value>());
    }
  }
  return patterns;
}

std::vector<std::uint32_t> parse_layers(Fields& fields) {
  const Json& value = fields.at("layers_to_transform");
  if (value.is_null() || (value.is_array() && value.empty())) return {};
  const Json& pattern = fields.at("layers_pattern");
  const bool usual = is_off(pattern) || pattern == "layers" || pattern == Json::array({"layers"});
  if (!usual) fields.expected("layers_pattern", "null or \"layers\"");
  std::set<std::uint32_t> layers;
  for (const Json& one : value.is_array() ? value : Json::array({value})) {
    if (!one.is_number_unsigned() || one.get<std::uint64_t>() > kMaxRank) {
      fields.expected("layers_to_transform", "numbers of blocks");
      return {};
    }
    layers.insert(one.get<std::uint32_t>());
  }
  return {layers.begin(), layers.end()};
}

std::vector<std::string> parse_saved(Fields& fields) {
  const Json& value = fields.at("modules_to_save");
  if (is_off(value)) return {};
  std::vector<std::string> saved;
  for (const Json& one : value.is_array() ? value : Json::array({value})) {
    if (!one.is_string() || std::ranges::none_of(kSavable, [&](const char* name) { return one == name; })) {
      fields.refuse("modules_to_save",
                    fmt::format("expected names out of {}, found {}", fmt::join(kSavable, ", "), excerpt(one)));
      return {};
    }
    saved.push_back(one.get<std::string>());
  }
  return saved;
}

std::vector<std::string> parse_parameters(Fields& fields) {
  const Json& value = fields.at("target_parameters");
  if (is_off(value)) return {};
  std::vector<std::string> names;
  for (const Json& one : value.is_array() ? value : Json::array({value})) {
    if (!one.is_string() || !is_plain(one.get_ref<const std::string&>())) {
      fields.expected("target_parameters", "a list of names such as mlp.experts.down_proj");
      return {};
    }
    names.push_back(one.get<std::string>());
  }
  std::ranges::sort(names);  // PEFT keeps a set
  return names;
}

}  // namespace

bool LoraConfig::adapts_tensor(const std::string& path) const {
  return std::ranges::any_of(parameters, [&](const std::string& name) { return fits(name, path); });
}

bool LoraConfig::adapts(const LinearModule& module) const {
  if (!paths.empty()) return paths.contains(module.path);
  return std::ranges::count(targets, module.name) > 0 &&
         (layers.empty() || std::ranges::count(layers, module.layer) > 0);
}

std::uint32_t LoraConfig::rank_of(const std::string& module) const {
  const std::uint32_t* other = first_fit(rank_pattern, module);
  return other != nullptr ? *other : rank;
}

double LoraConfig::alpha_of(const std::string& module) const {
  const double* other = first_fit(alpha_pattern, module);
  return other != nullptr ? *other : alpha;
}

double LoraConfig::scale_of(const std::string& module) const {
  const double divisor = static_cast<double>(rank_of(module));
  return alpha_of(module) / (use_rslora ? std::sqrt(divisor) : divisor);
}

bool LoraConfig::saves(const std::string& module) const { return std::ranges::count(modules_to_save, module) > 0; }

absl::StatusOr<LoraConfig> load_adapter_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "adapter_config.json";
  std::error_code ignored;
  if (std::filesystem::is_regular_file(folder, ignored)) {
    return invalid_input("{}: is a file, expected the directory of an adapter in PEFT's layout", folder.string());
  }
  if (!std::filesystem::exists(path, ignored)) {
    return invalid_input("{}: expected the directory of an adapter in PEFT's layout, found no {}", folder.string(),
                         std::filesystem::exists(folder, ignored) ? "adapter_config.json in it" : "such directory");
  }
  if (!std::filesystem::exists(folder / "adapter_model.safetensors", ignored) &&
      std::filesystem::exists(folder / "adapter_model.bin", ignored)) {
    return invalid_input(
        "{}: expected adapter_model.safetensors, found adapter_model.bin; PEFT's save_pretrained "
        "writes the one from the other",
        folder.string());
  }
  RONDO_ASSIGN_OR_RETURN(const Json document, read_json_file(path, kMaxConfigBytes));
  if (!document.is_object()) {
    return invalid_input("{}: expected an object, found {}", path.string(), excerpt(document));
  }
  Fields fields(document, path.string());
  refuse_other_kinds(fields);
  LoraConfig config;
  config.rank = fields.integer("r", 1, kMaxRank);
  config.alpha = fields.number("lora_alpha", {1e-9, 1e9});
  config.dropout = fields.number("lora_dropout", {0.0, 1.0}, 0.0);
  config.use_rslora = fields.flag("use_rslora", false);
  config.use_dora = fields.flag("use_dora", false);
  if (!names_alone(fields)) {
    RONDO_ASSIGN_OR_RETURN(config.paths, paths_in(folder / "adapter_model.safetensors"));
  }
  config.targets = parse_targets(fields, config.paths);
  config.parameters = parse_parameters(fields);
  config.exclude_modules = parse_excluded(fields, !config.paths.empty());
  RONDO_ASSIGN_OR_RETURN(const std::string text, read_file(path.string()));
  const OrderedJson ordered = OrderedJson::parse(text, nullptr, false);
  config.rank_pattern = parse_patterns<std::uint32_t>(fields, ordered, "rank_pattern", 1, kMaxRank);
  config.alpha_pattern = parse_patterns<double>(fields, ordered, "alpha_pattern", 1e-9, 1e9);
  config.layers = parse_layers(fields);
  if (!config.paths.empty()) config.layers.clear();  // the paths are of these alone
  config.modules_to_save = parse_saved(fields);
  config.base_model = fields.word("base_model_name_or_path", "");
  if (config.dropout >= 1.0) fields.expected("lora_dropout", "less than 1");
  RONDO_RETURN_IF_ERROR(fields.status());
  const absl::Status known = check_parameters(config, "lora_target: q_proj,k_proj,v_proj,o_proj");
  if (!known.ok()) return invalid_input("{}: {}", path.string(), std::string(known.message()));
  return config;
}

namespace {

/// PEFT declares an integer; a fraction is written only when it is one.
OrderedJson alpha_number(double alpha) {
  constexpr double kExactIntegers = 9e15;
  const bool whole = std::floor(alpha) == alpha && std::abs(alpha) < kExactIntegers;
  return whole ? OrderedJson(static_cast<std::int64_t>(alpha)) : OrderedJson(alpha);
}

}  // namespace

std::string format_adapter_config(const LoraConfig& config) {
  OrderedJson out;
  out["peft_type"] = "LORA";
  out["task_type"] = "CAUSAL_LM";
  out["base_model_name_or_path"] = config.base_model.empty() ? OrderedJson(nullptr) : OrderedJson(config.base_model);
  out["inference_mode"] = true;
  out["r"] = config.rank;
  out["lora_alpha"] = alpha_number(config.alpha);
  out["lora_dropout"] = config.dropout;
  out["target_modules"] = config.paths.empty() ? OrderedJson(config.targets) : OrderedJson(config.paths);
  out["target_parameters"] = config.parameters.empty() ? OrderedJson(nullptr) : OrderedJson(config.parameters);
  out["exclude_modules"] = config.exclude_modules.empty() ? OrderedJson(nullptr) : OrderedJson(config.exclude_modules);
  out["use_rslora"] = config.use_rslora;
  out["use_dora"] = config.use_dora;
  out["bias"] = "none";
  out["fan_in_fan_out"] = false;
  out["init_lora_weights"] = true;
  out["modules_to_save"] = config.modules_to_save.empty() ? OrderedJson(nullptr) : OrderedJson(config.modules_to_save);
  out["layers_to_transform"] = config.layers.empty() ? OrderedJson(nullptr) : OrderedJson(config.layers);
  out["layers_pattern"] = nullptr;
  out["rank_pattern"] = OrderedJson::object();
  for (const auto& [pattern, rank] : config.rank_pattern) out["rank_pattern"][pattern] = rank;
  out["alpha_pattern"] = OrderedJson::object();
  for (const auto& [pattern, alpha] : config.alpha_pattern) out["alpha_pattern"][pattern] = alpha_number(alpha);
  out["revision"] = nullptr;
  return to_text(out);
}

}  // namespace rondo::model
