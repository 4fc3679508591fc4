#include "normalizer.h"

#include <algorithm>

#include "unicode.h"
#include "utf8.h"

namespace rondo::data::tok {
namespace {

Piece lower_case(const Piece& piece, Pieces& pieces) {
  const std::string_view text = piece.text();
  Rewriter out(piece);
  std::string lower;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_valid_utf8(text, i);
    lower.clear();
    append_lower_case(lower, c.value);
    out.put_as(lower, i);
    i += c.size;
  }
  return out.finish(pieces);
}

Piece strip(const Strip& sides, const Piece& piece) {
  const std::string_view text = piece.text();
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (sides.left && begin < end) {
    const CodePoint c = decode_valid_utf8(text, begin);
    if (!is_white_space(c.value)) break;
    begin += c.size;
  }
  while (sides.right && end > begin) {
    const std::size_t last = character_begin(text, end - 1);
    if (!is_white_space(decode_valid_utf8(text, last).value)) break;
    end = last;
  }
  Piece stripped = piece;
  stripped.begin = piece.begin + begin;
  stripped.end = piece.begin + end;
  return stripped;
}

struct Apply {
  const Piece& piece;
  Pieces& pieces;
  RegexScratch& scratch;

  Piece operator()(const NormalForm& form) const { return to_normal_form(form.kind, piece, pieces); }
  Piece operator()(const Prepend& step) const { return prepend(piece, step.content, pieces); }
  Piece operator()(const Replace& step) const {
    step.pattern.find(piece.text(), scratch, scratch.spans);
    return replace_matches(piece, scratch.spans, step.content, pieces);
  }
  Piece operator()(const Lowercase& /*step*/) const { return lower_case(piece, pieces); }
  Piece operator()(const Strip& step) const { return strip(step, piece); }
};

}  // namespace

Piece prepend(const Piece& piece, std::string_view content, Pieces& pieces) {
  if (content.empty()) return piece;
  Rewriter out(piece);
  out.put_as(content, 0);
  out.keep(0, piece.size());
  return out.finish(pieces);
}

Piece replace_matches(const Piece& piece, const std::vector<Span>& spans, std::string_view content, Pieces& pieces) {
  if (std::none_of(spans.begin(), spans.end(), [](const Span& span) { return span.match; })) return piece;
  Rewriter out(piece);
  for (const Span& span : spans) {
    if (!span.match) {
      out.keep(span.begin, span.end);
    } else if (span.end == 0) {
      out.put(content, {piece.origin, piece.origin});
    } else {
      out.put_as(content, span.end - 1);
    }
  }
  return out.finish(pieces);
}

Piece normalize(const std::vector<Normalizer>& normalizers, const Piece& piece, Pieces& pieces, RegexScratch& scratch) {
  Piece current = piece;
  for (const Normalizer& step : normalizers) {
    if (current.size() == 0) break;
    current = std::visit(Apply{current, pieces, scratch}, step);
  }
  return current;
}

std::string normalize(const std::vector<Normalizer>& normalizers, std::string_view text) {
  Pieces pieces = whole_text(text);
  if (pieces.list.empty()) return {};
  RegexScratch scratch;
  const Piece piece = pieces.list.front();
  return std::string(normalize(normalizers, piece, pieces, scratch).text());
}

}  // namespace rondo::data::tok
