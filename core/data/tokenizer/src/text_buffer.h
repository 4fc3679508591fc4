// A text on its way from the user's bytes to words, and the pieces it is cut into.
//
// Every byte of a TextBuffer knows which bytes of the original text it stands for; a Piece is a stretch of a buffer.
// Buffers are written once and live as long as the Pieces object, one to each encode call: no locks.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/tokenizer.h"

namespace rondo::data::tok {

struct TextBuffer {
  std::string owned;             // empty when `text` is the user's own
  std::string_view text;         // well-formed UTF-8
  std::vector<TextRange> align;  // one per byte of `text`; empty: the text is the original itself

  /// The original bytes of the character that holds byte `at`.
  TextRange range_at(std::size_t at) const;
};

struct Piece {
  const TextBuffer* buffer = nullptr;
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t origin = 0;             // where in the original text the piece begins
  std::optional<TokenId> token = {};  // set: an added token, not to be looked into any more

  std::string_view text() const { return buffer->text.substr(begin, end - begin); }
  std::size_t size() const { return end - begin; }
  /// The original bytes of the piece's bytes [from, to), from < to.
  TextRange range(std::size_t from, std::size_t to) const;
  /// The stretch [from, to) of this piece as a piece of its own.
  Piece slice(std::size_t from, std::size_t to) const;
};

struct Pieces {
  std::vector<Piece> list;
  std::deque<TextBuffer> buffers;  // a deque: pieces point into it while it grows
};

/// The whole of `text` as one piece (none when empty), with ill-formed UTF-8 replaced. `text` must outlive the pieces.
Pieces whole_text(std::string_view text);

/// Writes the text that takes a piece's place, byte for byte with what it stands for.
class Rewriter {
 public:
  explicit Rewriter(const Piece& source) : source_(source) {}

  /// Copies the source's bytes [from, to).
  void keep(std::size_t from, std::size_t to);
  /// Writes `bytes`, standing for what the source's byte `at` stands for.
  void put_as(std::string_view bytes, std::size_t at) { put(bytes, source_.range(at, at + 1)); }
  void put(std::string_view bytes, TextRange range);
  /// The rewritten piece, in a new buffer of `pieces`.
  Piece finish(Pieces& pieces);

 private:
  const Piece source_;
  std::string text_;
  std::vector<TextRange> align_;
};

}  // namespace rondo::data::tok
