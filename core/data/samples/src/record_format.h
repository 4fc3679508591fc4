// From a JSON record to one of three things to tokenize: a conversation, a prompt with its completion, or a text.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "json_text.h"
#include "rondo/data/samples.h"

namespace rondo::data {

/// What the chat template gets. `messages` is a list, not empty, of objects with a string `role` and checked `content`.
struct Conversation {
  Json messages;
  Json tools;   // a list, or null
  Json extras;  // an object: further names for the template
};

struct PromptCompletion {
  std::string prompt;
  std::string completion;
};

struct PlainString {
  std::string text;
};

using Record = std::variant<Conversation, PromptCompletion, PlainString>;

/// "messages", "prompt/completion", ...
std::string_view format_name(DataFormat format);

/// The format that the keys of `record` tell. Errors: InvalidArgument with the keys found and the formats that exist.
absl::StatusOr<DataFormat> infer_format(const Json& record);

/// Checks `record` and takes what `format` (not kAuto, not kPlainText) says. Errors: InvalidArgument naming the field;
/// the caller puts the place before it.
absl::StatusOr<Record> parse_record(const Json& record, DataFormat format);

/// True for the roles whose turns are learned: "assistant" and "model".
bool is_assistant(const Json& message);

/// False where the message has `weight` 0, as in OpenAI's files for fine-tuning: context that is not to be learned.
bool is_learned(const Json& message);

}  // namespace rondo::data
