#include "splitting.h"

namespace rondo::data::tok {
namespace {

// Joins each span to the one before it where `joins(span, previous was a match)` says so.
template <typename Joins>
void join_spans(std::vector<Span>& spans, const Joins& joins) {
  std::size_t kept = 0;
  bool previous = false;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Span span = spans[i];
    if (kept > 0 && joins(span, previous)) {
      spans[kept - 1].end = span.end;
    } else {
      spans[kept++] = span;
    }
    previous = span.match;
  }
  spans.resize(kept);
}

// A run of matches gives its last one to the text that follows.
void join_with_next(std::vector<Span>& spans) {
  std::size_t kept = spans.size();
  bool next = false;
  for (std::size_t i = spans.size(); i-- > 0;) {
    const Span span = spans[i];
    if (span.match && !next && kept < spans.size()) {
      spans[kept].begin = span.begin;
    } else {
      spans[--kept] = span;
    }
    next = span.match;
  }
  spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(kept));
}

}  // namespace

void split_piece(const Piece& piece, std::vector<Span>& spans, SplitBehavior behavior, std::vector<Piece>& out) {
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious:
      join_spans(spans, [](const Span& span, bool previous) { return span.match && !previous; });
      break;
    case SplitBehavior::kContiguous:
      join_spans(spans, [](const Span& span, bool previous) { return span.match == previous; });
      break;
    case SplitBehavior::kMergedWithNext:
      join_with_next(spans);
      break;
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      break;
  }
  for (const Span& span : spans) {
    if (span.begin >= span.end || (behavior == SplitBehavior::kRemoved && span.match)) continue;
    out.push_back(piece.slice(span.begin, span.end));
  }
}

}  // namespace rondo::data::tok
