// Renders conversations and finds their assistant turns in the rendered text, for any template.
//
// A turn reaches from the end of its header (what the template writes as generation prompt, before any reasoning block)
// through its end-of-turn token (the first special token that the template writes after the content, with those
// that follow it without a character between, but for a header that is written unasked), or, in templates without one,
// to where the next turn's text begins. Nothing is assumed about the template: contents are found by rendering again
// with unique sentinels in their place, headers by comparing renderings with and without generation prompt (of tool
// calls in templates without one, by comparing with the same turn without calls), ends by comparing with the rendering
// that stops after the turn. What comes before a turn need not be the same in these renderings (templates strip earlier
// reasoning and move system prompts): only the text around it is compared.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "record_format.h"
#include "rondo/data/samples.h"
#include "turn_text.h"

namespace rondo::data {

struct AssistantTurn {
  TextRange range;
  bool learned = true;  // its message does not have `weight` 0
};

struct RenderedConversation {
  std::string text;
  Encoded encoded;                   // of `text`, without adding special tokens
  std::vector<AssistantTurn> turns;  // in order
  std::size_t assistant_messages = 0;
};

/// Remembers what it learned of the template from one conversation to the next. Not thread-safe.
class TurnFinder {
 public:
  /// `renderer` must have a template and outlive the finder.
  explicit TurnFinder(const Renderer& renderer);

  /// Errors: InvalidArgument with the template's message when it refuses the conversation.
  absl::StatusOr<RenderedConversation> render(const Conversation& conversation, bool find_turns);

 private:
  class Probe;
  /// Where the content of a message stands in the text.
  struct Located {
    std::size_t begin = 0;                           // no later than the content
    std::size_t end = 0;                             // behind the content and its tool calls, but for closing brackets
    std::size_t skipped = 0;                         // bytes after a sentinel in its place that the text lacks
    std::optional<std::size_t> call = std::nullopt;  // the last of the message's tool calls that the template writes
    bool content_last = false;  // the content of a message that calls tools stands behind the calls
  };

  std::size_t find_header(const Probe& probe, std::size_t message, const Located& located, std::size_t lower);
  std::optional<std::size_t> header_of_calls(const Probe& probe, std::size_t message, std::string_view before,
                                             TextRange range) const;
  static std::size_t end_of_message_before(const Probe& probe, std::size_t message, TextRange range);
  std::size_t likeliest_header(const Probe& probe, std::size_t message, const std::vector<std::size_t>& ends) const;
  std::size_t find_end(const Probe& probe, std::size_t message, const Located& located, std::size_t lower);
  std::optional<std::size_t> end_before_next(const Probe& probe, std::size_t message, std::size_t content_end) const;
  std::size_t end_of_last(const Probe& probe, const Located& located, std::size_t content_end) const;
  std::size_t end_of_calls(const Probe& probe, std::size_t message, const std::vector<ControlToken>& controls) const;
  std::vector<ControlToken> controls_of(std::string_view text) const;
  const std::string& generation_prompt(const Probe& probe, std::size_t message);
  std::string learn_generation_prompt(const Probe& probe, std::size_t message) const;

  struct Learned {
    std::map<std::string, std::string> generation_prompts;  // by the role of the message before
    std::vector<std::string> plain_tails;                   // what followed contents, through the end-of-turn token
  };

  Renderer renderer_;
  std::array<Learned, 2> learned_;  // without and with tools, for which a model may have a template of its own
};

}  // namespace rondo::data
