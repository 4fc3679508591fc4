// Normal forms with the alignment that the `tokenizers` library gives them.
//
// The algorithm is the standard's: decompose, order marks by combining class, compose. It runs on ICU's data, held to
// the characters of Unicode 9.0. Each character carries a count: 1 it was inserted, 0 it takes the place of the next
// character of the source, -n it takes that place and swallows n more. The alignment follows from the counts alone,
// in the order in which characters come out, which is the library's rule (also where marks were reordered).
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <vector>

#include "normalizer.h"
#include "unicode.h"
#include "utf8.h"

namespace rondo::data::tok {
namespace {

struct Out {
  char32_t value = 0;
  int count = 0;
  std::uint8_t combining_class = 0;
};

const icu::Normalizer2* instance(bool compatible) {
  UErrorCode code = U_ZERO_ERROR;
  return compatible ? icu::Normalizer2::getNFKCInstance(code) : icu::Normalizer2::getNFCInstance(code);
}

const icu::Normalizer2* checker(NormalFormKind kind) {
  UErrorCode code = U_ZERO_ERROR;
  switch (kind) {
    case NormalFormKind::kNfc:
      return icu::Normalizer2::getNFCInstance(code);
    case NormalFormKind::kNfd:
      return icu::Normalizer2::getNFDInstance(code);
    case NormalFormKind::kNfkc:
      return icu::Normalizer2::getNFKCInstance(code);
    case NormalFormKind::kNfkd:
      return icu::Normalizer2::getNFKDInstance(code);
  }
  return nullptr;
}

bool is_normal(NormalFormKind kind, std::string_view text) {
  if (is_ascii(text)) return true;
  UErrorCode code = U_ZERO_ERROR;
  const auto size = static_cast<std::int32_t>(std::min<std::size_t>(text.size(), INT32_MAX));
  return static_cast<std::size_t>(size) == text.size() &&
         checker(kind)->isNormalizedUTF8(icu::StringPiece(text.data(), size), code) != 0 && U_SUCCESS(code);
}

std::uint8_t combining_class(char32_t c) {
  return has_normal_form_data(c) ? u_getCombiningClass(static_cast<UChar32>(c)) : std::uint8_t{0};
}

// Marks between two characters of class 0 are put in the order of their classes, equals keeping theirs.
void order_marks(std::vector<Out>& text) {
  const auto by_class = [](const Out& a, const Out& b) { return a.combining_class < b.combining_class; };
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && text[end].combining_class != 0) ++end;
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(i), text.begin() + static_cast<std::ptrdiff_t>(end),
                     by_class);
    i = end + 1;
  }
}

std::vector<Out> decompose(std::string_view text, bool compatible) {
  const icu::Normalizer2* const data = instance(compatible);
  std::vector<Out> out;
  out.reserve(text.size());
  icu::UnicodeString parts;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_valid_utf8(text, i);
    i += c.size;
    if (c.value < 0x80 || !has_normal_form_data(c.value) ||
        data->getDecomposition(static_cast<UChar32>(c.value), parts) == 0) {
      out.push_back({c.value, 0, combining_class(c.value)});
      continue;
    }
    for (std::int32_t k = 0; k < parts.length();) {
      const UChar32 part = parts.char32At(k);
      out.push_back({static_cast<char32_t>(part), k == 0 ? 0 : 1, combining_class(static_cast<char32_t>(part))});
      k += U16_LENGTH(part);
    }
  }
  order_marks(out);
  return out;
}

// The character that `a` and `b` make, or a negative number.
UChar32 compose_pair(const icu::Normalizer2* data, char32_t a, char32_t b) {
  const UChar32 made = data->composePair(static_cast<UChar32>(a), static_cast<UChar32>(b));
  return made >= 0 && has_normal_form_data(static_cast<char32_t>(made)) ? made : -1;
}

std::vector<Out> compose(const std::vector<Out>& text) {
  const icu::Normalizer2* const data = instance(false);
  std::vector<Out> out;
  out.reserve(text.size());
  std::size_t starter = text.size();  // index in `out` of the last character of class 0; text.size(): none yet
  for (const Out& c : text) {
    const bool adjacent = starter < text.size() && starter + 1 == out.size();
    const std::uint8_t before = adjacent || out.empty() ? std::uint8_t{0} : out.back().combining_class;
    const bool blocked = !adjacent && before >= c.combining_class;
    if (starter < text.size() && !blocked) {
      const UChar32 made = compose_pair(data, out[starter].value, c.value);
      if (made >= 0) {
        out[starter].value = static_cast<char32_t>(made);
        out[starter].count += c.count - 1;
        continue;
      }
    }
    if (c.combining_class == 0) starter = out.size();
    out.push_back(c);
  }
  return out;
}

// The source's bytes of `count` characters from `at` on.
std::size_t characters_end(std::string_view text, std::size_t at, int count) {
  for (int i = 0; i < count && at < text.size(); ++i) at = character_end(text, at);
  return at;
}

}  // namespace

Piece to_normal_form(NormalFormKind kind, const Piece& piece, Pieces& pieces) {
  const std::string_view source = piece.text();
  if (is_normal(kind, source)) return piece;
  const bool composes = kind == NormalFormKind::kNfc || kind == NormalFormKind::kNfkc;
  const bool compatible = kind == NormalFormKind::kNfkc || kind == NormalFormKind::kNfkd;
  std::vector<Out> text = decompose(source, compatible);
  if (composes) text = compose(text);

  Rewriter out(piece);
  std::string bytes;
  std::size_t at = 0;  // the next byte of the source that nothing stands for yet
  for (const Out& c : text) {
    bytes.clear();
    append_utf8(bytes, c.value);
    const bool inserted = c.count > 0 || at >= source.size();
    if (inserted && at == 0) {
      out.put(bytes, {piece.origin, piece.origin});
    } else {
      out.put_as(bytes, inserted ? at - 1 : at);
    }
    if (!inserted) at = characters_end(source, at, 1 - c.count);
  }
  return out.finish(pieces);
}

}  // namespace rondo::data::tok
