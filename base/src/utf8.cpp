// The lead byte says how long a sequence is; four lead bytes narrow the byte after them.
#include "rondo/base/utf8.h"

#include <cstdint>
#include <cstring>

namespace rondo {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

/// A word of ASCII at once: most text is nothing else.
bool begins_with_ascii(std::string_view text) {
  if (text.size() < kWord) return false;
  std::uint64_t word = 0;
  std::memcpy(&word, text.data(), kWord);
  return (word & 0x8080808080808080U) == 0;
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned { return static_cast<unsigned char>(text[at + i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (length > text.size() - at) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  }
  const unsigned second = byte(1);
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90)) return 0;  // longer than needed
  if ((lead == 0xed && second > 0x9f) || (lead == 0xf4 && second > 0x8f)) return 0;  // surrogates, past U+10FFFF
  return length;
}

std::size_t utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = begins_with_ascii(text.substr(at)) ? kWord : utf8_length(text, at);
    if (length == 0) break;
    at += length;
  }
  return at;
}

bool is_utf8(std::string_view text) { return utf8_prefix(text) == text.size(); }

void append_utf8(std::string& text, char32_t code_point) {
  const auto put = [&text](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xc0U | (code_point >> 6U));
  } else {
    if (code_point < 0x10000) {
      put(0xe0U | (code_point >> 12U));
    } else {
      put(0xf0U | (code_point >> 18U));
      put(0x80U | ((code_point >> 12U) & 0x3fU));
    }
    put(0x80U | ((code_point >> 6U) & 0x3fU));
  }
  put(0x80U | (code_point & 0x3fU));
}

}  // namespace rondo
