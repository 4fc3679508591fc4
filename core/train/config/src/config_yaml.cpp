// A YAML file of keys: one map from keys to scalars or lists of scalars.
//
// `key: null`, or ~, is a key that is not given, as the tools mean it whose files name every key that they know. A key
// with nothing behind it is null to YAML too, but more often a line that was never finished: it is refused.
#include <algorithm>
#include <string_view>

#include "config_import.h"
#include "config_keys.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/base/text.h"
#include "rondo/train/config_text.h"
#include "rondo/yaml/document.h"

namespace rondo::train::config {
namespace {

struct Reader {
  const YAML::Node& root;
  const std::string& verb;
  const std::string& path;
  Config& config;
  Origins& origins;
};

const char* kind_of(const YAML::Node& node) {
  if (node.IsMap()) return "a map; nested keys are not read, write each as a line of its own";
  if (node.IsSequence()) return "a list";
  return "nothing";
}

/// "name=value" of every entry, with commas between them.
absl::StatusOr<std::string> text_of_map(const YAML::Node& map, const std::string& origin) {
  std::string joined;
  for (const auto& entry : map) {
    if (!entry.first.IsScalar() || !entry.second.IsScalar()) {
      return invalid_input("{}: expected a map of names and values, found {} in it", origin,
                           kind_of(entry.first.IsScalar() ? entry.second : entry.first));
    }
    if (!joined.empty()) joined += ',';
    joined += entry.first.Scalar() + "=" + entry.second.Scalar();
  }
  return joined;
}

/// A scalar's text, or a list's elements with commas between them.
absl::StatusOr<std::string> text_of(const Key& key, const YAML::Node& value, const std::string& origin) {
  if (value.IsScalar()) return value.Scalar();
  if (value.IsMap() && key.map) return text_of_map(value, origin);
  const bool is_text = std::holds_alternative<std::string Config::*>(key.member);
  if (value.IsNull() && is_text) return std::string();
  if (!value.IsSequence() || !key.list) {
    return invalid_input("{}: expected {}, found {}", origin, expectation(key), kind_of(value));
  }
  std::string joined;
  for (const YAML::Node& element : value) {
    if (!element.IsScalar()) {
      return invalid_input("{}: expected a list of names, found in it {}", origin, kind_of(element));
    }
    if (element.Scalar().find(',') != std::string::npos || trimmed(element.Scalar()).empty()) {
      return invalid_input("{}: expected one name an element, found {}", origin, in_quotes(element.Scalar()));
    }
    if (!joined.empty()) joined += ',';
    joined += element.Scalar();
  }
  return joined;
}

/// Whether a null is written where it is read from; of an empty value the parser says where the next thing stands.
absl::StatusOr<bool> is_written(const YAML::Node& null, const std::string& path) {
  RONDO_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::size_t begin = 0;
  for (int line = 0; line < null.Mark().line; ++line) begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
  begin += static_cast<std::size_t>(std::max(null.Mark().column, 0));
  const std::string_view rest = std::string_view(text).substr(std::min(begin, text.size()));
  return rest.starts_with("null") || rest.starts_with("Null") || rest.starts_with("NULL") || rest.starts_with('~');
}

absl::Status read_entry(const Reader& reader, const YAML::Node& key_node, const YAML::Node& value) {
  const int line = std::max(key_node.Mark().line, 0) + 1;
  if (!key_node.IsScalar()) {
    return invalid_input("{}:{}: expected `key: value`, found {} as a key", reader.path, line, kind_of(key_node));
  }
  const std::string spelled = normalised(key_node.Scalar());
  const std::string origin = fmt::format("{}:{}: {}", reader.path, line, printable(key_node.Scalar()));
  const Key* key = find_key(verb_bit(reader.verb), spelled);
  if (key == nullptr) {
    const absl::Status unknown = unknown_key(reader.verb, origin, spelled);
    return invalid_input("{}{}", message_of(unknown), import_hint(reader.root, reader.path, key_node.Scalar()));
  }
  const auto [earlier, is_new] = reader.origins.emplace(key->name, origin);
  if (!is_new) {
    return invalid_input("{}: given twice, first at {}; leave one of them", origin, earlier->second);
  }
  if (value.IsNull()) {
    RONDO_ASSIGN_OR_RETURN(const bool written, is_written(value, reader.path));
    if (written) return absl::OkStatus();
  }
  RONDO_ASSIGN_OR_RETURN(const std::string text, text_of(*key, value, origin));
  return set_value(*key, text, origin, reader.config);
}

}  // namespace

absl::Status read_yaml(const std::string& verb, const std::string& path, Config& config, Origins& origins) {
  return yaml::read_document(path, [&](const YAML::Node& root) -> absl::Status {
    if (!root.IsMap()) {
      const char* found = root.IsSequence() ? "a list" : root.IsScalar() ? "text" : "nothing";
      return invalid_input("{}:{}: expected lines of `key: value`, found {}", path, std::max(root.Mark().line, 0) + 1,
                           found);
    }
    for (const auto& entry : root) {
      RONDO_RETURN_IF_ERROR(read_entry({root, verb, path, config, origins}, entry.first, entry.second));
    }
    return absl::OkStatus();
  });
}

}  // namespace rondo::train::config
