#include "text_buffer.h"

#include <utility>

#include "utf8.h"

namespace rondo::data::tok {

TextRange TextBuffer::range_at(std::size_t at) const {
  if (!align.empty()) return align[at];
  return {character_begin(text, at), character_end(text, at)};
}

TextRange Piece::range(std::size_t from, std::size_t to) const {
  return {buffer->range_at(begin + from).begin, buffer->range_at(begin + to - 1).end};
}

Piece Piece::slice(std::size_t from, std::size_t to) const {
  Piece piece{buffer, begin + from, begin + to, origin, std::nullopt};
  if (from < to) piece.origin = buffer->range_at(piece.begin).begin;
  return piece;
}

Pieces whole_text(std::string_view text) {
  Pieces pieces;
  if (text.empty()) return pieces;
  TextBuffer& buffer = pieces.buffers.emplace_back();
  if (is_utf8(text)) {
    buffer.text = text;
  } else {
    for (std::size_t i = 0; i < text.size();) {
      const CodePoint c = decode_utf8(text, i);
      append_utf8(buffer.owned, c.value);
      buffer.align.resize(buffer.owned.size(), TextRange{i, i + c.size});
      i += c.size;
    }
    buffer.text = buffer.owned;
  }
  pieces.list.push_back(Piece{&buffer, 0, buffer.text.size(), 0, std::nullopt});
  return pieces;
}

void Rewriter::keep(std::size_t from, std::size_t to) {
  text_ += source_.text().substr(from, to - from);
  if (!source_.buffer->align.empty()) {
    const auto first = source_.buffer->align.begin() + static_cast<std::ptrdiff_t>(source_.begin);
    align_.insert(align_.end(), first + static_cast<std::ptrdiff_t>(from), first + static_cast<std::ptrdiff_t>(to));
    return;
  }
  const std::string_view whole = source_.buffer->text;
  for (std::size_t at = source_.begin + from; at < source_.begin + to;) {
    const TextRange character{character_begin(whole, at), character_end(whole, at)};
    for (; at < character.end && at < source_.begin + to; ++at) align_.push_back(character);
  }
}

void Rewriter::put(std::string_view bytes, TextRange range) {
  text_ += bytes;
  align_.resize(text_.size(), range);
}

Piece Rewriter::finish(Pieces& pieces) {
  TextBuffer& buffer = pieces.buffers.emplace_back();
  buffer.owned = std::move(text_);
  buffer.text = buffer.owned;
  buffer.align = std::move(align_);
  return Piece{&buffer, 0, buffer.text.size(), source_.origin, std::nullopt};
}

}  // namespace rondo::data::tok
