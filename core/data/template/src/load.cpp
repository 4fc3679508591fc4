// Finding a model's template among its files.
#include <nlohmann/json.hpp>

#include "rondo/base/status.h"
#include "rondo/data/chat_template.h"
#include "rondo/data/template_source.h"

namespace rondo::data {
namespace {

constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kConfigFile = "tokenizer_config.json";

/// The text of `chat_template`: a string, or the one named default in a list; nothing when there is none.
absl::StatusOr<std::optional<std::string>> configured_source(const Documents& documents) {
  RONDO_ASSIGN_OR_RETURN(const std::string text, documents.read(kConfigFile));
  const std::string path = documents.place(kConfigFile);
  const auto config = nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object()) return invalid_input("{}: expected a JSON object", path);
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return std::optional<std::string>(found->get<std::string>());
  if (!found->is_array()) {
    return invalid_input("{}: chat_template must be a text or a list of named templates", path);
  }
  for (const auto& entry : *found) {
    const auto text_of = [&entry](const char* key) {
      const bool has = entry.is_object() && entry.contains(key) && entry[key].is_string();
      return has ? std::optional<std::string>(entry[key].get<std::string>()) : std::nullopt;
    };
    const auto source = text_of("template");
    if (!text_of("name") || !source) {
      return invalid_input("{}: each entry of chat_template must have the texts name and template", path);
    }
    if (text_of("name") == "default") return source;
  }
  return invalid_input("{}: none of the entries of chat_template is named default", path);
}

/// The template's text and the place that holds it.
struct Source {
  std::string place;
  std::string text;
};

absl::StatusOr<std::optional<Source>> find_source(const Documents& documents) {
  if (documents.has(kTemplateFile)) {
    RONDO_ASSIGN_OR_RETURN(std::string text, documents.read(kTemplateFile));
    return Source{documents.place(kTemplateFile), std::move(text)};
  }
  if (!documents.has(kConfigFile)) return std::nullopt;
  RONDO_ASSIGN_OR_RETURN(std::optional<std::string> text, configured_source(documents));
  if (!text) return std::nullopt;
  return Source{documents.place(kConfigFile), *std::move(text)};
}

}  // namespace

absl::StatusOr<std::optional<std::string>> chat_template_source(const Documents& documents) {
  RONDO_ASSIGN_OR_RETURN(std::optional<Source> source, find_source(documents));
  if (!source) return std::nullopt;
  return std::move(source->text);
}

absl::StatusOr<std::optional<ChatTemplate>> load_chat_template(const Documents& documents, TemplateLimits limits) {
  RONDO_ASSIGN_OR_RETURN(const std::optional<Source> source, find_source(documents));
  if (!source) return std::nullopt;
  auto parsed = ChatTemplate::parse(source->text, limits);
  if (!parsed.ok()) return with_context(parsed.status(), source->place);
  return std::optional<ChatTemplate>(*std::move(parsed));
}

absl::StatusOr<std::optional<ChatTemplate>> ChatTemplate::load(const std::filesystem::path& folder,
                                                               TemplateLimits limits) {
  return load_chat_template(Documents(folder), limits);
}

}  // namespace rondo::data
