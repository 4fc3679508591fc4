// The room's door: exceptions of the inside end here and become statuses.
#include "rondo/data/chat_template.h"

#include "ast.h"
#include "evaluator.h"
#include "heap.h"
#include "json_text.h"
#include "parser.h"
#include "rondo/base/status.h"
#include "scope.h"

namespace rondo::data {
namespace {

absl::Status failure_status(const jinja::Failure& failure) {
  if (failure.line == 0) return invalid_input("chat template: {}", failure.message);
  return invalid_input("chat template, line {}: {}", failure.line, failure.message);
}

}  // namespace

class ChatTemplate::Impl {
 public:
  explicit Impl(const TemplateLimits& limits) : limits_(limits), constants_(limits) {}

  /// Throws jinja::Failure.
  void parse(std::string_view source) {
    constants_.charge(source.size());
    parsed_.body = jinja::Parser(jinja::tokenize(source), constants_).parse();
    jinja::bind_names(parsed_);
  }

  /// Throws jinja::Failure.
  std::string render(const nlohmann::ordered_json& context) const {
    jinja::Heap heap(limits_);
    const jinja::Value values = jinja::from_json(heap, context);
    if (!values.is_dict()) throw jinja::Failure{"the context must be an object"};
    return jinja::Evaluator(heap, values.as_dict()).render(parsed_);
  }

 private:
  TemplateLimits limits_;
  jinja::Heap constants_;  // what the tree points to
  jinja::Template parsed_;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<ChatTemplate> ChatTemplate::parse(std::string_view source, TemplateLimits limits) {
  auto impl = std::make_unique<Impl>(limits);
  try {
    impl->parse(source);
  } catch (const jinja::Failure& failure) {
    return failure_status(failure);
  }
  return ChatTemplate(std::move(impl));
}

void ChatTemplate::set_for_tools(absl::StatusOr<ChatTemplate> other) {
  for_tools_ = std::make_unique<const absl::StatusOr<ChatTemplate>>(std::move(other));
}

absl::StatusOr<std::string> ChatTemplate::render(const nlohmann::ordered_json& context) const {
  if (for_tools_ != nullptr && context.is_object()) {
    const auto tools = context.find("tools");
    if (tools != context.end() && !tools->is_null()) {
      if (!for_tools_->ok()) return for_tools_->status();
      return (*for_tools_)->render(context);
    }
  }
  try {
    return impl_->render(context);
  } catch (const jinja::Failure& failure) {
    return failure_status(failure);
  }
}

}  // namespace rondo::data
