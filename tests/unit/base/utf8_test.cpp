// Where UTF-8 sequences begin and end, and what is none: after the tables of the Unicode Standard.
#include "rondo/base/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace rondo {
namespace {

/// A code point's sequence, by the definition; surrogates and what lies past the end are encoded all the same.
std::string encoded(char32_t c) {
  const auto byte = [](char32_t value) { return static_cast<char>(static_cast<unsigned char>(value)); };
  const auto more = [&](unsigned shift) { return std::string(1, byte(0x80U | (c >> shift & 0x3fU))); };
  if (c < 0x80) return std::string(1, byte(c));
  if (c < 0x800) return byte(0xc0U | c >> 6U) + more(0);
  if (c < 0x10000) return byte(0xe0U | c >> 12U) + more(6) + more(0);
  return byte(0xf0U | c >> 18U) + more(12) + more(6) + more(0);
}

TEST(Utf8, EveryCodePoint_HasItsLengthUnlessASurrogateOrTooLarge) {
  for (char32_t c = 0; c < 0x110400; ++c) {
    const std::string text = "ab" + encoded(c) + "c";
    const bool valid = c < 0x110000 && (c < 0xd800 || c > 0xdfff);
    ASSERT_EQ(utf8_length(text, 2), valid ? encoded(c).size() : 0U) << static_cast<std::uint32_t>(c);
    ASSERT_EQ(is_utf8(text), valid) << static_cast<std::uint32_t>(c);
  }
}

TEST(Utf8, CodePoint_IsAppendedAsItsSequence) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string text = "ab";
    append_utf8(text, c);
    ASSERT_EQ(text, "ab" + encoded(c)) << static_cast<std::uint32_t>(c);
  }
}

TEST(Utf8, BrokenSequenceAnywhereInALongText_IsFound) {
  for (std::size_t length = 1; length < 40; ++length) {
    for (std::size_t at = 0; at < length; ++at) {
      std::string text(length, 'a');
      ASSERT_TRUE(is_utf8(text));
      text[at] = '\x80';
      ASSERT_FALSE(is_utf8(text)) << length << " " << at;
    }
  }
}

TEST(Utf8, EveryPairOfBytes_IsASequenceOnlyWithATwoByteLead) {
  for (unsigned first = 0; first < 256; ++first) {
    for (unsigned second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second)};
      const bool two = first >= 0xc2 && first < 0xe0 && second >= 0x80 && second < 0xc0;
      ASSERT_EQ(utf8_length(text, 0), first < 0x80 ? 1U : two ? 2U : 0U) << first << " " << second;
    }
  }
}

TEST(Utf8, CutOrOverlongSequence_IsNone) {
  for (const char* text : {"\xe2\x82", "\xf0\x9f\x98", "\xc3", "\xc0\x80", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\x80",
                           "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(utf8_length(text, 0), 0U) << text;
    EXPECT_FALSE(is_utf8(text)) << text;
    EXPECT_FALSE(is_utf8(std::string("a") + text + "b")) << text;
  }
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8(std::string(1, '\0')));
}

}  // namespace
}  // namespace rondo
