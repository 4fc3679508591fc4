// Finding a model's template among its files.
#include <nlohmann/json.hpp>

#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/data/chat_template.h"
#include "rondo/data/template_source.h"

namespace rondo::data {
namespace {

constexpr std::string_view kTemplateFile = "chat_template.jinja";
constexpr std::string_view kConfigFile = "tokenizer_config.json";

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// The text of `chat_template`: a string, or the one named default in a list; nothing when there is none.
absl::StatusOr<std::optional<std::string>> configured_source(const std::filesystem::path& path) {
  RONDO_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const auto config = nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object()) return invalid_input("{}: expected a JSON object", path.string());
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return std::optional<std::string>(found->get<std::string>());
  if (!found->is_array()) {
    return invalid_input("{}: chat_template must be a text or a list of named templates", path.string());
  }
  for (const auto& entry : *found) {
    const auto text_of = [&entry](const char* key) {
      const bool has = entry.is_object() && entry.contains(key) && entry[key].is_string();
      return has ? std::optional<std::string>(entry[key].get<std::string>()) : std::nullopt;
    };
    const auto source = text_of("template");
    if (!text_of("name") || !source) {
      return invalid_input("{}: each entry of chat_template must have the texts name and template", path.string());
    }
    if (text_of("name") == "default") return source;
  }
  return invalid_input("{}: none of the entries of chat_template is named default", path.string());
}

/// The template's text and the file that holds it.
struct Source {
  std::filesystem::path path;
  std::string text;
};

absl::StatusOr<std::optional<Source>> find_source(const std::filesystem::path& folder) {
  if (auto path = folder / kTemplateFile; is_there(path)) {
    RONDO_ASSIGN_OR_RETURN(std::string text, read_file(path));
    return Source{std::move(path), std::move(text)};
  }
  auto path = folder / kConfigFile;
  if (!is_there(path)) return std::nullopt;
  RONDO_ASSIGN_OR_RETURN(std::optional<std::string> text, configured_source(path));
  if (!text) return std::nullopt;
  return Source{std::move(path), *std::move(text)};
}

}  // namespace

absl::StatusOr<std::optional<std::string>> chat_template_source(const std::filesystem::path& folder) {
  RONDO_ASSIGN_OR_RETURN(std::optional<Source> source, find_source(folder));
  if (!source) return std::nullopt;
  return std::move(source->text);
}

absl::StatusOr<std::optional<ChatTemplate>> ChatTemplate::load(const std::filesystem::path& folder,
                                                               TemplateLimits limits) {
  RONDO_ASSIGN_OR_RETURN(const std::optional<Source> source, find_source(folder));
  if (!source) return std::nullopt;
  auto parsed = ChatTemplate::parse(source->text, limits);
  if (!parsed.ok()) return with_context(parsed.status(), source->path.string());
  return std::optional<ChatTemplate>(*std::move(parsed));
}

}  // namespace rondo::data
