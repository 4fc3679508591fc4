// Text helpers of the turn finder; see turn_text.h.
#include "turn_text.h"

#include <algorithm>
#include <array>

namespace rondo::data {
namespace {

constexpr std::string_view kSpaceOfText = " \t\r\n\f\v";
constexpr std::array<std::string_view, 8> kReasoningTags = {
    "<think>", "<thinking>", "<thought>", "<reasoning>", "<|think|>", "[THINK]", "<seed:think>", "<|START_THINKING|>"};
constexpr std::string_view kReasoningEnd = "</think>";

std::string_view trimmed(std::string_view text, bool front, bool back, std::string_view set) {
  if (front) text.remove_prefix(std::min(text.find_first_not_of(set), text.size()));
  if (back) text = text.substr(0, text.find_last_not_of(set) + 1);
  return text;
}

/// A word such as <end_of_turn> that the tokenizer knows as one token without calling it special.
bool is_tag(std::string_view token) { return token.size() >= 3 && token.front() == '<' && token.back() == '>'; }

}  // namespace

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}

std::size_t common_suffix(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return static_cast<std::size_t>(ends.first - a.rbegin());
}

std::size_t snap_to_token(const Encoded& encoded, std::size_t at, std::size_t lower) {
  for (const TextRange& range : encoded.ranges) {
    if (range.begin >= lower && range.begin < at && at < range.end) return range.begin;
  }
  return at;
}

std::vector<ControlToken> control_tokens(const Tokenizer& tokenizer, std::string_view text, const Encoded& encoded,
                                         std::size_t begin, std::size_t end) {
  std::vector<ControlToken> special;
  std::vector<ControlToken> tags;
  for (std::size_t t = 0; t < encoded.ids.size(); ++t) {
    const TextRange& range = encoded.ranges[t];
    if (range.begin < begin || range.end > end || range.begin >= range.end) continue;
    const TokenId id = encoded.ids[t];
    const std::string_view written = text.substr(range.begin, range.end - range.begin);
    if (tokenizer.is_special(id)) {
      special.push_back({id, range.begin, range.end});
    } else if (is_tag(written) && tokenizer.token_of(id) == written) {
      tags.push_back({id, range.begin, range.end});
    }
  }
  return special.empty() ? tags : special;
}

std::optional<TokenId> opening_control(const Tokenizer& tokenizer, std::string_view text, const Encoded& encoded) {
  const auto controls = control_tokens(tokenizer, text, encoded, 0, text.size());
  const auto is_bos = [&](const ControlToken& control) {
    return control.begin == 0 && tokenizer.token_of(control.id) == tokenizer.bos_token();
  };
  const std::size_t at = !controls.empty() && is_bos(controls.front()) ? 1 : 0;
  if (at == controls.size() || controls[at].begin != (at == 0 ? 0 : controls[0].end)) return std::nullopt;
  if (controls[at].id == tokenizer.eos_id()) return std::nullopt;
  return controls[at].id;
}

std::size_t end_of_run(const std::vector<ControlToken>& controls) {
  std::size_t end = controls.front().end;
  for (const ControlToken& control : controls) {
    if (control.begin == end) end = control.end;
  }
  return end;
}

std::size_t last_reasoning_tag(std::string_view text, std::size_t begin, std::size_t end) {
  std::size_t last = std::string_view::npos;
  const std::string_view part = text.substr(begin, end - begin);
  for (const std::string_view tag : kReasoningTags) {
    const std::size_t at = part.rfind(tag);
    if (at != std::string_view::npos && (last == std::string_view::npos || begin + at > last)) last = begin + at;
  }
  return last;
}

std::string_view before_reasoning(std::string_view text) {
  for (const std::string_view tag : kReasoningTags) text = text.substr(0, text.find(tag));
  return text;
}

std::size_t before_reasoning_at_end(std::string_view prompt) {
  const std::string_view words = trimmed(prompt, false, true, kSpaceOfText);
  for (const std::string_view tag : kReasoningTags) {
    if (words.size() >= tag.size() && words.substr(words.size() - tag.size()) == tag) return words.size() - tag.size();
  }
  return prompt.size();
}

std::size_t before_white_space(std::string_view text, std::size_t end, std::size_t lower) {
  while (end > lower && kSpaceOfText.find(text[end - 1]) != std::string_view::npos) --end;
  return end;
}

bool calls_tools(const Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls != message.end() && calls->is_array() && !calls->empty()) return true;
  const auto call = message.find("function_call");
  return call != message.end() && call->is_object();
}

void replace_content(Json& message, const std::string& sentinel) {
  Json& content = message["content"];
  if (!content.is_array()) {
    content = sentinel;
    return;
  }
  Json part = Json::object();
  part["type"] = "text";
  part["text"] = sentinel;
  content = Json::array();
  content.push_back(std::move(part));
}

std::size_t calls_of(const Json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty() ? calls->size() : 1;
}

void replace_call(Json& message, std::size_t number, const std::string& sentinel, bool name) {
  const auto calls = message.find("tool_calls");
  const bool listed = calls != message.end() && calls->is_array() && !calls->empty();
  Json* call = listed ? &(*calls)[number] : &message["function_call"];
  if (call->contains("function") && (*call)["function"].is_object()) call = &(*call)["function"];
  if (name || !call->contains("arguments")) {
    (*call)["name"] = sentinel;
    return;
  }
  Json& arguments = (*call)["arguments"];
  if (arguments.is_string()) {
    arguments = sentinel;
  } else {
    arguments = Json::object();
    arguments[sentinel] = sentinel;
  }
}

std::vector<std::string_view> content_forms(std::string_view content) {
  std::vector<std::string_view> forms = {content, trimmed(content, true, false, kSpaceOfText),
                                         trimmed(content, false, true, kSpaceOfText),
                                         trimmed(content, true, true, kSpaceOfText)};
  const std::size_t reasoning = content.rfind(kReasoningEnd);
  if (reasoning != std::string_view::npos) {
    const std::string_view rest = content.substr(reasoning + kReasoningEnd.size());
    forms.push_back(rest);
    forms.push_back(trimmed(rest, true, false, "\n"));
    forms.push_back(trimmed(rest, true, false, kSpaceOfText));
    forms.push_back(trimmed(rest, true, true, kSpaceOfText));
  }
  std::stable_sort(forms.begin(), forms.end(), [](auto a, auto b) { return a.size() > b.size(); });
  return forms;
}

std::optional<std::string_view> content_text(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end()) return std::nullopt;
  if (content->is_string()) return content->get_ref<const std::string&>();
  if (content->is_array() && content->size() == 1) return (*content)[0]["text"].get_ref<const std::string&>();
  return std::nullopt;
}

void flatten_contents(Json& messages) {
  for (Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    std::string joined;
    for (const Json& part : *content) joined += part["text"].get_ref<const std::string&>();
    *content = std::move(joined);
  }
}

}  // namespace rondo::data
