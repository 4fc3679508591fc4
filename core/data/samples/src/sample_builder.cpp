// The three kinds of record become ids and labels; see "Data means" in the interface for what is a target.
#include "sample_builder.h"

#include <algorithm>
#include <utility>

#include "counting.h"
#include "rondo/base/status.h"
#include "turn_text.h"

namespace rondo::data {
namespace {

/// Tokens of `text` without those that the post-processor puts after it (an appended end-of-sequence token).
std::size_t count_without_appended(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.inserted_before() + tokenizer.encode(text, false).ids.size();
}

}  // namespace

SampleBuilder::SampleBuilder(const Renderer& renderer, const DataOptions& options)
    : renderer_(renderer), options_(options), end_of_sequence_(renderer.tokenizer->eos_id()) {
  if (renderer.chat_template != nullptr) turns_.emplace(renderer);
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
    while (turn < rendered.turns.size() && rendered.turns[turn].range.end <= range.begin) ++turn;
    if (turn == rendered.turns.size()) break;
    // A token that stands for no text (a prefix space of its own) belongs to what follows it.
    const std::size_t end = std::max(range.end, range.begin + 1);
    targets[t] = rendered.turns[turn].learned && end > rendered.turns[turn].range.begin;
  }
  BuiltSample built = finish(std::move(rendered.encoded), targets);
  built.without_assistant = rendered.assistant_messages == 0;
  built.answers_not_written = rendered.assistant_messages > 0 && rendered.turns.empty();
  built.answers_weigh_nothing =
      !rendered.turns.empty() &&
      std::none_of(rendered.turns.begin(), rendered.turns.end(), [](const AssistantTurn& one) { return one.learned; });
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

LongText SampleBuilder::build_windows(std::string_view text, const std::function<bool(const Sample&)>& take) const {
  Sample window;
  const auto hand_on = [&] {
    window.labels.assign(window.ids.begin(), window.ids.end());
    const bool wanted = take(window);
    window.ids.clear();
    return wanted;
  };
  std::optional<TokenId> last;
  bool wanted = true;
  const auto add = [&](TokenId id) {
    window.ids.push_back(id);
    last = id;
    if (window.ids.size() == options_.cutoff_len) wanted = hand_on();
    return wanted;
  };
  const auto add_all = [&](std::span<const TokenId> ids) { return std::all_of(ids.begin(), ids.end(), add); };
  const LongText read = encode_long(*renderer_.tokenizer, text, {}, add_all);
  if (read.not_utf8_at) return read;
  if (wanted && end_of_sequence_ && last != end_of_sequence_) add(*end_of_sequence_);
  if (wanted && !window.ids.empty()) hand_on();
  return read;
}

std::optional<TokenId> end_of_turn(const Renderer& renderer) {
  if (renderer.chat_template == nullptr) return std::nullopt;
  Conversation conversation;
  conversation.extras = Json::object();
  conversation.messages = Json::parse(R"([{"role": "user", "content": "zq"}, {"role": "assistant", "content": "zq"}])");
  const auto rendered = TurnFinder(renderer).render(conversation, true);
  if (!rendered.ok() || rendered->turns.empty()) return std::nullopt;
  const TextRange& turn = rendered->turns.back().range;
  const auto controls = control_tokens(*renderer.tokenizer, rendered->text, rendered->encoded, turn.begin, turn.end);
  return controls.empty() || controls.back().end != turn.end ? std::nullopt : std::optional(controls.back().id);
}

}  // namespace rondo::data
