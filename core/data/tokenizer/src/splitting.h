// Cutting a piece at the matches of a pattern, and what becomes of the matches.
#pragma once

#include <cstddef>
#include <vector>

#include "text_buffer.h"
#include "utf8.h"

namespace rondo::data::tok {

/// A stretch of a piece; the spans of one piece follow on each other and cover it.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool match = false;
};

/// What a split does with the matches, for matches of "-" in "a--b":
enum class SplitBehavior {
  kRemoved,             // "a" "b"
  kIsolated,            // "a" "-" "-" "b"
  kMergedWithPrevious,  // "a-" "-" "b"
  kMergedWithNext,      // "a" "-" "-b"
  kContiguous,          // "a" "--" "b"
};

/// Appends the pieces that `spans` (changed on the way) cut out of `piece`; empty ones are left out.
void split_piece(const Piece& piece, std::vector<Span>& spans, SplitBehavior behavior, std::vector<Piece>& out);

/// The spans of `piece` when every character for which `is_match(char32_t)` holds is a match of its own.
template <typename Predicate>
void match_characters(const Piece& piece, const Predicate& is_match, std::vector<Span>& spans) {
  spans.clear();
  const std::string_view text = piece.text();
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_valid_utf8(text, i);
    if (is_match(c.value)) {
      if (done < i) spans.push_back({done, i, false});
      done = i + c.size;
      spans.push_back({i, done, true});
    }
    i += c.size;
  }
  if (done < text.size()) spans.push_back({done, text.size(), false});
}

}  // namespace rondo::data::tok
