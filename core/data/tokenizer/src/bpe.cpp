#include "bpe.h"

#include <fmt/format.h>

#include <utility>

#include "pre_tokenizer.h"
#include "utf8.h"

namespace rondo::data::tok {

// Symbols that the vocabulary lacks, waiting to become one unknown token (or one each).
struct Bpe::UnknownRun {
  std::vector<WordToken>& out;
  std::optional<WordToken> open = {};

  void flush() {
    if (open.has_value()) out.push_back(*open);
    open.reset();
  }
  void add(const WordToken& token, bool fuse) {
    if (fuse && open.has_value()) {
      open->end = token.end;
      return;
    }
    flush();
    open = token;
  }
};

Bpe::Bpe(BpeOptions options, TokenTable vocabulary, MergeTable merges)
    : options_(std::move(options)), vocabulary_(std::move(vocabulary)), merges_(std::move(merges)) {
  if (options_.unknown_token.has_value()) unknown_ = id_of(*options_.unknown_token);
  std::string character;
  for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
    if (!options_.byte_symbols && byte >= 0x80) break;
    character.clear();
    append_utf8(character, options_.byte_symbols ? byte_characters()[byte] : static_cast<char32_t>(byte));
    bytes_[byte] = look_up(character);
  }
}

std::optional<TokenId> Bpe::id_of(std::string_view token) const {
  const auto found = vocabulary_.find(token);
  if (!found.has_value()) return std::nullopt;
  return static_cast<TokenId>(*found);
}

Bpe::Symbol Bpe::look_up(std::string_view character) const {
  Symbol symbol;
  if (const auto id = id_of(character)) {
    symbol.kind = Lookup::kToken;
    symbol.id = *id;
    return symbol;
  }
  if (!options_.byte_fallback) return symbol;
  for (const char byte : character) {
    const auto id = id_of(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)));
    if (!id.has_value()) return Symbol{};
    symbol.fallback.push_back(*id);
  }
  symbol.kind = Lookup::kFallback;
  return symbol;
}

std::uint64_t Bpe::split_into_symbols(std::string_view word, std::vector<WordToken>& out) const {
  std::uint64_t dropped = 0;
  UnknownRun unknown{out};
  Symbol looked_up;
  for (std::size_t i = 0; i < word.size();) {
    const auto byte = static_cast<unsigned char>(word[i]);
    const bool single = options_.byte_symbols || byte < 0x80;
    const std::size_t size = single ? 1 : decode_valid_utf8(word, i).size;
    if (!single) looked_up = look_up(word.substr(i, size));
    const Symbol& symbol = single ? bytes_[byte] : looked_up;
    WordToken token{symbol.id, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i + size)};
    i += size;
    if (symbol.kind == Lookup::kToken) {
      unknown.flush();
      out.push_back(token);
    } else if (symbol.kind == Lookup::kFallback) {
      // An open unknown token stays open across fallback bytes and comes after them: the reference does so.
      for (const TokenId id : symbol.fallback) out.push_back({id, token.begin, token.end});
    } else if (unknown_.has_value()) {
      token.id = *unknown_;
      unknown.add(token, options_.fuse_unknown);
    } else {
      ++dropped;
    }
  }
  unknown.flush();
  return dropped;
}

std::uint64_t Bpe::merge_word(std::string_view word, Scratch& scratch) const {
  // Above this many symbols a queue beats looking for the smallest rank again and again.
  constexpr std::size_t kShort = 40;
  scratch.symbols.clear();
  const std::uint64_t dropped = split_into_symbols(word, scratch.symbols);
  if (scratch.symbols.size() <= kShort) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  return dropped;
}

std::uint64_t Bpe::tokenize(std::string_view word, Scratch& scratch, std::vector<WordToken>& out) const {
  if (const auto id = words_.find(word)) {
    out.push_back({static_cast<TokenId>(*id), 0, static_cast<std::uint32_t>(word.size())});
    return 0;
  }
  const std::uint64_t dropped = merge_word(word, scratch);
  out.insert(out.end(), scratch.symbols.begin(), scratch.symbols.end());
  return dropped;
}

void Bpe::note_word(std::string_view token, TokenId id) {
  std::string bytes(token);
  if (options_.byte_symbols && !bytes_of_token(token, bytes)) return;
  if (bytes.empty()) return;
  if (!options_.ignore_merges) {
    // Only a token that its own merges lead to: the table then says at once what merging would say.
    Scratch scratch;
    if (merge_word(bytes, scratch) != 0 || scratch.symbols.size() != 1 || scratch.symbols.front().id != id) return;
  }
  words_.insert(bytes, static_cast<std::uint32_t>(id));
}

}  // namespace rondo::data::tok
