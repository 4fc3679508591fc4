// UTF-8 by hand: the room's texts are byte strings that have been made well-formed once, at the door.
//
// Ill-formed input counts as U+FFFD, one for every maximal subpart, as Unicode recommends and as Python's and Rust's
// lossy conversions do.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rondo/base/utf8.h"

namespace rondo::data::tok {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

struct CodePoint {
  char32_t value = kReplacementCharacter;
  std::size_t size = 1;  // bytes taken from the text
  bool valid = false;
};

/// The character at `text[at]` (at < text.size()); an ill-formed sequence gives U+FFFD and the bytes it replaces.
CodePoint decode_utf8(std::string_view text, std::size_t at);

/// The same where the text is known to be well-formed.
inline CodePoint decode_valid_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  if (lead < 0xE0) return {((lead & 0x1FU) << 6U) | (byte(1) & 0x3FU), 2, true};
  if (lead < 0xF0) return {((lead & 0x0FU) << 12U) | ((byte(1) & 0x3FU) << 6U) | (byte(2) & 0x3FU), 3, true};
  return {((lead & 0x07U) << 18U) | ((byte(1) & 0x3FU) << 12U) | ((byte(2) & 0x3FU) << 6U) | (byte(3) & 0x3FU), 4,
          true};
}

inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

/// Where the character that holds the byte `at` of a well-formed text begins and where it ends.
inline std::size_t character_begin(std::string_view text, std::size_t at) {
  while (at > 0 && is_continuation(text[at])) --at;
  return at;
}
inline std::size_t character_end(std::string_view text, std::size_t at) {
  ++at;
  while (at < text.size() && is_continuation(text[at])) ++at;
  return at;
}

/// `bytes` with every ill-formed sequence replaced by U+FFFD.
std::string lossy_utf8(std::string_view bytes);

/// True when every byte is below 0x80.
bool is_ascii(std::string_view text);

}  // namespace rondo::data::tok
