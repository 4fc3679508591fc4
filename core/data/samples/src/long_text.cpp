#include "long_text.h"

#include <algorithm>
#include <utility>

#include "rondo/base/utf8.h"

namespace rondo::data {
namespace {

constexpr std::size_t kAgreeing = 16;  // tokens that must be alike on each side of a cut

/// A stretch of the text with its tokens; ranges count from the text's beginning.
struct Piece {
  std::size_t begin = 0;
  std::size_t end = 0;
  Encoded encoded;
};

/// Finds the first byte that is no UTF-8, as far as the text is read.
class Utf8Check {
 public:
  explicit Utf8Check(std::string_view text) : text_(text) {}
  /// Reads on up to `end`, and over a character that crosses it.
  std::optional<std::size_t> find_before(std::size_t end) {
    if (end > sound_) sound_ += utf8_prefix(text_.substr(sound_, end - sound_));
    const bool found = sound_ < end && utf8_length(text_, sound_) == 0;
    return found ? std::optional(sound_) : std::nullopt;
  }

 private:
  std::string_view text_;
  std::size_t sound_ = 0;  // bytes that are whole characters
};

/// `at` or the character's first byte before it.
std::size_t character_at(std::string_view text, std::size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) --at;
  return std::min(at, text.size());
}

Piece encode_piece(const Tokenizer& tokenizer, std::string_view text, std::size_t begin, std::size_t end) {
  Piece piece{character_at(text, begin), character_at(text, end), {}};
  piece.encoded = tokenizer.encode(text.substr(piece.begin, piece.end - piece.begin), true);
  for (TextRange& range : piece.encoded.ranges) {
    range.begin += piece.begin;
    range.end += piece.begin;
  }
  // What the post-processor put behind the text stands where the text ends.
  auto& ranges = piece.encoded.ranges;
  for (std::size_t i = ranges.size(); i-- > 0 && ranges[i].begin == ranges[i].end;) ranges[i] = {piece.end, piece.end};
  return piece;
}

/// First token that begins at byte `at` or later. Inserted tokens stand at the ends.
std::size_t token_at(const Encoded& encoded, std::size_t at) {
  const auto found = std::partition_point(encoded.ranges.begin(), encoded.ranges.end(),
                                          [at](const TextRange& range) { return range.begin < at; });
  return static_cast<std::size_t>(found - encoded.ranges.begin());
}

/// Where `before` ends, behind its token `from`, and `after` begins: a byte at which both have the same kAgreeing
/// tokens on each side.
std::optional<std::size_t> find_cut(const Piece& before, std::size_t from, const Piece& after) {
  const auto& first = before.encoded;
  const auto& second = after.encoded;
  const std::size_t middle = after.begin + (before.end - after.begin) / 2;
  for (std::size_t i = std::max(from, token_at(first, middle)); i + kAgreeing < first.ids.size(); ++i) {
    const std::size_t at = first.ranges[i].begin;
    const std::size_t j = token_at(second, at);
    if (i < kAgreeing || j < kAgreeing || j + kAgreeing > second.ids.size()) continue;
    if (first.ranges[i - 1].begin == at) continue;  // in the middle of a character
    bool alike = true;
    for (std::size_t k = 0; k < 2 * kAgreeing && alike; ++k) {
      const std::size_t a = i - kAgreeing + k;
      const std::size_t b = j - kAgreeing + k;
      alike = first.ids[a] == second.ids[b] && first.ranges[a].begin == second.ranges[b].begin &&
              first.ranges[a].end == second.ranges[b].end;
    }
    if (alike) return at;
  }
  return std::nullopt;
}

}  // namespace

LongText encode_long(const Tokenizer& tokenizer, std::string_view text, const LongTextOptions& options,
                     const std::function<bool(std::span<const TokenId>)>& take) {
  std::size_t overlap = options.overlap;
  Utf8Check check(text);
  const std::size_t first_end = std::min(options.piece, text.size());
  if (const auto at = check.find_before(first_end)) return {0, at};
  Piece piece = encode_piece(tokenizer, text, 0, first_end);
  std::size_t from = 0;  // the first token of `piece` that has not been handed on
  std::uint64_t dropped = piece.encoded.dropped;
  while (piece.end < text.size()) {
    const std::size_t begin = piece.end > overlap ? piece.end - overlap : 0;
    const std::size_t end = std::min(piece.end + std::max(options.piece, overlap), text.size());
    if (const auto at = check.find_before(end)) return {dropped, at};
    Piece next = encode_piece(tokenizer, text, std::max(begin, piece.begin), end);
    const std::optional<std::size_t> cut = find_cut(piece, from, next);
    if (!cut) {
      if (next.begin > piece.begin) {
        overlap *= 2;
        continue;
      }
      // The same beginning: `next` says all that `piece` does, and more. What was handed on stays.
      const std::size_t done = from == 0 ? 0 : piece.encoded.ranges[from].begin;
      from = token_at(next.encoded, done);
      dropped += next.encoded.dropped - piece.encoded.dropped;
      piece = std::move(next);
      continue;
    }
    const std::size_t until = token_at(piece.encoded, *cut);
    if (!take(std::span(piece.encoded.ids).subspan(from, until - from))) return {dropped};
    if (dropped > 0 || next.encoded.dropped > 0) {  // what both have seen counts once
      dropped += next.encoded.dropped;
      dropped -= tokenizer.encode(text.substr(next.begin, piece.end - next.begin), false).dropped;
    }
    from = token_at(next.encoded, *cut);
    piece = std::move(next);
    overlap = options.overlap;
  }
  take(std::span(piece.encoded.ids).subspan(from));
  return {dropped};
}

}  // namespace rondo::data
