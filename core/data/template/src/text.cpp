// Unicode properties and case mapping come from ICU; ASCII text, nearly all there is, takes a short way.
#include "text.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <cstring>

namespace rondo::data::jinja {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

icu::UnicodeString to_icu(std::string_view text) {
  return icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

std::string from_icu(const icu::UnicodeString& text) {
  std::string result;
  text.toUTF8String(result);
  return result;
}

std::string title_of(std::string_view character) {
  if (is_ascii(character)) return upper(character);
  return from_icu(to_icu(character).toTitle(nullptr, icu::Locale::getRoot()));
}

UChar32 icu_code(char32_t code_point) { return static_cast<UChar32>(code_point); }

bool passes(char32_t c, CharacterTest test) {
  const int8_t category = u_charType(icu_code(c));
  const int32_t numeric = u_getIntPropertyValue(icu_code(c), UCHAR_NUMERIC_TYPE);
  const bool alpha = category >= U_UPPERCASE_LETTER && category <= U_OTHER_LETTER;
  switch (test) {
    case CharacterTest::kAlnum:
      return alpha || numeric != U_NT_NONE;
    case CharacterTest::kAlpha:
      return alpha;
    case CharacterTest::kDecimal:
      return numeric == U_NT_DECIMAL;
    case CharacterTest::kDigit:
      return numeric == U_NT_DECIMAL || numeric == U_NT_DIGIT;
    case CharacterTest::kNumeric:
      return numeric != U_NT_NONE;
    case CharacterTest::kSpace:
      return is_space(c);
    case CharacterTest::kPrintable:
      return is_printable(c);
  }
  return false;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

/// Start of the code point that ends before `end`.
std::size_t previous_start(std::string_view text, std::size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U);
  return end;
}

template <typename Strips>
std::string_view strip_if(std::string_view text, Side side, Strips strips) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (side != Side::kRight && begin < end) {
    std::size_t next = begin;
    if (!strips(next_code_point(text, next))) break;
    begin = next;
  }
  while (side != Side::kLeft && end > begin) {
    const std::size_t start = previous_start(text, end);
    std::size_t position = start;
    if (!strips(next_code_point(text, position))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

std::size_t code_point_count(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t position = 0;
  while (index > 0 && position < text.size()) {
    next_code_point(text, position);
    --index;
  }
  return position;
}

char32_t next_code_point(std::string_view text, std::size_t& position) {
  const auto lead = static_cast<unsigned char>(text[position++]);
  if (lead < 0x80) return lead;
  char32_t code_point = lead >= 0xF0 ? lead & 0x07U : lead >= 0xE0 ? lead & 0x0FU : lead & 0x1FU;
  const std::size_t most = position + (lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1);
  while (position < std::min(most, text.size()) && (static_cast<unsigned char>(text[position]) & 0xC0U) == 0x80U) {
    code_point = (code_point << 6U) | (static_cast<unsigned char>(text[position++]) & 0x3FU);
  }
  return code_point;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || u_charType(icu_code(c)) == U_SPACE_SEPARATOR || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (u_charType(icu_code(c))) {
    case U_CONTROL_CHAR:
    case U_FORMAT_CHAR:
    case U_SURROGATE:
    case U_PRIVATE_USE_CHAR:
    case U_UNASSIGNED:
    case U_LINE_SEPARATOR:
    case U_PARAGRAPH_SEPARATOR:
    case U_SPACE_SEPARATOR:
      return false;
    default:
      return true;
  }
}

bool is_identifier_start(char32_t c) { return c == '_' || u_hasBinaryProperty(icu_code(c), UCHAR_XID_START) != 0; }

bool is_identifier_part(char32_t c) { return u_hasBinaryProperty(icu_code(c), UCHAR_XID_CONTINUE) != 0; }

std::string upper(std::string_view text) {
  if (!is_ascii(text)) return from_icu(to_icu(text).toUpper(icu::Locale::getRoot()));
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), ascii_upper);
  return result;
}

std::string lower(std::string_view text) {
  if (!is_ascii(text)) return from_icu(to_icu(text).toLower(icu::Locale::getRoot()));
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), ascii_lower);
  return result;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t first = byte_offset(text, 1);
  // Lowered as a whole, because a final sigma depends on what stands before it.
  const std::string lowered = lower(text);
  const std::size_t lowered_first = lower(text.substr(0, first)).size();
  return title_of(text.substr(0, first)) + lowered.substr(std::min(lowered_first, lowered.size()));
}

std::string title(std::string_view text) {
  std::string result;
  bool in_word = false;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t start = position;
    const char32_t c = next_code_point(text, position);
    const std::string_view character = text.substr(start, position - start);
    result += in_word ? lower(character) : title_of(character);
    in_word = u_hasBinaryProperty(icu_code(c), UCHAR_CASED) != 0;
  }
  return result;
}

std::string swap_case(std::string_view text) {
  std::string result;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t start = position;
    const char32_t c = next_code_point(text, position);
    const std::string_view character = text.substr(start, position - start);
    result += u_hasBinaryProperty(icu_code(c), UCHAR_UPPERCASE) != 0 ? lower(character) : upper(character);
  }
  return result;
}

bool all_characters(std::string_view text, CharacterTest test) {
  for (std::size_t position = 0; position < text.size();) {
    if (!passes(next_code_point(text, position), test)) return false;
  }
  return !text.empty() || test == CharacterTest::kPrintable;
}

bool is_cased_as(std::string_view text, bool upper_case) {
  bool cased = false;
  for (std::size_t position = 0; position < text.size();) {
    const UChar32 c = icu_code(next_code_point(text, position));
    const bool is_upper = u_hasBinaryProperty(c, UCHAR_UPPERCASE) != 0;
    const bool is_lower = u_hasBinaryProperty(c, UCHAR_LOWERCASE) != 0;
    if (u_charType(c) == U_TITLECASE_LETTER || (upper_case ? is_lower : is_upper)) return false;
    cased = cased || is_upper || is_lower;
  }
  return cased;
}

std::string_view strip_space(std::string_view text, Side side) { return strip_if(text, side, is_space); }

std::string_view strip_characters(std::string_view text, std::string_view characters, Side side) {
  std::u32string set;
  for (std::size_t position = 0; position < characters.size();) set += next_code_point(characters, position);
  std::sort(set.begin(), set.end());
  return strip_if(text, side, [&set](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t line = 0;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t end = position;
    const char32_t c = next_code_point(text, position);
    if (!is_line_end(c)) continue;
    if (c == '\r' && position < text.size() && text[position] == '\n') ++position;
    lines.push_back(text.substr(line, (keep_ends ? position : end) - line));
    line = position;
  }
  if (line < text.size()) lines.push_back(text.substr(line));
  return lines;
}

std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  const std::string_view rest = text.substr(from);
  const void* const found = memmem(rest.data(), rest.size(), wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::vector<std::size_t> find_all(std::string_view text, std::string_view wanted, std::int64_t limit, bool from_right) {
  if (from_right) {
    const std::string backwards(text.rbegin(), text.rend());
    std::vector<std::size_t> found = find_all(backwards, std::string(wanted.rbegin(), wanted.rend()), limit, false);
    for (std::size_t& position : found) position = text.size() - position - wanted.size();
    return found;
  }
  std::vector<std::size_t> found;
  for (std::size_t at = find_text(text, wanted); at != std::string_view::npos; at = find_text(text, wanted, at)) {
    if (limit >= 0 && static_cast<std::int64_t>(found.size()) >= limit) break;
    found.push_back(at);
    at += wanted.size();
  }
  return found;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to, std::int64_t count) {
  std::string result;
  std::size_t position = 0;
  while (count != 0) {
    if (from.empty()) {
      // Between all code points, before the first and after the last.
      result += to;
      if (position >= text.size()) return result;
      const std::size_t start = position;
      next_code_point(text, position);
      result += text.substr(start, position - start);
    } else {
      const std::size_t found = find_text(text, from, position);
      if (found == std::string_view::npos) break;
      result += text.substr(position, found - position);
      result += to;
      position = found + from.size();
    }
    if (count > 0) --count;
  }
  result += text.substr(position);
  return result;
}

std::string escape_html(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&#34;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace rondo::data::jinja
