// The record formats: their keys, their checks, and the one form of conversation they become.
#include "record_format.h"

#include <array>
#include <optional>
#include <utility>

#include "rondo/base/status.h"

namespace rondo::data {
namespace {

constexpr std::string_view kKnownFormats =
    "messages (messages), prompt/completion (prompt and completion), text (text), alpaca (instruction and output), "
    "sharegpt (conversations)";

absl::StatusOr<std::string> string_field(const Json& object, std::string_view key, std::string_view prefix = "") {
  const auto found = object.find(std::string(key));
  if (found == object.end()) {
    return invalid_input("`{}{}` is missing, expected a string; the keys are {}", prefix, key, list_keys(object));
  }
  if (!found->is_string()) return invalid_input("`{}{}` is {}, expected a string", prefix, key, describe_json(*found));
  return found->get<std::string>();
}

/// As string_field, but absent and null count as empty.
absl::StatusOr<std::string> optional_string(const Json& object, std::string_view key) {
  const auto found = object.find(std::string(key));
  if (found == object.end() || found->is_null()) return std::string();
  return string_field(object, key);
}

absl::StatusOr<const Json*> list_field(const Json& object, std::string_view key) {
  const auto found = object.find(std::string(key));
  if (found == object.end()) {
    return invalid_input("`{}` is missing, expected a list; the keys are {}", key, list_keys(object));
  }
  if (!found->is_array()) return invalid_input("`{}` is {}, expected a list", key, describe_json(*found));
  if (found->empty()) return invalid_input("`{}` is an empty list, expected at least one message", key);
  return &*found;
}

Json make_message(std::string_view role, std::string content) {
  Json message = Json::object();
  message["role"] = role;
  message["content"] = std::move(content);
  return message;
}

absl::Status check_part(const Json& part, const std::string& name) {
  if (!part.is_object()) return invalid_input("`{}` is {}, expected an object", name, describe_json(part));
  RONDO_ASSIGN_OR_RETURN(const std::string type, string_field(part, "type", name + "."));
  if (type != "text") return invalid_input("`{}.type` is \"{}\", only \"text\" can be trained on", name, type);
  return string_field(part, "text", name + ".").status();
}

bool has_calls(const Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls != message.end() && calls->is_array() && !calls->empty()) return true;
  const auto call = message.find("function_call");
  return call != message.end() && call->is_object();
}

absl::Status check_content(const Json& message, const std::string& name) {
  const auto content = message.find("content");
  if (content == message.end()) {
    if (has_calls(message)) return absl::OkStatus();
    return invalid_input("`{}.content` is missing; the keys are {}", name, list_keys(message));
  }
  if (content->is_string()) return absl::OkStatus();
  if (content->is_null()) {
    if (has_calls(message)) return absl::OkStatus();
    return invalid_input("`{}.content` is null in a message without tool_calls, expected a string", name);
  }
  if (!content->is_array()) {
    return invalid_input("`{}.content` is {}, expected a string or a list of text parts", name,
                         describe_json(*content));
  }
  if (content->empty()) return invalid_input("`{}.content` is an empty list, expected text parts", name);
  for (std::size_t i = 0; i < content->size(); ++i) {
    RONDO_RETURN_IF_ERROR(check_part((*content)[i], fmt::format("{}.content[{}]", name, i)));
  }
  return absl::OkStatus();
}

/// Whether a message is learned: 1, as without it, or 0.
absl::Status check_weight(const Json& message, const std::string& name) {
  const auto weight = message.find("weight");
  if (weight == message.end() || weight->is_null() || *weight == 0 || *weight == 1) return absl::OkStatus();
  return invalid_input("`{}.weight` is {}, expected 0 (not to be learned) or 1", name,
                       weight->is_number() ? weight->dump() : std::string(describe_json(*weight)));
}

absl::Status check_message(const Json& message, const std::string& name) {
  if (!message.is_object()) return invalid_input("`{}` is {}, expected an object", name, describe_json(message));
  RONDO_ASSIGN_OR_RETURN(const std::string role, string_field(message, "role", name + "."));
  if (role.empty()) return invalid_input("`{}.role` is an empty string", name);
  RONDO_RETURN_IF_ERROR(check_weight(message, name));
  const auto calls = message.find("tool_calls");
  if (calls != message.end() && !calls->is_null() && !calls->is_array()) {
    return invalid_input("`{}.tool_calls` is {}, expected a list", name, describe_json(*calls));
  }
  if (calls != message.end() && calls->is_array()) {
    for (std::size_t i = 0; i < calls->size(); ++i) {
      if ((*calls)[i].is_object()) continue;
      return invalid_input("`{}.tool_calls[{}]` is {}, expected an object", name, i, describe_json((*calls)[i]));
    }
  }
  return check_content(message, name);
}

/// `tools` may be a list or a string that holds one as JSON.
absl::StatusOr<Json> tools_of(const Json& record) {
  const auto found = record.find("tools");
  if (found == record.end() || found->is_null()) return Json();
  Json tools = *found;
  if (tools.is_string()) {
    const std::string text = tools.get<std::string>();
    if (text.empty()) return Json();
    auto parsed = parse_json(text);
    if (!parsed.ok()) return with_context(parsed.status(), "`tools`");
    tools = *std::move(parsed);
  }
  if (!tools.is_array()) return invalid_input("`tools` is {}, expected a list", describe_json(tools));
  return tools.empty() ? Json() : tools;
}

/// As transformers hands messages to a template: keys that are null are dropped, and reasoning, by whichever of its
/// names it came, goes by `reasoning_content` and `thinking` too.
Json template_message(const Json& message) {
  Json kept = Json::object();
  const Json* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (reasoning == nullptr && found != message.end() && !found->is_null()) reasoning = &*found;
  }
  if (reasoning != nullptr) kept["thinking"] = *reasoning;
  for (const auto& item : message.items()) {
    if (!item.value().is_null()) kept[item.key()] = item.value();
  }
  if (reasoning != nullptr) kept["reasoning_content"] = *reasoning;
  return kept;
}

absl::StatusOr<Conversation> conversation_of(const Json& record, const Json& messages) {
  Conversation conversation;
  conversation.messages = Json::array();
  for (const Json& message : messages) conversation.messages.push_back(template_message(message));
  RONDO_ASSIGN_OR_RETURN(conversation.tools, tools_of(record));
  conversation.extras = Json::object();
  if (const auto documents = record.find("documents"); documents != record.end() && documents->is_array()) {
    conversation.extras["documents"] = *documents;
  }
  if (const auto extras = record.find("chat_template_kwargs"); extras != record.end() && !extras->is_null()) {
    if (!extras->is_object()) {
      return invalid_input("`chat_template_kwargs` is {}, expected an object", describe_json(*extras));
    }
    conversation.extras.update(*extras);
  }
  return conversation;
}

absl::StatusOr<Record> parse_messages(const Json& record) {
  RONDO_ASSIGN_OR_RETURN(const Json* messages, list_field(record, "messages"));
  for (std::size_t i = 0; i < messages->size(); ++i) {
    RONDO_RETURN_IF_ERROR(check_message((*messages)[i], fmt::format("messages[{}]", i)));
  }
  RONDO_ASSIGN_OR_RETURN(Conversation conversation, conversation_of(record, *messages));
  return Record(std::move(conversation));
}

absl::StatusOr<Record> parse_prompt_completion(const Json& record) {
  PromptCompletion pair;
  RONDO_ASSIGN_OR_RETURN(pair.prompt, string_field(record, "prompt"));
  RONDO_ASSIGN_OR_RETURN(pair.completion, string_field(record, "completion"));
  return Record(std::move(pair));
}

absl::StatusOr<Record> parse_text(const Json& record) {
  RONDO_ASSIGN_OR_RETURN(std::string text, string_field(record, "text"));
  return Record(PlainString{std::move(text)});
}

/// Earlier rounds of an Alpaca record: [[question, answer], ...].
absl::Status append_history(const Json& record, Json& messages) {
  const auto history = record.find("history");
  if (history == record.end() || history->is_null()) return absl::OkStatus();
  if (!history->is_array()) return invalid_input("`history` is {}, expected a list", describe_json(*history));
  for (std::size_t i = 0; i < history->size(); ++i) {
    const Json& round = (*history)[i];
    if (!round.is_array() || round.size() != 2 || !round[0].is_string() || !round[1].is_string()) {
      return invalid_input("`history[{}]` is {}, expected a list of two strings", i, describe_json(round));
    }
    messages.push_back(make_message("user", round[0].get<std::string>()));
    messages.push_back(make_message("assistant", round[1].get<std::string>()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Record> parse_alpaca(const Json& record) {
  RONDO_ASSIGN_OR_RETURN(std::string instruction, string_field(record, "instruction"));
  RONDO_ASSIGN_OR_RETURN(const std::string input, optional_string(record, "input"));
  RONDO_ASSIGN_OR_RETURN(std::string output, string_field(record, "output"));
  RONDO_ASSIGN_OR_RETURN(std::string system, optional_string(record, "system"));
  Json messages = Json::array();
  if (!system.empty()) messages.push_back(make_message("system", std::move(system)));
  RONDO_RETURN_IF_ERROR(append_history(record, messages));
  if (!input.empty()) instruction += "\n" + input;
  messages.push_back(make_message("user", std::move(instruction)));
  messages.push_back(make_message("assistant", std::move(output)));
  RONDO_ASSIGN_OR_RETURN(Conversation conversation, conversation_of(record, messages));
  return Record(std::move(conversation));
}

struct Speaker {
  std::string_view from;
  std::string_view role;
};

constexpr std::array<Speaker, 17> kSpeakers = {{{"human", "user"},
                                                {"user", "user"},
                                                {"prompter", "user"},
                                                {"gpt", "assistant"},
                                                {"assistant", "assistant"},
                                                {"chatgpt", "assistant"},
                                                {"bing", "assistant"},
                                                {"bard", "assistant"},
                                                {"bot", "assistant"},
                                                {"model", "assistant"},
                                                {"function_call", "assistant"},
                                                {"system", "system"},
                                                {"tool", "tool"},
                                                {"observation", "tool"},
                                                {"function", "tool"},
                                                {"function_response", "tool"},
                                                {"ipython", "tool"}}};

std::optional<std::string_view> role_of(std::string_view from) {
  for (const Speaker& speaker : kSpeakers) {
    if (speaker.from == from) return speaker.role;
  }
  return std::nullopt;
}

/// A "function_call" turn whose value is {"name": ..., "arguments": ...} is a tool call; any other value is its text.
Json call_message(std::string value) {
  const auto call = parse_json(value);
  if (!call.ok() || !call->is_object() || !call->contains("name") || !call->contains("arguments")) {
    return make_message("assistant", std::move(value));
  }
  Json message = make_message("assistant", "");
  Json wrapped = Json::object();
  wrapped["type"] = "function";
  wrapped["function"] = *call;
  message["tool_calls"] = Json::array();
  message["tool_calls"].push_back(std::move(wrapped));
  return message;
}

absl::StatusOr<Json> sharegpt_message(const Json& turn, const std::string& name) {
  if (!turn.is_object()) return invalid_input("`{}` is {}, expected an object", name, describe_json(turn));
  // Some collections keep the list's name and use the other spelling inside.
  if (!turn.contains("from") && turn.contains("role")) {
    RONDO_RETURN_IF_ERROR(check_message(turn, name));
    return turn;
  }
  RONDO_ASSIGN_OR_RETURN(const std::string from, string_field(turn, "from", name + "."));
  RONDO_ASSIGN_OR_RETURN(std::string value, string_field(turn, "value", name + "."));
  const auto role = role_of(from);
  if (!role) {
    return invalid_input(
        "`{}.from` is \"{}\", expected human, gpt, system, tool, function_call or one of their synonyms", name, from);
  }
  RONDO_RETURN_IF_ERROR(check_weight(turn, name));
  Json message = from == "function_call" ? call_message(std::move(value)) : make_message(*role, std::move(value));
  if (turn.contains("weight")) message["weight"] = turn["weight"];
  return message;
}

absl::StatusOr<Record> parse_sharegpt(const Json& record) {
  RONDO_ASSIGN_OR_RETURN(const Json* turns, list_field(record, "conversations"));
  RONDO_ASSIGN_OR_RETURN(std::string system, optional_string(record, "system"));
  Json messages = Json::array();
  if (!system.empty()) messages.push_back(make_message("system", std::move(system)));
  for (std::size_t i = 0; i < turns->size(); ++i) {
    RONDO_ASSIGN_OR_RETURN(Json message, sharegpt_message((*turns)[i], fmt::format("conversations[{}]", i)));
    messages.push_back(std::move(message));
  }
  RONDO_ASSIGN_OR_RETURN(Conversation conversation, conversation_of(record, messages));
  return Record(std::move(conversation));
}

}  // namespace

std::string_view format_name(DataFormat format) {
  switch (format) {
    case DataFormat::kAuto:
      return "auto";
    case DataFormat::kMessages:
      return "messages";
    case DataFormat::kPromptCompletion:
      return "prompt/completion";
    case DataFormat::kText:
      return "text";
    case DataFormat::kAlpaca:
      return "alpaca";
    case DataFormat::kShareGpt:
      return "sharegpt";
    case DataFormat::kPlainText:
      break;
  }
  return "plain text";
}

absl::StatusOr<DataFormat> infer_format(const Json& record) {
  if (!record.is_object()) return invalid_input("the record is {}, expected an object", describe_json(record));
  // Conversations first: collections often carry the first prompt or the joined text beside the messages.
  if (record.contains("messages")) return DataFormat::kMessages;
  if (record.contains("conversations")) return DataFormat::kShareGpt;
  if (record.contains("prompt") && record.contains("completion")) return DataFormat::kPromptCompletion;
  if (record.contains("instruction") && record.contains("output")) return DataFormat::kAlpaca;
  if (record.contains("text")) return DataFormat::kText;
  return invalid_input("the keys are {}, which is none of the formats {}", list_keys(record), kKnownFormats);
}

absl::StatusOr<Record> parse_record(const Json& record, DataFormat format) {
  if (!record.is_object()) return invalid_input("the record is {}, expected an object", describe_json(record));
  switch (format) {
    case DataFormat::kMessages:
      return parse_messages(record);
    case DataFormat::kPromptCompletion:
      return parse_prompt_completion(record);
    case DataFormat::kText:
      return parse_text(record);
    case DataFormat::kAlpaca:
      return parse_alpaca(record);
    case DataFormat::kShareGpt:
      return parse_sharegpt(record);
    case DataFormat::kAuto:
    case DataFormat::kPlainText:
      break;
  }
  return internal_error("records of the format {} are not parsed", format_name(format));
}

bool is_assistant(const Json& message) {
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return false;
  const auto& name = role->get_ref<const std::string&>();
  return name == "assistant" || name == "model";
}

bool is_learned(const Json& message) {
  const auto weight = message.find("weight");
  return weight == message.end() || *weight != 0;
}

}  // namespace rondo::data
