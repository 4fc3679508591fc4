// The tokens that tokenizer.json adds beside the model's: found in the text before anything else looks at it.
//
// Immutable once loaded; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "text_buffer.h"

namespace rondo::data::tok {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  std::string searched;  // the content, normalized if `normalized`: what is looked for, and what decoding starts from
  bool special = false;
  bool normalized = false;   // looked for in the normalized text
  bool strip_left = false;   // takes the white space before it along
  bool strip_right = false;  // and behind it
  bool single_word = false;  // not beside a letter or digit
};

/// A trie over byte strings.
class TokenTrie {
 public:
  /// False when `key` is empty or there already.
  bool insert(std::string_view key, std::uint32_t value);
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint32_t value = 0;
  };
  /// The leftmost match from `from` on, the longest of those that begin there.
  std::optional<Match> find(std::string_view text, std::size_t from) const;
  bool empty() const { return nodes_.size() == 1; }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  struct Node {
    std::uint32_t value = kNone;
    std::vector<std::pair<unsigned char, std::uint32_t>> children = {};
  };
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<std::uint32_t> first_ = std::vector<std::uint32_t>(256, kNone);  // the root's children, by byte
};

class AddedTokens {
 public:
  /// Errors: InvalidArgument when two tokens look for the same text.
  absl::Status add(AddedToken token);

  /// Cuts the tokens out of every piece that is none: those looked for in the original or in the normalized text. A
  /// token of which the normalizer leaves nothing is found between any two characters and takes none of them, so that
  /// each stands alone, as `tokenizers` has it.
  void split(Pieces& pieces, bool normalized) const;

  const AddedToken* find(TokenId id) const;
  const AddedToken* find(std::string_view content) const;
  const std::map<TokenId, AddedToken>& all() const { return tokens_; }

 private:
  void split_piece(const Piece& piece, const TokenTrie& trie, std::optional<TokenId> emptied,
                   std::vector<Piece>& out) const;

  std::map<TokenId, AddedToken> tokens_;
  std::map<std::string, TokenId, std::less<>> by_content_;
  TokenTrie raw_;
  TokenTrie normalized_;
  std::optional<TokenId> emptied_;  // of which normalizing leaves nothing
};

}  // namespace rondo::data::tok
