#include "rondo/yaml/document.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <string_view>

#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/base/text.h"
#include "rondo/base/utf8.h"

namespace rondo::yaml {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

/// What a file must be before it is parsed.
absl::Status check_bytes(const std::string& path, const std::string& text) {
  if (text.size() > kMostBytes) {
    return invalid_input("{}: expected at most {} bytes of YAML, found {}", path, kMostBytes, text.size());
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

}  // namespace

absl::Status visit_document(const std::string& path, const std::function<void(const YAML::Node&)>& visit) {
  RONDO_ASSIGN_OR_RETURN(std::string text, read_file(path));
  RONDO_RETURN_IF_ERROR(check_bytes(path, text));
  // The parser notices a quote that is never closed only where the text ends without a line feed.
  text.resize(text.find_last_not_of(" \r\n") + 1);
  try {
    if (has_second_document(text)) {
      return invalid_input(
          "{}: expected one YAML document, found more; is a line indented unlike the others, or a `---` among them?",
          path);
    }
    visit(YAML::Load(text));
    return absl::OkStatus();
  } catch (const YAML::Exception& error) {
    const std::string where = error.mark.is_null() ? path : fmt::format("{}:{}", path, error.mark.line + 1);
    return invalid_input("{}: expected YAML, lines of `key: value`; the parser says: {}", where, error.msg);
  } catch (const std::exception& error) {
    return invalid_input("{}: cannot be read as YAML: {}", path, error.what());
  }
}

}  // namespace rondo::yaml
