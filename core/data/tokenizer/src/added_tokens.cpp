#include "added_tokens.h"

#include <algorithm>
#include <utility>

#include "rondo/base/status.h"
#include "unicode.h"
#include "utf8.h"

namespace rondo::data::tok {
namespace {

std::size_t white_space_begin(std::string_view text, std::size_t end) {
  while (end > 0) {
    const std::size_t last = character_begin(text, end - 1);
    if (!is_white_space(decode_valid_utf8(text, last).value)) break;
    end = last;
  }
  return end;
}

std::size_t white_space_end(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const CodePoint c = decode_valid_utf8(text, begin);
    if (!is_white_space(c.value)) break;
    begin += c.size;
  }
  return begin;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word(decode_valid_utf8(text, character_begin(text, begin - 1)).value)) return false;
  return end == text.size() || !is_word(decode_valid_utf8(text, end).value);
}

/// The matches of a trie in a text, and between them those of a token that is nowhere and everywhere.
class Matches {
 public:
  Matches(std::string_view text, const TokenTrie& trie, std::optional<TokenId> emptied)
      : text_(text), trie_(trie), emptied_(emptied), found_(trie.find(text, 0)) {}

  /// The leftmost from where the last one ended on; what takes something goes before what takes nothing.
  std::optional<TokenTrie::Match> next() {
    if (found_ && found_->begin < from_) found_ = trie_.find(text_, from_);
    std::size_t at = from_;
    if (std::exchange(behind_match_, true) && at < text_.size()) {
      at += decode_valid_utf8(text_, at).size;
    } else if (from_ == text_.size()) {
      at = text_.size() + 1;
    }
    if (!emptied_ || (found_ && found_->begin <= at)) {
      if (found_) from_ = found_->end;
      return found_;
    }
    if (at > text_.size()) return std::nullopt;
    from_ = at;
    return TokenTrie::Match{at, at, static_cast<std::uint32_t>(*emptied_)};
  }

 private:
  const std::string_view text_;
  const TokenTrie& trie_;
  const std::optional<TokenId> emptied_;
  std::optional<TokenTrie::Match> found_;  // the next that takes something
  std::size_t from_ = 0;
  bool behind_match_ = false;
};

}  // namespace

std::uint32_t TokenTrie::child(std::uint32_t node, unsigned char byte) const {
  if (node == 0) return first_[byte];
  for (const auto& [label, target] : nodes_[node].children) {
    if (label == byte) return target;
  }
  return kNone;
}

bool TokenTrie::insert(std::string_view key, std::uint32_t value) {
  if (key.empty()) return false;
  std::uint32_t node = 0;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    std::uint32_t next = child(node, byte);
    if (next == kNone) {
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
      if (node == 0) {
        first_[byte] = next;
      } else {
        nodes_[node].children.emplace_back(byte, next);
      }
    }
    node = next;
  }
  if (nodes_[node].value != kNone) return false;
  nodes_[node].value = value;
  return true;
}

std::optional<TokenTrie::Match> TokenTrie::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    std::uint32_t node = first_[static_cast<unsigned char>(text[begin])];
    std::optional<Match> longest;
    for (std::size_t end = begin + 1; node != kNone; ++end) {
      if (nodes_[node].value != kNone) longest = Match{begin, end, nodes_[node].value};
      if (end >= text.size()) break;
      node = child(node, static_cast<unsigned char>(text[end]));
    }
    if (longest.has_value()) return longest;
  }
  return std::nullopt;
}

absl::Status AddedTokens::add(AddedToken token) {
  TokenTrie& trie = token.normalized ? normalized_ : raw_;
  if (token.searched.empty()) {
    if (!emptied_) emptied_ = token.id;
  } else if (!trie.insert(token.searched, static_cast<std::uint32_t>(token.id))) {
    return invalid_input("two tokens stand for the text '{}'", token.searched);
  }
  by_content_.insert_or_assign(token.content, token.id);
  tokens_.insert_or_assign(token.id, std::move(token));
  return absl::OkStatus();
}

const AddedToken* AddedTokens::find(TokenId id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : find(found->second);
}

void AddedTokens::split_piece(const Piece& piece, const TokenTrie& trie, std::optional<TokenId> emptied,
                              std::vector<Piece>& out) const {
  const std::string_view text = piece.text();
  std::size_t done = 0;
  for (Matches matches(text, trie, emptied); const auto match = matches.next();) {
    const AddedToken& token = *find(static_cast<TokenId>(match->value));
    if (token.single_word && !stands_alone(text, match->begin, match->end)) continue;
    std::size_t begin = match->begin;
    // The token before may have taken the white space already.
    if (token.strip_left) begin = std::max(white_space_begin(text, begin), done);
    const std::size_t end = token.strip_right ? white_space_end(text, match->end) : match->end;
    const bool takes = begin < end;  // not where it is white space that the token before has taken, or nothing
    if (!takes && match->begin < match->end) continue;
    if (done < begin) out.push_back(piece.slice(done, begin));
    done = end;
    if (!takes) continue;
    Piece& found = out.emplace_back(piece.slice(begin, end));
    found.token = token.id;
  }
  if (done != text.size()) out.push_back(piece.slice(done, text.size()));
}

void AddedTokens::split(Pieces& pieces, bool normalized) const {
  const TokenTrie& trie = normalized ? normalized_ : raw_;
  const std::optional<TokenId> emptied = normalized ? emptied_ : std::nullopt;
  std::vector<Piece> out;
  for (const Piece& piece : pieces.list) {
    if (piece.token.has_value()) {
      out.push_back(piece);
    } else if (piece.size() > 0) {
      split_piece(piece, trie, emptied, out);
    }
  }
  std::swap(pieces.list, out);
}

}  // namespace rondo::data::tok
