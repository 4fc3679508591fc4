// Tokens of a text that is too long to be held with all of its tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "rondo/data/tokenizer.h"

namespace rondo::data {

struct LongTextOptions {
  std::size_t piece = 4U << 20U;     // bytes that are tokenized at once
  std::size_t overlap = 64U << 10U;  // bytes that two pieces share, so that they can be joined
};

struct LongText {
  std::uint64_t dropped = 0;                              // Encoded::dropped
  std::optional<std::size_t> not_utf8_at = std::nullopt;  // the byte before which reading stopped
};

/// Hands tokenizer.encode(text, true).ids to `take`, piece by piece, until it says no or a piece is no UTF-8. A text
/// is cut where two pieces that overlap have the same tokens on both sides of the cut: there what follows no longer
/// depends on how the piece began. Where no such place is found the overlap is doubled, until the pieces are one.
LongText encode_long(const Tokenizer& tokenizer, std::string_view text, const LongTextOptions& options,
                     const std::function<bool(std::span<const TokenId>)>& take);

}  // namespace rondo::data
