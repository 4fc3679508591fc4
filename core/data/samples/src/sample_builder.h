// From a checked record to token ids and labels.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "long_text.h"
#include "record_format.h"
#include "rondo/data/samples.h"
#include "turn_finder.h"

namespace rondo::data {

struct BuiltSample {
  Sample sample;  // cut to cutoff_len; the index is left at 0
  bool truncated = false;
  bool targets_cut_off = false;        // it had targets, all beyond cutoff_len
  bool without_assistant = false;      // a conversation without a message of the assistant
  bool answers_not_written = false;    // the assistant's messages do not show in the rendered text
  bool answers_weigh_nothing = false;  // the answers that are to be learned have `weight` 0
  std::uint64_t dropped_symbols = 0;   // see Encoded::dropped
};

/// Not thread-safe: it remembers what it learned of the template.
class SampleBuilder {
 public:
  /// `renderer` and what it points to must outlive the builder.
  SampleBuilder(const Renderer& renderer, const DataOptions& options);

  /// Errors: InvalidArgument without a place when the template is missing or refuses the conversation.
  absl::StatusOr<BuiltSample> build(const Record& record);

  /// One text of any length in consecutive samples of cutoff_len tokens, every token a target, until `take` says no.
  /// Stops where the text is no UTF-8.
  LongText build_windows(std::string_view text, const std::function<bool(const Sample&)>& take) const;

 private:
  absl::StatusOr<BuiltSample> build_conversation(const Conversation& conversation);
  BuiltSample build_pair(const PromptCompletion& pair) const;
  /// Ids with the special tokens that the tokenizer adds, then the end-of-sequence token unless it is there.
  Encoded encode_document(std::string_view text) const;
  /// `targets` of [T] become labels; cuts to cutoff_len.
  BuiltSample finish(Encoded encoded, const std::vector<bool>& targets) const;

  Renderer renderer_;
  DataOptions options_;
  std::optional<TurnFinder> turns_;  // nothing when there is no template
  std::optional<TokenId> end_of_sequence_;
};

}  // namespace rondo::data
