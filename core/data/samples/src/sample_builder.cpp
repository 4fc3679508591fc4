// The three kinds of record become ids and labels; see "Data means" in the interface for what is a target.
#include "sample_builder.h"

#include <utility>

#include "counting.h"
#include "rondo/base/status.h"

namespace rondo::data {
namespace {

/// Tokens of `text` without those that the post-processor puts after it (an appended end-of-sequence token).
std::size_t count_without_appended(const Tokenizer& tokenizer, std::string_view text) {
  const Encoded encoded = tokenizer.encode(text, true);
  // Special tokens that the post-processor inserts stand for no text. Of an empty text all of them do: the ones before
  // the text are then told by encoding one that is not empty.
  const auto inserted = [&tokenizer](const Encoded& of, std::size_t t) {
    return of.ranges[t].begin == of.ranges[t].end && tokenizer.is_special(of.ids[t]);
  };
  const Encoded letter = tokenizer.encode("a", true);
  std::size_t before = 0;
  while (before < letter.ids.size() && inserted(letter, before)) ++before;
  std::size_t count = encoded.ids.size();
  while (count > before && inserted(encoded, count - 1)) --count;
  return count;
}

}  // namespace

SampleBuilder::SampleBuilder(const Renderer& renderer, const DataOptions& options)
    : renderer_(renderer), options_(options) {
  if (renderer.chat_template != nullptr) turns_.emplace(renderer);
  if (const auto token = renderer.tokenizer->eos_token()) end_of_sequence_ = renderer.tokenizer->id_of(*token);
}

absl::StatusOr<BuiltSample> SampleBuilder::build(const Record& record) {
  if (const auto* conversation = std::get_if<Conversation>(&record)) return build_conversation(*conversation);
  if (const auto* pair = std::get_if<PromptCompletion>(&record)) return build_pair(*pair);
  Encoded encoded = encode_document(std::get<PlainString>(record).text);
  const std::vector<bool> targets(encoded.ids.size(), true);
  return finish(std::move(encoded), targets);
}

absl::StatusOr<BuiltSample> SampleBuilder::build_conversation(const Conversation& conversation) {
  if (!turns_) {
    return invalid_input(
        "the model has no chat template, so conversations cannot be written; add chat_template.jinja to its folder or "
        "use prompt/completion or text records");
  }
  RONDO_ASSIGN_OR_RETURN(RenderedConversation rendered, turns_->render(conversation, !options_.train_on_prompt));
  std::vector<bool> targets(rendered.encoded.ids.size(), options_.train_on_prompt);
  if (options_.mask_history && rendered.turns.size() > 1) {
    rendered.turns.erase(rendered.turns.begin(), rendered.turns.end() - 1);
  }
  std::size_t turn = 0;
  for (std::size_t t = 0; t < targets.size() && !options_.train_on_prompt; ++t) {
    const TextRange& range = rendered.encoded.ranges[t];
    while (turn < rendered.turns.size() && rendered.turns[turn].end <= range.begin) ++turn;
    if (turn == rendered.turns.size()) break;
    // A token that stands for no text (a prefix space of its own) belongs to what follows it.
    const std::size_t end = std::max(range.end, range.begin + 1);
    targets[t] = end > rendered.turns[turn].begin;
  }
  BuiltSample built = finish(std::move(rendered.encoded), targets);
  built.without_assistant = rendered.assistant_messages == 0;
  built.answers_not_written = rendered.assistant_messages > 0 && rendered.turns.empty();
  return built;
}

BuiltSample SampleBuilder::build_pair(const PromptCompletion& pair) const {
  Encoded encoded = encode_document(pair.prompt + pair.completion);
  const std::size_t prompt = options_.train_on_prompt ? 0 : count_without_appended(*renderer_.tokenizer, pair.prompt);
  std::vector<bool> targets(encoded.ids.size(), true);
  for (std::size_t t = 0; t < std::min(prompt, targets.size()); ++t) targets[t] = false;
  return finish(std::move(encoded), targets);
}

Encoded SampleBuilder::encode_document(std::string_view text) const {
  Encoded encoded = renderer_.tokenizer->encode(text, true);
  if (end_of_sequence_ && (encoded.ids.empty() || encoded.ids.back() != *end_of_sequence_)) {
    encoded.ids.push_back(*end_of_sequence_);
    encoded.ranges.push_back({text.size(), text.size()});
  }
  return encoded;
}

BuiltSample SampleBuilder::finish(Encoded encoded, const std::vector<bool>& targets) const {
  BuiltSample built;
  built.dropped_symbols = encoded.dropped;
  const std::size_t length = std::min<std::size_t>(encoded.ids.size(), options_.cutoff_len);
  built.truncated = length < encoded.ids.size();
  built.sample.labels.assign(length, kMasked);
  bool had_target = false;
  for (std::size_t t = 0; t < targets.size(); ++t) {
    if (t < length && targets[t]) built.sample.labels[t] = encoded.ids[t];
    had_target = had_target || (t > 0 && targets[t]);
  }
  built.sample.ids = std::move(encoded.ids);
  built.sample.ids.resize(length);
  built.sample.ids.shrink_to_fit();
  built.targets_cut_off = had_target && count_targets(built.sample) == 0;
  return built;
}

std::vector<Sample> SampleBuilder::build_windows(std::string_view text, std::uint64_t& dropped_symbols) const {
  const Encoded encoded = encode_document(text);
  dropped_symbols += encoded.dropped;
  std::vector<Sample> windows;
  for (std::size_t begin = 0; begin < encoded.ids.size(); begin += options_.cutoff_len) {
    const std::size_t end = std::min<std::size_t>(encoded.ids.size(), begin + options_.cutoff_len);
    Sample sample;
    sample.ids.assign(encoded.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                      encoded.ids.begin() + static_cast<std::ptrdiff_t>(end));
    sample.labels.assign(sample.ids.begin(), sample.ids.end());
    windows.push_back(std::move(sample));
  }
  return windows;
}

}  // namespace rondo::data
