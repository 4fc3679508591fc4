// Chat templates: an interpreter of the Jinja subset that published templates use, with limits on steps, depth and
// output.
//
// A ChatTemplate is immutable once parsed and may be used from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rondo::data {

/// What a template may use before it is refused: a template comes with a model and is not trusted.
struct TemplateLimits {
  std::uint64_t steps = 2'000'000;  // nodes evaluated
  std::uint32_t depth = 100;        // nesting of expressions, blocks and macro calls
  std::uint64_t output_bytes = 64U << 20U;
};

class ChatTemplate {
 public:
  /// The model's own template: `folder`/chat_template.jinja, else `chat_template` in tokenizer_config.json (a string,
  /// or a list of {name, template} of which `default` is taken). Nothing when the model has none. Conversations with
  /// tools are rendered by the template tool_use where there is one, in that list or beside the file in
  /// additional_chat_templates, as transformers does. Errors: InvalidArgument naming file and line of a syntax error or
  /// of something outside the subset; of tool_use only when it is used.
  static absl::StatusOr<std::optional<ChatTemplate>> load(const std::filesystem::path& folder,
                                                          TemplateLimits limits = {});

  static absl::StatusOr<ChatTemplate> parse(std::string_view source, TemplateLimits limits = {});
  /// What renders a context whose `tools` are not null, or why nothing can.
  void set_for_tools(absl::StatusOr<ChatTemplate> other);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Renders `context` (an object: messages, add_generation_prompt, bos_token, eos_token, tools, ...) exactly as
  /// transformers' apply_chat_template does with Jinja2 (trim_blocks, lstrip_blocks, sandbox, `loopcontrols`, tojson
  /// without HTML escapes, raise_exception, strftime_now). Errors: InvalidArgument with the line at fault: an undefined
  /// operation, raise_exception's message, a limit reached.
  absl::StatusOr<std::string> render(const nlohmann::ordered_json& context) const;

 private:
  class Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
  std::unique_ptr<const absl::StatusOr<ChatTemplate>> for_tools_;  // null without one
};

}  // namespace rondo::data
