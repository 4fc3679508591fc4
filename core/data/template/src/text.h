// Text as Python's str sees it: code points over UTF-8, Unicode case mapping, white space, line ends.
//
// Every text given here is valid UTF-8. Functions keep no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::data::jinja {

std::size_t code_point_count(std::string_view text);
/// Byte offset of the code point with this index; the text's size when there are fewer.
std::size_t byte_offset(std::string_view text, std::size_t index);
/// The code point at byte `position`, which moves past it.
char32_t next_code_point(std::string_view text, std::size_t& position);

/// str.isspace of one code point.
bool is_space(char32_t code_point);
/// Of ASCII.
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
/// str.isprintable of one code point.
bool is_printable(char32_t code_point);
bool is_identifier_start(char32_t code_point);
bool is_identifier_part(char32_t code_point);

/// Case mapping of rare letters is slow work: whoever asks for it counts a step for so many bytes.
inline constexpr std::size_t kBytesPerCaseStep = 16;
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);
std::string swap_case(std::string_view text);

enum class CharacterTest { kAlnum, kAlpha, kDecimal, kDigit, kNumeric, kSpace, kPrintable };
/// True when the text is not empty and every code point passes (an empty text is printable).
bool all_characters(std::string_view text, CharacterTest test);
/// str.islower (`upper_case` false) or str.isupper.
bool is_cased_as(std::string_view text, bool upper_case);

enum class Side { kLeft, kRight, kBoth };
std::string_view strip_space(std::string_view text, Side side);
std::string_view strip_characters(std::string_view text, std::string_view characters, Side side);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
/// As std::string_view::find, but in linear time whatever the texts: a template is not trusted.
std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from = 0);
/// Where `wanted`, which is not empty, stands without overlap, in the order found from that side; at most `limit`
/// unless < 0.
std::vector<std::size_t> find_all(std::string_view text, std::string_view wanted, std::int64_t limit, bool from_right);
std::string replace_all(std::string_view text, std::string_view from, std::string_view to, std::int64_t count);
/// & < > " ' as character references, the way Markup escapes.
std::string escape_html(std::string_view text);

}  // namespace rondo::data::jinja
