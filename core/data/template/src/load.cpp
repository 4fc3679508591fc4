// Finding a model's template among its files.
#include <nlohmann/json.hpp>

#include "rondo/base/status.h"
#include "rondo/data/chat_template.h"
#include "rondo/data/template_source.h"

namespace rondo::data {
namespace {

constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kToolsFile = "additional_chat_templates/tool_use.jinja";
constexpr const char* kConfigFile = "tokenizer_config.json";

/// The texts of `chat_template`: a string, or those named default and tool_use in a list; nothing when there is none.
absl::StatusOr<TemplateSources> configured_sources(const Documents& documents) {
  RONDO_ASSIGN_OR_RETURN(const std::string text, documents.read(kConfigFile));
  const std::string path = documents.place(kConfigFile);
  const auto config = nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object()) return invalid_input("{}: expected a JSON object", path);
  const auto found = config.find("chat_template");
  TemplateSources sources;
  if (found == config.end() || found->is_null()) return sources;
  if (found->is_string()) {
    sources.text = found->get<std::string>();
    return sources;
  }
  if (!found->is_array()) {
    return invalid_input("{}: chat_template must be a text or a list of named templates", path);
  }
  for (const auto& entry : *found) {
    const auto text_of = [&entry](const char* key) {
      const bool has = entry.is_object() && entry.contains(key) && entry[key].is_string();
      return has ? std::optional<std::string>(entry[key].get<std::string>()) : std::nullopt;
    };
    const auto name = text_of("name");
    const auto source = text_of("template");
    if (!name || !source) {
      return invalid_input("{}: each entry of chat_template must have the texts name and template", path);
    }
    if (name == "default") sources.text = source;
    if (name == "tool_use") sources.for_tools = source;
  }
  if (!sources.text) return invalid_input("{}: none of the entries of chat_template is named default", path);
  return sources;
}

absl::StatusOr<ChatTemplate> parse_from(const std::string& text, const std::string& place, TemplateLimits limits) {
  auto parsed = ChatTemplate::parse(text, limits);
  if (!parsed.ok()) return with_context(parsed.status(), place);
  return parsed;
}

}  // namespace

absl::StatusOr<TemplateSources> chat_template_sources(const Documents& documents) {
  if (documents.has(kTemplateFile)) {
    TemplateSources sources;
    RONDO_ASSIGN_OR_RETURN(sources.text, documents.read(kTemplateFile));
    if (documents.has(kToolsFile)) {
      RONDO_ASSIGN_OR_RETURN(sources.for_tools, documents.read(kToolsFile));
    }
    return sources;
  }
  if (!documents.has(kConfigFile)) return TemplateSources{};
  return configured_sources(documents);
}

absl::StatusOr<std::optional<ChatTemplate>> load_chat_template(const Documents& documents, TemplateLimits limits) {
  RONDO_ASSIGN_OR_RETURN(const TemplateSources sources, chat_template_sources(documents));
  if (!sources.text) return std::nullopt;
  const bool files = documents.has(kTemplateFile);
  RONDO_ASSIGN_OR_RETURN(ChatTemplate parsed,
                         parse_from(*sources.text, documents.place(files ? kTemplateFile : kConfigFile), limits));
  if (sources.for_tools) {
    parsed.set_for_tools(parse_from(*sources.for_tools, documents.place(files ? kToolsFile : kConfigFile), limits));
  }
  return std::optional<ChatTemplate>(std::move(parsed));
}

absl::StatusOr<std::optional<ChatTemplate>> ChatTemplate::load(const std::filesystem::path& folder,
                                                               TemplateLimits limits) {
  return load_chat_template(Documents(folder), limits);
}

}  // namespace rondo::data
