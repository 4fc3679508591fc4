#include "pre_tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "normalizer.h"
#include "unicode.h"
#include "utf8.h"

namespace rondo::data::tok {
namespace {

struct Cutter {
  Pieces& pieces;
  RegexScratch& scratch;
  std::vector<Piece>& out;
  bool last;

  void at_matches(const Regex& pattern, const Piece& piece, SplitBehavior behavior, bool invert) const {
    pattern.find(piece.text(), scratch, scratch.spans);
    if (invert) {
      for (Span& span : scratch.spans) span.match = !span.match;
    }
    split_piece(piece, scratch.spans, behavior, out);
  }

  void operator()(const SplitAt& step, const Piece& piece) const {
    at_matches(step.pattern, piece, step.behavior, step.invert);
  }
  void operator()(const SplitDigits& step, const Piece& piece) const {
    match_characters(piece, is_numeric, scratch.spans);
    split_piece(piece, scratch.spans, step.individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, out);
  }
  void operator()(const SplitWords& step, const Piece& piece) const {
    at_matches(step.words, piece, SplitBehavior::kRemoved, true);
  }
  void operator()(const SplitPunctuation& step, const Piece& piece) const {
    match_characters(piece, is_punctuation, scratch.spans);
    split_piece(piece, scratch.spans, step.behavior, out);
  }

  void operator()(const Metaspace& step, const Piece& piece) const {
    match_characters(
        piece, [](char32_t c) { return c == ' '; }, scratch.spans);
    Piece text = replace_matches(piece, scratch.spans, step.replacement, pieces);
    const bool wanted =
        step.prepend == Metaspace::Prepend::kAlways || (step.prepend == Metaspace::Prepend::kFirst && text.origin == 0);
    const bool there = text.text().substr(0, step.replacement.size()) == step.replacement;
    if (wanted && !there) text = prepend(text, step.replacement, pieces);
    if (!step.split) {
      out.push_back(text);
      return;
    }
    const char32_t mark = decode_valid_utf8(step.replacement, 0).value;
    match_characters(
        text, [mark](char32_t c) { return c == mark; }, scratch.spans);
    split_piece(text, scratch.spans, SplitBehavior::kMergedWithNext, out);
  }

  void operator()(const ByteLevel& step, const Piece& piece) const {
    const bool add_space = step.add_prefix_space && piece.text().front() != ' ';
    const Piece text = add_space ? prepend(piece, " ", pieces) : piece;
    const std::size_t first = out.size();
    if (!step.words.has_value()) {
      out.push_back(text);
    } else {
      at_matches(*step.words, text, SplitBehavior::kIsolated, false);
    }
    if (last) return;
    for (std::size_t i = first; i < out.size(); ++i) out[i] = spell_bytes(out[i]);
  }

  Piece spell_bytes(const Piece& piece) const {
    Rewriter rewriter(piece);
    std::string character;
    const std::string_view text = piece.text();
    for (std::size_t i = 0; i < text.size(); ++i) {
      character.clear();
      append_utf8(character, byte_characters()[static_cast<unsigned char>(text[i])]);
      rewriter.put_as(character, i);
    }
    return rewriter.finish(pieces);
  }
};

}  // namespace

void pre_tokenize(const PreTokenizers& steps, Pieces& pieces, RegexScratch& scratch) {
  std::vector<Piece> out;
  for (const PreTokenizer& step : steps.steps) {
    out.clear();
    const Cutter cutter{pieces, scratch, out, &step == &steps.steps.back()};
    for (const Piece& piece : pieces.list) {
      if (piece.token.has_value()) {
        out.push_back(piece);
      } else {
        std::visit([&](const auto& kind) { cutter(kind, piece); }, step);
      }
    }
    std::swap(pieces.list, out);
  }
}

const std::array<char32_t, 256>& byte_characters() {
  static const std::array<char32_t, 256> table = [] {
    std::array<char32_t, 256> characters{};
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      characters[byte] = printable ? byte : next++;
    }
    return characters;
  }();
  return table;
}

int byte_of_character(char32_t c) {
  static const std::array<std::int16_t, 0x144> table = [] {
    std::array<std::int16_t, 0x144> bytes{};
    bytes.fill(-1);
    for (std::size_t byte = 0; byte < 256; ++byte) bytes[byte_characters()[byte]] = static_cast<std::int16_t>(byte);
    return bytes;
  }();
  return c < table.size() ? table[c] : -1;
}

bool bytes_of_token(std::string_view token, std::string& bytes) {
  bytes.clear();
  for (std::size_t i = 0; i < token.size();) {
    const CodePoint c = decode_valid_utf8(token, i);
    const int byte = byte_of_character(c.value);
    if (byte < 0) return false;
    bytes.push_back(static_cast<char>(byte));
    i += c.size;
  }
  return true;
}

absl::StatusOr<Regex> whitespace_words() {
  // \w without the signs of Latin-1 that Oniguruma counts in, and with the two joiners: it is another library's \w.
  constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}";
  return Regex::compile(fmt::format("[{0}]+|[^{0}\\s]+", kWord));
}

absl::StatusOr<Regex> byte_level_words() {
  return Regex::compile("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+");
}

}  // namespace rondo::data::tok
