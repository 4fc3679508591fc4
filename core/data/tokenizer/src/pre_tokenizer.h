// The pre-tokenizers of tokenizer.json: each cuts the pieces it is given into smaller ones.
//
// Immutable once loaded; any thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "pattern.h"
#include "splitting.h"
#include "text_buffer.h"

namespace rondo::data::tok {

struct SplitAt {
  Regex pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};
struct SplitDigits {
  bool individual = false;
};
struct SplitWords {
  Regex words;
};
struct SplitPunctuation {
  SplitBehavior behavior = SplitBehavior::kIsolated;
};
struct Metaspace {
  enum class Prepend { kFirst, kAlways, kNever };
  std::string replacement;  // one character
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};
struct ByteLevel {
  bool add_prefix_space = false;
  std::optional<Regex> words = {};
};

using PreTokenizer = std::variant<SplitAt, SplitDigits, SplitWords, SplitPunctuation, Metaspace, ByteLevel>;

/// The pre-tokenizers in their order. When the last is ByteLevel, its pieces keep their own bytes and the model takes
/// bytes for symbols: the same ids without writing the text a second time.
struct PreTokenizers {
  std::vector<PreTokenizer> steps;
  bool byte_symbols() const { return !steps.empty() && std::holds_alternative<ByteLevel>(steps.back()); }
};

/// Cuts every piece of `pieces` that is no token.
void pre_tokenize(const PreTokenizers& steps, Pieces& pieces, RegexScratch& scratch);

/// The character that stands for a byte in byte-level vocabularies: itself if it is printable, else one from U+0100 on.
const std::array<char32_t, 256>& byte_characters();
/// The byte that `c` stands for, or -1.
int byte_of_character(char32_t c);
/// The bytes that the characters of `token` stand for; false, with `bytes` unspecified, when one stands for none.
bool bytes_of_token(std::string_view token, std::string& bytes);

/// The expressions of Whitespace and of ByteLevel.
absl::StatusOr<Regex> whitespace_words();
absl::StatusOr<Regex> byte_level_words();

}  // namespace rondo::data::tok
