#include "post_processor.h"

#include <algorithm>
#include <utility>

#include "unicode.h"
#include "utf8.h"

namespace rondo::data::tok {
namespace {

constexpr char32_t kSpelledBlank = 0x120;

bool is_space(char32_t c) { return c == kSpelledBlank || is_white_space(c); }

// `count` characters on from `at`, at most to `limit`.
std::size_t forward(std::string_view text, std::size_t at, std::size_t count, std::size_t limit) {
  for (; count > 0 && at < limit; --count) at += decode_utf8(text, at).size;
  return std::min(at, limit);
}

// `count` characters back from `at`, or `at` where there are not that many.
std::size_t backward(std::string_view text, std::size_t at, std::size_t count) {
  std::size_t begin = at;
  for (; count > 0; --count) {
    if (begin == 0) return at;
    begin = character_begin(text, begin - 1);
  }
  return begin;
}

void trim(const TrimRanges& step, std::string_view text, std::vector<PlacedToken>& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    PlacedToken& token = tokens[i];
    TextRange& range = token.range;
    const bool first = i == 0 || range.begin == 0;
    const bool added = first && step.add_prefix_space && token.leading_spaces == 1;
    if (!added) range.begin = forward(text, range.begin, token.leading_spaces, range.end);
    if (token.trailing_spaces > 0) {
      range.end = std::max(backward(text, range.end, token.trailing_spaces), range.begin);
    }
  }
}

void apply(const Template& step, bool add_special_tokens, std::vector<PlacedToken>& tokens) {
  std::vector<PlacedToken> out;
  out.reserve(tokens.size() + step.parts.size());
  for (const Template::Part& part : step.parts) {
    if (part.text) {
      out.insert(out.end(), tokens.begin(), tokens.end());
    } else if (add_special_tokens) {
      for (const TokenId id : part.ids) out.push_back({id, {}, 0, 0});
    }
  }
  std::swap(tokens, out);
}

}  // namespace

void post_process(const std::vector<PostProcessor>& steps, std::string_view text, bool add_special_tokens,
                  std::vector<PlacedToken>& tokens) {
  for (const PostProcessor& step : steps) {
    if (const auto* const ranges = std::get_if<TrimRanges>(&step)) {
      trim(*ranges, text, tokens);
    } else {
      apply(std::get<Template>(step), add_special_tokens, tokens);
    }
  }
}

void count_spaces(std::string_view token, std::size_t& leading, std::size_t& trailing) {
  leading = 0;
  trailing = 0;
  bool only_spaces = true;
  for (std::size_t i = 0; i < token.size();) {
    const CodePoint c = decode_valid_utf8(token, i);
    i += c.size;
    const bool space = is_space(c.value);
    trailing = space ? trailing + 1 : 0;
    only_spaces = only_spaces && space;
    if (only_spaces) ++leading;
  }
}

}  // namespace rondo::data::tok
