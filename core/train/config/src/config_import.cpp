// Reading another program's file, walking over its keys, writing ours.
#include "config_import.h"

#include <fmt/format.h>

#include <algorithm>

#include "config_keys.h"
#include "rondo/base/status.h"
#include "rondo/train/config_text.h"
#include "rondo/yaml/document.h"

namespace rondo::train {
namespace config {

std::string joined_text(const YAML::Node& node) {
  if (!node.IsDefined() || node.IsNull() || node.IsMap()) return {};
  if (node.IsScalar()) return node.Scalar();
  std::string text;
  for (const YAML::Node& element : node) {
    if (element.IsScalar()) text += (text.empty() ? "" : ",") + element.Scalar();
  }
  return text;
}

bool is_off(const std::string& text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  for (const char* word : {"", "false", "no", "off", "none", "null", "~", "0", "0.0"}) {
    if (lower == word) return true;
  }
  return false;
}

YAML::Node Import::given(const std::string& theirs) const {
  const YAML::Node root = root_;  // a const node's operator[] does not add
  return root[theirs];
}

bool Import::is_on(const std::string& theirs) const {
  const YAML::Node node = given(theirs);
  if (!node.IsDefined()) return false;
  return node.IsMap() ? node.size() > 0 : !is_off(joined_text(node));
}

std::string Import::text(const std::string& theirs) const {
  const YAML::Node node = given(theirs);
  return node.IsDefined() && node.IsScalar() ? node.Scalar() : std::string();
}

void Import::tell(const std::string& theirs, const char* outcome, std::string note) {
  int line = 0;
  for (const auto& entry : root_) {
    if (entry.first.IsScalar() && entry.first.Scalar() == theirs) line = entry.first.Mark().line + 1;
  }
  told_.push_back({printable(theirs), line, outcome, std::move(note)});
}

bool Import::take(const std::string& theirs, const std::string& ours, const std::string& value,
                  const std::string& why) {
  const Key* key = find_key(kTrain, ours);
  Config before = checked_;
  const absl::Status status =
      key == nullptr ? invalid_input("{}: unknown", ours) : set_value(*key, value, ours, checked_);
  if (!status.ok()) {
    checked_ = std::move(before);
    tell(theirs, "not understood", message_of(status));
    return false;
  }
  const std::string written = value_text(checked_, *key);
  const bool same = why.empty() && written == value;
  tell(theirs, same ? "taken" : "changed",
       fmt::format("{}: {}{}{}", key->name, printable(written), why.empty() ? "" : "; ", why));
  values_[key->name] = written;
  return true;
}

void Import::leave_out(const std::string& theirs, const std::string& why) { tell(theirs, "left out", why); }

void Import::refuse(const std::string& theirs, const std::string& why) { tell(theirs, "not understood", why); }

void Import::assume(const std::string& ours, const std::string& value, const std::string& why) {
  if (has(ours)) return;
  const Key* key = find_key(kTrain, ours);
  if (key == nullptr || !set_value(*key, value, ours, checked_).ok()) return;
  values_[key->name] = value_text(checked_, *key);
  told_.push_back({ours, 0, "changed", fmt::format("{}: {}; {}", ours, values_[key->name], why)});
}

namespace {

constexpr std::size_t kMostNesting = 64;

/// Deeper files are none that a person wrote.
bool too_deep(const YAML::Node& node, std::size_t depth) {
  if (depth > kMostNesting) return true;
  if (node.IsMap()) {
    return std::any_of(node.begin(), node.end(), [&](const auto& entry) { return too_deep(entry.second, depth + 1); });
  }
  return node.IsSequence() &&
         std::any_of(node.begin(), node.end(), [&](const YAML::Node& element) { return too_deep(element, depth + 1); });
}

const ImportRule* rule_for(const ImportTool& tool, const std::string& theirs) {
  for (const ImportRule& rule : tool.rules) {
    if (std::find(rule.theirs.begin(), rule.theirs.end(), theirs) != rule.theirs.end()) return &rule;
  }
  return nullptr;
}

void apply(Import& import, const std::string& theirs, const ImportRule& rule) {
  switch (rule.kind) {
    case ImportRule::Kind::kTake:
      if (joined_text(import.given(theirs)).empty()) return import.leave_out(theirs, "it is empty");
      import.take(theirs, rule.ours, joined_text(import.given(theirs)));
      return;
    case ImportRule::Kind::kLeaveOut:
      return import.leave_out(theirs, rule.why);
    case ImportRule::Kind::kRefuse:
      // A key that has come since: it means here what it means there.
      if (import.is_on(theirs) && find_key(kTrain, theirs) != nullptr) {
        import.take(theirs, theirs, joined_text(import.given(theirs)));
        return;
      }
      return import.is_on(theirs) ? import.refuse(theirs, rule.why) : import.leave_out(theirs, "it is off");
    case ImportRule::Kind::kBy:
      return rule.translate(import, theirs);
  }
}

/// "name=value" of every entry, with commas between them; empty where a value is no scalar.
std::string map_text(const YAML::Node& map) {
  std::string text;
  for (const auto& entry : map) {
    if (!entry.first.IsScalar() || !entry.second.IsScalar()) return {};
    text += (text.empty() ? "" : ",") + entry.first.Scalar() + "=" + entry.second.Scalar();
  }
  return text;
}

/// A key without a rule: ours when it has a name of ours.
void apply_unknown(Import& import, const std::string& theirs) {
  const Key* key = find_key(kTrain, normalised(theirs));
  const YAML::Node node = import.given(theirs);
  const std::string value = key != nullptr && key->map && node.IsMap() ? map_text(node) : joined_text(node);
  if (key != nullptr && !value.empty()) {
    import.take(theirs, key->name, value);
  } else if (is_off(value) && (!node.IsMap() || node.size() == 0)) {
    import.leave_out(theirs, "it is off");
  } else {
    import.refuse(theirs, "there is no such key here");
  }
}

/// How many of a program's marks the file has.
std::ptrdiff_t marks_of(const ImportTool& tool, const YAML::Node& root) {
  return std::count_if(tool.marks.begin(), tool.marks.end(),
                       [&root](const std::string& mark) { return root[mark].IsDefined(); });
}

absl::StatusOr<const ImportTool*> tool_of(const train::Config& config, const YAML::Node& root) {
  if (config.from == "axolotl") return &axolotl();
  if (config.from == "llamafactory") return &llama_factory();
  const auto first = marks_of(axolotl(), root);
  const auto second = marks_of(llama_factory(), root);
  if (first == second) {
    return invalid_input("{}: expected a configuration of Axolotl or LLaMA-Factory, found the marks of {}; give --from",
                         config.file, first == 0 ? "neither" : "both");
  }
  return first > second ? &axolotl() : &llama_factory();
}

/// The keys in the order of the table, those of the group below its name, as the resolved file has them.
std::string written(const Import& import, const ImportTool& tool) {
  std::string text = fmt::format("# From a configuration of {}, by `rondo import`.\n", tool.name);
  for (const Key& key : training_keys()) {
    const auto found = import.values().find(key.name);
    if (found == import.values().end()) continue;
    const bool is_text = std::holds_alternative<std::string train::Config::*>(key.member);
    text += fmt::format("{}: {}\n", key.name, is_text ? yaml_quoted(found->second) : found->second);
  }
  return text;
}

/// What the values lack together.
std::string missing_of(const Import& import) {
  train::Config config;
  Origins origins;
  for (const auto& [name, value] : import.values()) {
    const Key* key = find_key(kTrain, name);
    if (key == nullptr || !set_value(*key, value, name, config).ok()) return name;
    origins[name] = name;
  }
  return message_of(check_together("train", config, origins));
}

absl::StatusOr<ImportedConfig> translate(const train::Config& config, const YAML::Node& root) {
  if (!root.IsMap()) return invalid_input("{}: expected lines of `key: value`, found none", config.file);
  if (too_deep(root, 0)) return invalid_input("{}: expected at most {} levels, found more", config.file, kMostNesting);
  RONDO_ASSIGN_OR_RETURN(const ImportTool* tool, tool_of(config, root));
  Import import(root, config.file);
  std::map<std::string, int> lines;
  for (const auto& entry : root) {
    if (!entry.first.IsScalar()) {
      return invalid_input("{}:{}: expected `key: value`, found no plain key", config.file,
                           entry.first.Mark().line + 1);
    }
    const std::string theirs = entry.first.Scalar();
    const int line = entry.first.Mark().line + 1;
    const auto [earlier, is_new] = lines.emplace(theirs, line);
    if (!is_new) {
      return invalid_input("{}:{}: {}: given twice, first in line {}; leave one of them", config.file, line,
                           printable(theirs), earlier->second);
    }
    if (const ImportRule* rule = rule_for(*tool, theirs); rule != nullptr) {
      apply(import, theirs, *rule);
    } else {
      apply_unknown(import, theirs);
    }
  }
  tool->finish(import);
  ImportedConfig result;
  result.tool = tool->name;
  result.yaml = written(import, *tool);
  result.missing = missing_of(import);
  result.keys = std::move(import).told();
  return result;
}

/// Keys that programs have in common, and ours with them, are no proof of one.
constexpr std::ptrdiff_t kMarksOfOne = 3;

}  // namespace

std::string import_hint(const YAML::Node& root, const std::string& path, const std::string& theirs) {
  for (const ImportTool* tool : {&axolotl(), &llama_factory()}) {
    const ImportTool& other = tool == &axolotl() ? llama_factory() : axolotl();
    const std::ptrdiff_t marks = marks_of(*tool, root);
    if (marks < kMarksOfOne || marks <= marks_of(other, root) || rule_for(*tool, theirs) == nullptr) continue;
    return fmt::format("; `rondo import {}` translates a configuration of {}", path, tool->name);
  }
  return {};
}

}  // namespace config

absl::StatusOr<ImportedConfig> import_config(const Config& config) {
  return yaml::read_document(config.file,
                             [&config](const YAML::Node& root) { return config::translate(config, root); });
}

}  // namespace rondo::train
