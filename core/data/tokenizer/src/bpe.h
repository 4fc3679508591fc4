// Byte-pair encoding: from a word to token ids.
//
// Symbols are either the word's bytes (byte-level vocabularies) or its characters. Immutable once loaded; any thread,
// with a Scratch each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "token_table.h"

namespace rondo::data::tok {

/// A token and the bytes [begin, end) of the word that it stands for.
struct WordToken {
  TokenId id = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

struct BpeOptions {
  bool byte_symbols = false;  // words come as raw bytes, the vocabulary spells bytes as characters
  bool byte_fallback = false;
  bool fuse_unknown = false;
  bool ignore_merges = false;
  std::optional<std::string> unknown_token = {};
};

class Bpe {
 public:
  struct Scratch {
    std::vector<WordToken> symbols;
    std::vector<Merge> merges;  // of each symbol with the next
    std::vector<std::int32_t> links;
  };

  Bpe() = default;
  /// `vocabulary` holds the tokens as the file spells them.
  Bpe(BpeOptions options, TokenTable vocabulary, MergeTable merges);

  /// Appends the tokens of `word`, which must not be empty; returns how many symbols were left out.
  std::uint64_t tokenize(std::string_view word, Scratch& scratch, std::vector<WordToken>& out) const;

  std::optional<TokenId> id_of(std::string_view token) const;
  std::size_t size() const { return vocabulary_.size(); }

  /// Makes `token` (as the file spells it) known as a word of its own: called for every token once the rest is set.
  void note_word(std::string_view token, TokenId id);

 private:
  enum class Lookup { kToken, kFallback, kUnknown };
  struct Symbol {
    Lookup kind = Lookup::kUnknown;
    TokenId id = 0;
    std::vector<TokenId> fallback = {};
  };
  struct UnknownRun;

  Symbol look_up(std::string_view character) const;
  std::uint64_t split_into_symbols(std::string_view word, std::vector<WordToken>& out) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  std::uint64_t merge_word(std::string_view word, Scratch& scratch) const;

  BpeOptions options_;
  TokenTable vocabulary_;
  MergeTable merges_;
  TokenTable words_;  // what a word looks like -> the id that the whole of it gets
  std::array<Symbol, 256> bytes_;
  std::optional<TokenId> unknown_;
};

}  // namespace rondo::data::tok
