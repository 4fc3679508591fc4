#include "utf8.h"

#include <cstdint>
#include <cstring>

namespace rondo::data::tok {
namespace {

struct SecondByte {
  unsigned low = 0x80;
  unsigned high = 0xBF;
};

// Table 3-7 of the Unicode Standard: the first continuation byte is narrower after four of the lead bytes.
SecondByte second_byte_range(unsigned lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {};
  }
}

}  // namespace

CodePoint decode_utf8(std::string_view text, std::size_t at) {
  const unsigned lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1, true};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t value = size == 2 ? lead & 0x1FU : size == 3 ? lead & 0x0FU : lead & 0x07U;
  SecondByte range = second_byte_range(lead);
  for (std::size_t i = 1; i < size; ++i) {
    const unsigned next = at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
    if (next < range.low || next > range.high) return {kReplacementCharacter, i, false};
    value = (value << 6U) | (next & 0x3FU);
    range = {};
  }
  return {value, size, true};
}

bool is_ascii(std::string_view text) {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080U) != 0) return false;
  }
  for (; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) >= 0x80) return false;
  }
  return true;
}

std::string lossy_utf8(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
  std::string out;
  for (std::size_t i = 0; i < bytes.size();) {
    const CodePoint c = decode_utf8(bytes, i);
    append_utf8(out, c.value);
    i += c.size;
  }
  return out;
}

}  // namespace rondo::data::tok
