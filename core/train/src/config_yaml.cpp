// A YAML file of keys: one map from keys to scalars or lists of scalars.
//
// yaml-cpp reports by exceptions; none leaves this file.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>

#include "config_keys.h"
#include "config_text.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/base/utf8.h"

namespace rondo::train::config {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

struct Reader {
  const std::string& verb;
  const std::string& path;
  Config& config;
  Origins& origins;
};

}  // namespace

absl::Status check_yaml_bytes(const std::string& path, const std::string& text) {
  if (text.size() > kMostBytes) {
    return invalid_input("{}: expected a configuration of at most {} bytes, found {}", path, kMostBytes, text.size());
  }
  std::size_t line = 1;
  std::size_t begin = 0;
  bool blank = true;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view content(text.data() + begin, end - begin);
    const bool control = std::any_of(content.begin(), content.end(), [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return (byte < 0x20 && byte != '\t' && byte != '\r') || byte == 0x7f;
    });
    if (control || !is_utf8(content)) {
      return invalid_input("{}:{}: expected UTF-8 text, found other bytes; is this a configuration file?", path, line);
    }
    const std::string_view visible = trimmed(content);
    const std::size_t indent = content.find_first_not_of(' ');
    if (!visible.empty() && visible[0] != '#' && content[indent] == '\t') {
      return invalid_input("{}:{}: expected spaces before a key, found a tab; replace it by spaces", path, line);
    }
    blank = blank && (visible.empty() || visible[0] == '#' || visible == "\r" || visible == "---");
    begin = end + 1;
    ++line;
  }
  if (blank) return invalid_input("{}: expected lines of `key: value`, found none", path);
  return absl::OkStatus();
}

namespace {

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

absl::Status read_entry(const Reader& reader, const YAML::Node& key_node, const YAML::Node& value) {
  const int line = std::max(key_node.Mark().line, 0) + 1;
  if (!key_node.IsScalar()) {
    return invalid_input("{}:{}: expected `key: value`, found {} as a key", reader.path, line, kind_of(key_node));
  }
  const std::string spelled = normalised(key_node.Scalar());
  const std::string origin = fmt::format("{}:{}: {}", reader.path, line, printable(key_node.Scalar()));
  const Key* key = find_key(verb_bit(reader.verb), spelled);
  if (key == nullptr) return unknown_key(reader.verb, origin, spelled);
  const auto [earlier, is_new] = reader.origins.emplace(key->name, origin);
  if (!is_new) {
    return invalid_input("{}: given twice, first at {}; leave one of them", origin, earlier->second);
  }
  RONDO_ASSIGN_OR_RETURN(const std::string text, text_of(*key, value, origin));
  return set_value(*key, text, origin, reader.config);
}

/// Takes a parser's events for nothing.
class Ignorer : public YAML::EventHandler {
  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}
};

/// Whether anything follows the first document. YAML::LoadAll would tell, but takes what it cannot place (a comma
/// before the first key) for documents without end; YAML::Load drops everything after the first.
bool has_second_document(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Ignorer ignorer;
  return parser.HandleNextDocument(ignorer) && parser.HandleNextDocument(ignorer);
}

absl::Status read_document(const Reader& reader, const std::string& text) {
  if (has_second_document(text)) {
    return invalid_input(
        "{}: expected one YAML document, found more; is a line indented unlike the others, or a `---` among them?",
        reader.path);
  }
  const YAML::Node root = YAML::Load(text);
  if (!root.IsMap()) {
    const char* found = root.IsSequence() ? "a list" : root.IsScalar() ? "text" : "nothing";
    return invalid_input("{}:{}: expected lines of `key: value`, found {}", reader.path,
                         std::max(root.Mark().line, 0) + 1, found);
  }
  for (const auto& entry : root) RONDO_RETURN_IF_ERROR(read_entry(reader, entry.first, entry.second));
  return absl::OkStatus();
}

}  // namespace

absl::Status read_yaml(const std::string& verb, const std::string& path, Config& config, Origins& origins) {
  RONDO_ASSIGN_OR_RETURN(std::string text, read_file(path));
  RONDO_RETURN_IF_ERROR(check_yaml_bytes(path, text));
  // The parser notices a quote that is never closed only where the text ends without a line feed.
  text.resize(text.find_last_not_of(" \r\n") + 1);
  try {
    return read_document({verb, path, config, origins}, text);
  } catch (const YAML::Exception& error) {
    const std::string where = error.mark.is_null() ? path : fmt::format("{}:{}", path, error.mark.line + 1);
    return invalid_input("{}: expected YAML, lines of `key: value`; the parser says: {}", where, error.msg);
  } catch (const std::exception& error) {
    return invalid_input("{}: cannot be read as YAML: {}", path, error.what());
  }
}

}  // namespace rondo::train::config
