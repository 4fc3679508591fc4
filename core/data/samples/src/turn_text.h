// Comparing rendered texts and telling control tokens: what turn_finder.cpp is built from.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record_format.h"
#include "rondo/data/tokenizer.h"

namespace rondo::data {

std::size_t common_prefix(std::string_view a, std::string_view b);
std::size_t common_suffix(std::string_view a, std::string_view b);

/// `at`, moved to the start of the token that it falls inside of; tokens that begin before `lower` do not count.
std::size_t snap_to_token(const Encoded& encoded, std::size_t at, std::size_t lower);

/// The control tokens within [begin, end): special ones, or, if there are none, such as are written <...>.
struct ControlToken {
  TokenId id = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};
std::vector<ControlToken> control_tokens(const Tokenizer& tokenizer, std::string_view text, const Encoded& encoded,
                                         std::size_t begin, std::size_t end);

/// The control token that `text` begins with, behind its bos; nothing where it is the eos or begins with words.
std::optional<TokenId> opening_control(const Tokenizer& tokenizer, std::string_view text, const Encoded& encoded);

/// End of the first control token and of those that touch it; `controls` must not be empty.
std::size_t end_of_run(const std::vector<ControlToken>& controls);

/// Where the last opening tag of a reasoning block (<think> and its like) starts in [begin, end), or npos.
std::size_t last_reasoning_tag(std::string_view text, std::size_t begin, std::size_t end);
/// `text` up to its first opening tag of a reasoning block.
std::string_view before_reasoning(std::string_view text);

/// Length of `prompt` without the opening tag of a reasoning block that it ends with, if it does.
std::size_t before_reasoning_at_end(std::string_view prompt);

/// `end`, moved back over white space, not below `lower`.
std::size_t before_white_space(std::string_view text, std::size_t end, std::size_t lower);

/// True when the message calls tools.
bool calls_tools(const Json& message);
/// Puts `sentinel` in place of the content, as a string or as a list of one part, as it was.
void replace_content(Json& message, const std::string& sentinel);
/// Tool calls of a message that calls tools.
std::size_t calls_of(const Json& message);
/// Puts `sentinel` in place of the arguments of tool call `number`; with `name` in place of the function's name.
void replace_call(Json& message, std::size_t number, const std::string& sentinel, bool name);

/// Forms in which templates write a content, longest first: as it is, trimmed, or what follows its reasoning block.
std::vector<std::string_view> content_forms(std::string_view content);

/// The content's text: of a string, or of a list with one part; nothing otherwise.
std::optional<std::string_view> content_text(const Json& message);

/// Joins lists of text parts to one string, in every message.
void flatten_contents(Json& messages);

}  // namespace rondo::data
