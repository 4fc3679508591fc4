#include "unicode.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <iterator>

#include "utf8.h"

namespace rondo::data::tok {
namespace {

struct CharacterRun {
  char32_t first;
  char32_t last;
  char32_t stand_in;
};

constexpr CharacterRun kNewerCharacters[] = {
#include "newer_characters.inc"
};

// One bit for each block of 256 characters that has an entry: text of other blocks is passed over without a search.
constexpr std::size_t kBlocks = 0x110000 >> 8U;

const std::bitset<kBlocks>& newer_blocks() {
  static const std::bitset<kBlocks> blocks = [] {
    std::bitset<kBlocks> set;
    for (const CharacterRun& run : kNewerCharacters) {
      for (char32_t block = run.first >> 8U; block <= run.last >> 8U; ++block) set.set(block);
    }
    return set;
  }();
  return blocks;
}

// Capital letters of Unicode 16.0 and 17.0 and the distance to their small letters.
struct CaseRun {
  char32_t first;
  char32_t last;
  std::int32_t distance;
};
constexpr CaseRun kNewerCapitals[] = {
    {0x1C89, 0x1C89, 1},      {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
    {0xA7CC, 0xA7CC, 1},      {0xA7CE, 0xA7CE, 1},
    {0xA7D2, 0xA7D2, 1},      {0xA7D4, 0xA7D4, 1},
    {0xA7DA, 0xA7DA, 1},      {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
    {0x10D50, 0x10D65, 0x20}, {0x16EA0, 0x16EB8, 0x1B},
};

// Numbers of Unicode 17.0.
constexpr CharacterRun kNewestNumbers[] = {{0x11DE0, 0x11DE9, 0}, {0x16FF4, 0x16FF6, 0}};

UChar32 icu(char32_t c) { return static_cast<UChar32>(c); }

bool not_after(char32_t c, std::uint8_t version) {
  UVersionInfo age{};
  u_charAge(icu(c), age);
  return age[0] != 0 && (age[0] < version || (age[0] == version && age[1] == 0));
}

}  // namespace

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return u_isUWhiteSpace(icu(c)) != 0;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  for (const CharacterRun& run : kNewestNumbers) {
    if (c >= run.first && c <= run.last) return true;
  }
  return (U_GET_GC_MASK(icu(stand_in(c))) & U_GC_N_MASK) != 0;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7F && u_isalnum(icu(c)) == 0;
  // Two characters were punctuation in Unicode 8.0 and are symbols and marks since.
  if (c == 0x166D || c == 0x111C9) return true;
  return (U_GET_GC_MASK(icu(c)) & U_GC_P_MASK) != 0 && not_after(c, 8);
}

bool is_word(char32_t c) {
  if (c < 0x80) return c == '_' || u_isalnum(icu(c)) != 0;
  if (c == 0x200C || c == 0x200D) return true;
  const UChar32 known = icu(stand_in(c));
  constexpr std::uint32_t kWord = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_isUAlphabetic(known) != 0 || (U_GET_GC_MASK(known) & kWord) != 0;
}

bool has_normal_form_data(char32_t c) { return c < 0x300 || not_after(c, 9); }

int append_lower_case(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
    return 1;
  }
  if (c == 0x130) {  // the only capital whose small letter is two characters
    out += "i\xCC\x87";
    return 2;
  }
  for (const CaseRun& run : kNewerCapitals) {
    if (c < run.first || c > run.last) continue;
    append_utf8(out, static_cast<char32_t>(static_cast<std::int32_t>(c) + run.distance));
    return 1;
  }
  append_utf8(out, static_cast<char32_t>(u_tolower(icu(c))));
  return 1;
}

char32_t stand_in(char32_t c) {
  if (!newer_blocks().test(c >> 8U)) return c;
  const auto* const run = std::upper_bound(std::begin(kNewerCharacters), std::end(kNewerCharacters), c,
                                           [](char32_t value, const CharacterRun& r) { return value < r.first; });
  if (run == std::begin(kNewerCharacters) || c > std::prev(run)->last) return c;
  return std::prev(run)->stand_in;
}

std::string_view with_stand_ins(std::string_view text, std::string& storage) {
  const auto& blocks = newer_blocks();
  bool replaced = false;
  std::string scalar;
  for (std::size_t i = 0; i < text.size();) {
    // No character below U+0800 has an entry: one and two-byte sequences are stepped over.
    if (static_cast<unsigned char>(text[i]) < 0xE0) {
      ++i;
      continue;
    }
    const CodePoint c = decode_valid_utf8(text, i);
    if (blocks.test(c.value >> 8U)) {
      const char32_t other = stand_in(c.value);
      if (other != c.value) {
        if (!replaced) storage.assign(text);
        replaced = true;
        scalar.clear();
        append_utf8(scalar, other);
        storage.replace(i, c.size, scalar);
      }
    }
    i += c.size;
  }
  return replaced ? std::string_view(storage) : text;
}

}  // namespace rondo::data::tok
