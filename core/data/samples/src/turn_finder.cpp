// The turn finder; its idea stands in turn_finder.h, the comparisons of text in turn_text.h.
#include "turn_finder.h"

#include <algorithm>
#include <utility>

#include "rondo/base/status.h"
#include "turn_text.h"

namespace rondo::data {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

/// True when a list content went into the text as a printed list: the template takes strings only.
bool shows_list(std::string_view text) {
  return text.find("'type': 'text'") != kNone || text.find("\"type\": \"text\"") != kNone;
}

bool has_list_content(const Json& messages) {
  return std::any_of(messages.begin(), messages.end(), [](const Json& message) {
    const auto content = message.find("content");
    return content != message.end() && content->is_array();
  });
}

/// True when it is no accident that a text has the last `common` characters of `before`.
bool convinces(std::string_view before, std::size_t common) {
  constexpr std::size_t kConvincing = 4;
  const std::size_t begin = before.size() - common;
  return common >= std::min(kConvincing, std::max<std::size_t>(before.size(), 1)) &&
         before_white_space(before, before.size(), begin) != begin;
}

/// Where in `range` the text has come as far as `begun`. It may begin otherwise (templates move the list of tools to
/// the last question): then what stands before the place tells. Nothing when no place is like it.
std::optional<std::size_t> end_of(std::string_view begun, std::string_view text, TextRange range) {
  if (text.starts_with(begun) && begun.size() >= range.begin && begun.size() <= range.end) return begun.size();
  std::optional<std::size_t> best;
  std::size_t best_common = 0;
  for (std::size_t at = range.begin; at <= range.end; ++at) {
    const std::size_t common = common_suffix(text.substr(0, at), begun);
    if (common < best_common || !convinces(begun, common)) continue;
    best = at;
    best_common = common;
  }
  return best;
}

/// End of a header that ends no later than `range`, where the turn's content begins, of a template without generation
/// prompt: where `before`, the rendering of the messages before, ends (Llama 2), else, if the template writes a header
/// that it does not offer as a prompt, where the content or its reasoning block begins.
std::size_t header_without_prompt(std::string_view text, TextRange range, std::string_view before) {
  const std::size_t upper = range.end;
  const std::size_t tag = last_reasoning_tag(text, range.begin, upper);
  std::vector<std::size_t> candidates = {upper, before_white_space(text, upper, range.begin)};
  if (tag != kNone) candidates.insert(candidates.end(), {tag, before_white_space(text, tag, range.begin)});
  std::size_t best = kNone;
  std::size_t best_common = 0;
  for (const std::size_t candidate : candidates) {
    const std::size_t common = common_suffix(text.substr(0, candidate), before);
    if (common > best_common && convinces(before, common)) {
      best = candidate;
      best_common = common;
    }
  }
  if (best != kNone) return best;
  const bool reasons = tag != kNone && text.substr(tag, upper - tag).find("</") != kNone;
  return reasons ? tag : upper;
}

}  // namespace

/// One conversation, its rendering, and further renderings of variants of it.
class TurnFinder::Probe {
 public:
  Json messages;
  std::string text;
  Encoded encoded;

  Probe(const Renderer& renderer, const Conversation& conversation)
      : messages(conversation.messages), renderer_(renderer), context_(template_context(*renderer.tokenizer)) {
    context_["tools"] = conversation.tools;
    context_.update(conversation.extras);
  }

  absl::StatusOr<std::string> render(Json variant, bool generation_prompt) const {
    Json context = context_;
    context["messages"] = std::move(variant);
    context["add_generation_prompt"] = generation_prompt;
    return renderer_.chat_template->render(context);
  }

  /// The first `count` messages.
  Json head(std::size_t count) const {
    Json part = Json::array();
    for (std::size_t i = 0; i < count; ++i) part.push_back(messages[i]);
    return part;
  }

  bool has_tools() const { return !context_["tools"].is_null(); }
  absl::Status render_all();
  /// Where the content of `message` stands in `text`. Nothing when it is not there.
  std::optional<Located> locate(std::size_t message) const;
  /// The same for all of `plain` (messages without tool calls) by one rendering; nothing when they do not line up.
  std::optional<std::vector<Located>> locate_together(const std::vector<std::size_t>& plain) const;
  /// What a sentinel stands for: the content, or tool call `call`; `without_calls` takes the calls from the message.
  struct Stands {
    std::optional<std::size_t> call = std::nullopt;
    bool without_calls = false;
  };
  /// A rendering with a sentinel in it, which stands in [first, last).
  struct Marked {
    std::string text;
    std::size_t first = 0;
    std::size_t last = 0;
    std::string tail() const { return text.substr(last); }
  };
  /// The rendering that stops after `message`, with the sentinel for a part of it.
  std::optional<Marked> alone(std::size_t message, bool generation_prompt, Stands stands) const;
  /// The rendering of `variant` with the sentinel for the content of its last message.
  std::optional<Marked> marked_at_end(Json variant, bool generation_prompt) const;
  std::vector<ControlToken> control_tokens_in(std::size_t begin, std::size_t end) const {
    return control_tokens(*renderer_.tokenizer, text, encoded, begin, end);
  }
  /// Those of them that may end a turn: the first, and others up to one that begins turns (some templates write the
  /// next header after the last turn too, asked or not).
  std::vector<ControlToken> ends_in(std::size_t begin, std::size_t end) const {
    std::vector<ControlToken> controls = control_tokens_in(begin, end);
    for (std::size_t i = 1; i < controls.size(); ++i) {
      if (controls[i].id == opening_) controls.resize(i);
    }
    return controls;
  }

 private:
  std::string sentinel(std::size_t number) const { return fmt::format("{}{}q", sentinel_base_, number); }
  std::optional<Marked> marked(Json variant, bool generation_prompt) const;
  std::optional<Located> locate_call(std::size_t message, std::size_t number, bool by_name) const;
  /// Lines `skeleton`, whose sentinels stand in [first, last), up with `text`.
  Located line_up(std::string_view skeleton, std::size_t first, std::size_t last) const;

  Renderer renderer_;
  Json context_;
  std::string sentinel_base_ = "zqx";
  std::optional<TokenId> opening_;  // the control token that `text` begins with, a bos aside: it begins turns
};

absl::Status TurnFinder::Probe::render_all() {
  auto rendered = render(messages, false);
  if (has_list_content(messages) && (!rendered.ok() || shows_list(*rendered))) {
    flatten_contents(messages);
    rendered = render(messages, false);
  }
  if (!rendered.ok()) {
    return absl::Status(rendered.status().code(),
                        fmt::format("the chat template cannot render it: {}", message_of(rendered.status())));
  }
  text = *std::move(rendered);
  encoded = renderer_.tokenizer->encode(text, false);
  opening_ = opening_control(*renderer_.tokenizer, text, encoded);
  while (text.find(sentinel_base_) != kNone) sentinel_base_ += "vx";
  return absl::OkStatus();
}

std::optional<std::vector<TurnFinder::Located>> TurnFinder::Probe::locate_together(
    const std::vector<std::size_t>& plain) const {
  Json variant = messages;
  for (const std::size_t i : plain) replace_content(variant[i], sentinel(i));
  const auto skeleton = render(std::move(variant), false);
  if (!skeleton.ok()) return std::nullopt;
  std::vector<std::string_view> gaps;  // before, between and after the sentinels
  std::size_t from = 0;
  for (const std::size_t i : plain) {
    const std::size_t at = skeleton->find(sentinel(i));
    if (at == kNone || at < from || skeleton->rfind(sentinel(i)) != at) return std::nullopt;
    gaps.push_back(std::string_view(*skeleton).substr(from, at - from));
    from = at + sentinel(i).size();
  }
  gaps.push_back(std::string_view(*skeleton).substr(from));
  const std::string_view whole = text;
  if (whole.substr(0, gaps[0].size()) != gaps[0]) return std::nullopt;
  std::vector<Located> found;
  std::size_t at = gaps[0].size();
  for (std::size_t k = 0; k < plain.size(); ++k) {
    const auto content = content_text(messages[plain[k]]);
    if (!content) return std::nullopt;
    const bool last = k + 1 == plain.size();
    bool placed = false;
    for (const std::string_view form : content_forms(*content)) {
      const std::size_t end = at + form.size();
      if (end > whole.size() || whole.substr(at, form.size()) != form) continue;
      if (whole.substr(end, gaps[k + 1].size()) != gaps[k + 1]) continue;
      if (last && end + gaps[k + 1].size() != whole.size()) continue;
      found.push_back({at, end, 0});
      at = end + gaps[k + 1].size();
      placed = true;
      break;
    }
    if (!placed) return std::nullopt;
  }
  return found;
}

TurnFinder::Located TurnFinder::Probe::line_up(std::string_view skeleton, std::size_t first, std::size_t last) const {
  const std::string_view after = skeleton.substr(last);
  const std::size_t begin = common_prefix(text, skeleton.substr(0, first));
  // Arguments that are empty leave nothing between what the two share: its end is then counted from no sooner than
  // begin.
  const std::size_t shared = std::min(common_suffix(text, after), text.size() - begin);
  return {begin, text.size() - shared, after.size() - shared};
}

std::optional<TurnFinder::Located> TurnFinder::Probe::locate(std::size_t message) const {
  if (calls_tools(messages[message])) {
    // Not every template writes all calls (Llama 3's only the first one): the last that is written ends the turn. Not
    // every template writes any; then the turn is its content.
    for (std::size_t number = calls_of(messages[message]); number-- > 0;) {
      for (const bool by_name : {false, true}) {
        if (const auto call = locate_call(message, number, by_name)) return call;
      }
    }
  }
  Json variant = messages;
  replace_content(variant[message], sentinel(0));
  const auto skeleton = render(std::move(variant), false);
  if (!skeleton.ok()) return std::nullopt;
  const std::size_t first = skeleton->find(sentinel(0));
  if (first == kNone) return std::nullopt;
  return line_up(*skeleton, first, skeleton->rfind(sentinel(0)) + sentinel(0).size());
}

std::optional<TurnFinder::Located> TurnFinder::Probe::locate_call(std::size_t message, std::size_t number,
                                                                  bool by_name) const {
  Json variant = messages;
  const auto content = content_text(messages[message]);
  const bool has_content = content && !content->empty();
  if (has_content) replace_content(variant[message], sentinel(0));
  replace_call(variant[message], number, sentinel(1), by_name);
  const auto skeleton = render(std::move(variant), false);
  if (!skeleton.ok()) return std::nullopt;
  const std::size_t call = skeleton->rfind(sentinel(1));
  if (call == kNone) return std::nullopt;
  const std::size_t first = std::min(skeleton->find(sentinel(0)), skeleton->find(sentinel(1)));
  const std::size_t words = skeleton->rfind(sentinel(0));
  const bool words_last = has_content && words != kNone && words > call;
  Located located = line_up(*skeleton, first, words_last ? words + sentinel(0).size() : call + sentinel(1).size());
  located.call = number;
  located.content_last = words_last;
  return located;
}

std::optional<TurnFinder::Probe::Marked> TurnFinder::Probe::marked(Json variant, bool generation_prompt) const {
  auto rendered = render(std::move(variant), generation_prompt);
  if (!rendered.ok()) return std::nullopt;
  const std::string mark = sentinel(0);
  const std::size_t first = rendered->find(mark);
  if (first == kNone) return std::nullopt;
  const std::size_t last = rendered->rfind(mark) + mark.size();
  return Marked{*std::move(rendered), first, last};
}

std::optional<TurnFinder::Probe::Marked> TurnFinder::Probe::marked_at_end(Json variant, bool generation_prompt) const {
  replace_content(variant.back(), sentinel(0));
  return marked(std::move(variant), generation_prompt);
}

std::optional<TurnFinder::Probe::Marked> TurnFinder::Probe::alone(std::size_t message, bool generation_prompt,
                                                                  Stands stands) const {
  Json variant = head(message + 1);
  Json& turn = variant[message];
  if (stands.without_calls) {
    turn.erase("tool_calls");
    turn.erase("function_call");
  }
  if (stands.call) {
    replace_call(turn, *stands.call, sentinel(0), false);
  } else {
    replace_content(turn, sentinel(0));
  }
  return marked(std::move(variant), generation_prompt);
}

TurnFinder::TurnFinder(const Renderer& renderer) : renderer_(renderer) {}

absl::StatusOr<RenderedConversation> TurnFinder::render(const Conversation& conversation, bool find_turns) {
  Probe probe(renderer_, conversation);
  RONDO_RETURN_IF_ERROR(probe.render_all());
  std::vector<std::size_t> assistants;
  std::vector<std::size_t> plain;
  for (std::size_t i = 0; i < probe.messages.size(); ++i) {
    if (!is_assistant(probe.messages[i])) continue;
    assistants.push_back(i);
    if (!calls_tools(probe.messages[i])) plain.push_back(i);
  }
  RenderedConversation result;
  result.assistant_messages = assistants.size();
  if (find_turns && !assistants.empty()) {
    const auto together = plain.empty() ? std::nullopt : probe.locate_together(plain);
    std::size_t lower = 0;
    std::size_t next_plain = 0;
    for (const std::size_t i : assistants) {
      const bool is_plain = !calls_tools(probe.messages[i]);
      const auto content = is_plain && together ? std::optional<Located>((*together)[next_plain++]) : probe.locate(i);
      if (!content) continue;
      const std::size_t begin = find_header(probe, i, *content, lower);
      const std::size_t end = std::max(begin, find_end(probe, i, *content, lower));
      result.turns.push_back({{begin, end}, is_learned(probe.messages[i])});
      lower = end;
    }
  }
  result.text = std::move(probe.text);
  result.encoded = std::move(probe.encoded);
  return result;
}

const std::string& TurnFinder::generation_prompt(const Probe& probe, std::size_t message) {
  const std::string before = message == 0 ? "" : probe.messages[message - 1]["role"].get<std::string>();
  auto& prompts = learned_[probe.has_tools() ? 1 : 0].generation_prompts;
  const auto known = prompts.find(before);
  if (known != prompts.end()) return known->second;
  return prompts.emplace(before, learn_generation_prompt(probe, message)).first->second;
}

/// What the template adds after the messages before `message` when it is asked for a generation prompt, up to a
/// reasoning block; empty when it adds nothing. Without a word of these messages: others are looked through for it.
std::string TurnFinder::learn_generation_prompt(const Probe& probe, std::size_t message) const {
  std::vector<Json> histories;
  if (message > 0) histories.push_back(probe.head(message));
  // The first message has none before it, some templates refuse to stop there, and some write an assistant's last turn
  // otherwise than one that is gone on from: then a question of our own.
  histories.push_back(Json::parse(R"([{"role": "user", "content": "zq"}])"));
  const auto learned = [](std::string_view added) {
    added = before_reasoning(added);
    return std::string(before_white_space(added, added.size(), 0) == 0 ? std::string_view() : added);
  };
  for (const Json& history : histories) {
    const auto with = probe.render(history, true);
    const auto without = probe.render(history, false);
    if (with.ok() && without.ok() && with->starts_with(*without)) {
      return learned(std::string_view(*with).substr(without->size()));
    }
  }
  // The template closes a conversation that is not gone on from: what is added stands where the closing stood.
  for (const Json& history : histories) {
    const auto with = probe.marked_at_end(history, true);
    const auto without = probe.marked_at_end(history, false);
    if (!with || !without) continue;
    const std::string tail = with->tail();
    const std::size_t differ = common_prefix(tail, without->tail());
    const std::size_t begin = snap_to_token(renderer_.tokenizer->encode(tail, false), differ, 0);
    return learned(std::string_view(tail).substr(begin));
  }
  return "";
}

/// End of the header of `message`, whose content stands at `located`; the turn before it ends at `lower`.
std::size_t TurnFinder::find_header(const Probe& probe, std::size_t message, const Located& located,
                                    std::size_t lower) {
  const std::string_view text = probe.text;
  const std::size_t upper = std::max(lower, located.begin);
  const std::string& prompt = generation_prompt(probe, message);
  const std::string_view full = prompt;
  for (const std::string_view header : {full, full.substr(0, before_white_space(full, full.size(), 0))}) {
    // What was learned as prompt may begin with the end of the turn before, so only its end must lie in the turn.
    std::vector<std::size_t> ends;
    for (std::size_t at = text.substr(0, upper).rfind(header); !header.empty() && at != kNone;
         at = at == 0 ? kNone : text.substr(0, at + header.size() - 1).rfind(header)) {
      if (at + header.size() < lower) break;
      ends.push_back(at + header.size());
    }
    if (ends.size() == 1) return ends.front();
    if (!ends.empty()) return likeliest_header(probe, message, ends);
  }
  const auto before = message == 0 ? std::string() : probe.render(probe.head(message), true).value_or("");
  if (located.call) {
    if (const auto end = header_of_calls(probe, message, before, {lower, upper})) return *end;
  }
  return header_without_prompt(text, {end_of_message_before(probe, message, {lower, upper}), upper}, before);
}

/// Where in `range`, which ends with the content of `message`, the message before ends, if that matters: what looks
/// like a reasoning block may be a question's words. `range.begin` where it does not matter or is not known.
std::size_t TurnFinder::end_of_message_before(const Probe& probe, std::size_t message, TextRange range) {
  if (message == 0 || last_reasoning_tag(probe.text, range.begin, range.end) == kNone) return range.begin;
  const auto closed = probe.render(probe.head(message), false);
  if (!closed.ok()) return range.begin;
  const std::string_view words = std::string_view(*closed).substr(0, before_white_space(*closed, closed->size(), 0));
  return end_of(words, probe.text, range).value_or(range.begin);
}

/// End of the header of a turn that calls tools, somewhere in `range`. Its content, which begins with the calls, shows
/// no end of a header, but the same turn with a content in place of the calls does: the header is as much as both
/// share.
std::optional<std::size_t> TurnFinder::header_of_calls(const Probe& probe, std::size_t message, std::string_view before,
                                                       TextRange range) const {
  const bool unknown = message > 0 && before.empty();  // the template refuses to stop there
  const auto plain = probe.alone(message, false, {.without_calls = true});
  const auto calling = probe.render(probe.head(message + 1), false);
  if (!plain || !calling.ok()) return before.empty() ? std::nullopt : end_of(before, probe.text, range);
  // Earlier turns may reason too: no more than what follows them is looked through.
  const auto from = unknown ? std::nullopt : end_of(before, plain->text, {0, plain->first});
  const std::size_t header = from ? header_without_prompt(plain->text, {*from, plain->first}, before) : plain->first;
  const std::size_t shared = std::min(header, common_prefix(plain->text, *calling));
  return end_of(std::string_view(plain->text).substr(0, shared), probe.text, range);
}

/// Of several places that read like the header's end (`ends`, last first) the one before which the text is as it would
/// be at the generation prompt: others are forged by the message before or belong to a part of the turn itself.
std::size_t TurnFinder::likeliest_header(const Probe& probe, std::size_t message,
                                         const std::vector<std::size_t>& ends) const {
  const std::string_view text = probe.text;
  const auto before = message == 0 ? std::string() : probe.render(probe.head(message), true).value_or("");
  const std::size_t prompt_end = before_reasoning_at_end(before);
  std::size_t best = ends.front();
  std::size_t best_common = 0;
  for (const std::size_t end : ends) {
    const std::size_t common = common_suffix(text.substr(0, end), std::string_view(before).substr(0, prompt_end));
    if (common > best_common) {
      best = end;
      best_common = common;
    }
  }
  return best;
}

/// End of the turn of `message`, whose content stands at `located`; the turn before it ends at `lower`.
std::size_t TurnFinder::find_end(const Probe& probe, std::size_t message, const Located& located, std::size_t lower) {
  const std::size_t content_end = std::max(lower, located.end);
  const std::string_view tail = std::string_view(probe.text).substr(content_end);
  auto& plain_tails = learned_[probe.has_tools() ? 1 : 0].plain_tails;
  if (!located.call) {
    for (const std::string& known : plain_tails) {
      if (tail.substr(0, known.size()) == known) return content_end + known.size();
    }
  }
  const auto tail_of = [&](bool generation_prompt) {
    const auto part = located.content_last ? std::nullopt : located.call;
    const auto alone = probe.alone(message, generation_prompt, {.call = part});
    if (!alone) return std::optional<std::string>();
    std::string rest = alone->tail();
    if (located.skipped <= rest.size()) rest.erase(0, located.skipped);
    return std::optional(std::move(rest));
  };
  // How far the text agrees with another ending of the turn, in whole tokens.
  const auto agreed = [&](const std::optional<std::string>& other) {
    const std::size_t shared = other ? common_prefix(tail, *other) : 0;
    return snap_to_token(probe.encoded, content_end + shared, content_end);
  };
  std::size_t bound = probe.text.size();  // of the last turn, all that follows may belong to it
  std::vector<ControlToken> controls;
  if (message + 1 < probe.messages.size()) {
    const auto alone = tail_of(false);
    if (alone) bound = agreed(alone);
    controls = probe.ends_in(content_end, bound);
    // A template may end the last turn otherwise than this one: then the turn before a generation prompt tells.
    const bool ends_otherwise = controls.empty() && alone && !controls_of(*alone).empty();
    if (ends_otherwise) {
      controls = probe.ends_in(content_end, agreed(tail_of(true)));
      // Both go on with the next header, which may begin with the same token: only the first is sure.
      controls.resize(std::min<std::size_t>(controls.size(), 1));
    }
  } else {
    // What only ends the conversation is no part of the turn: the turn before a generation prompt lacks it.
    controls = probe.ends_in(content_end, agreed(tail_of(true)));
    if (controls.empty()) return end_of_last(probe, located, content_end);
  }
  if (controls.empty()) return end_before_next(probe, message, content_end).value_or(bound);
  if (located.call) return end_of_calls(probe, message, controls);
  const std::size_t end = end_of_run(controls);
  if (end > content_end) plain_tails.emplace_back(tail.substr(0, end - content_end));
  return end;
}

/// End of a turn that shares no end with the rendering that stops after it, because that has none (some templates write
/// it only where another message follows) or is written otherwise before it (the ids of calls that have no result): the
/// token that ends the turn in that rendering, or a sequence, where it stands before the next message's content.
/// Results of calls may stand within the turn.
std::optional<std::size_t> TurnFinder::end_before_next(const Probe& probe, std::size_t message,
                                                       std::size_t content_end) const {
  std::optional<Located> next;
  for (std::size_t i = message + 1; i < probe.messages.size() && (!next || next->begin < content_end); ++i) {
    next = probe.locate(i);
    if (!next) return std::nullopt;
  }
  if (!next) return std::nullopt;
  const auto plain = probe.alone(message, false, {.without_calls = true});
  const auto ends = controls_of(plain ? plain->tail() : "");
  const std::optional<TokenId> end = ends.empty() ? renderer_.tokenizer->eos_id() : ends.front().id;
  for (const ControlToken& control : probe.control_tokens_in(content_end, next->begin)) {
    if (control.id == end) return control.end;
  }
  return std::nullopt;
}

/// End of a last turn whose end nothing else shows: its first control token, or the end of the text.
std::size_t TurnFinder::end_of_last(const Probe& probe, const Located& located, std::size_t content_end) const {
  const auto controls = probe.ends_in(content_end, probe.text.size());
  if (controls.empty()) return probe.text.size();
  return located.call ? end_of_calls(probe, probe.messages.size() - 1, controls) : end_of_run(controls);
}

/// Calls may be written with special tokens too: the one that ends the turn without calls decides, else the last.
std::size_t TurnFinder::end_of_calls(const Probe& probe, std::size_t message,
                                     const std::vector<ControlToken>& controls) const {
  const auto plain = probe.alone(message, false, {.without_calls = true});
  const auto ends = controls_of(plain ? plain->tail() : "");
  for (const ControlToken& control : controls) {
    if (!ends.empty() && control.id == ends.front().id) return control.end;
  }
  return controls.back().end;
}

std::vector<ControlToken> TurnFinder::controls_of(std::string_view text) const {
  return control_tokens(*renderer_.tokenizer, text, renderer_.tokenizer->encode(text, false), 0, text.size());
}

}  // namespace rondo::data
