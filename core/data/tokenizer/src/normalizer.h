// The normalizers of tokenizer.json: each rewrites a piece before it is cut into words.
//
// Immutable once loaded; any thread.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "pattern.h"
#include "text_buffer.h"

namespace rondo::data::tok {

enum class NormalFormKind { kNfc, kNfd, kNfkc, kNfkd };

struct NormalForm {
  NormalFormKind kind = NormalFormKind::kNfc;
};
struct Prepend {
  std::string content;
};
struct Replace {
  Regex pattern;
  std::string content;
};
struct Lowercase {};
struct Strip {
  bool left = false;
  bool right = false;
};

using Normalizer = std::variant<NormalForm, Prepend, Replace, Lowercase, Strip>;

/// `piece` after every normalizer in turn. It may come out empty.
Piece normalize(const std::vector<Normalizer>& normalizers, const Piece& piece, Pieces& pieces, RegexScratch& scratch);
/// The same for a text alone.
std::string normalize(const std::vector<Normalizer>& normalizers, std::string_view text);

/// One normal form. Source: Unicode Standard Annex 15; data of Unicode 9.0.
Piece to_normal_form(NormalFormKind kind, const Piece& piece, Pieces& pieces);

/// `piece` with `content` before it; the inserted text stands for what the piece's first character stands for.
/// `piece` must not be empty.
Piece prepend(const Piece& piece, std::string_view content, Pieces& pieces);

/// `piece` with `content` in place of every match in `spans`; it stands for the last character of the match.
Piece replace_matches(const Piece& piece, const std::vector<Span>& spans, std::string_view content, Pieces& pieces);

}  // namespace rondo::data::tok
