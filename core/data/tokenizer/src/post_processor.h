// The post-processors of tokenizer.json: special tokens around the text, and ranges without their white space.
//
// Immutable once loaded; any thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <variant>
#include <vector>

#include "rondo/data/tokenizer.h"

namespace rondo::data::tok {

/// A token of the result, with how much white space its own text begins and ends with.
struct PlacedToken {
  TokenId id = 0;
  TextRange range = {};
  std::size_t leading_spaces = 0;   // characters
  std::size_t trailing_spaces = 0;  // characters
};

/// Takes a token's white space out of its range, unless it is the one that add_prefix_space put there.
struct TrimRanges {
  bool add_prefix_space = false;
};

/// The text's tokens with others before and behind.
struct Template {
  struct Part {
    bool text = false;              // the text's tokens; otherwise `ids`
    std::vector<TokenId> ids = {};  // special tokens
  };
  std::vector<Part> parts;
};

using PostProcessor = std::variant<TrimRanges, Template>;

/// `text` is the original that the ranges speak of.
void post_process(const std::vector<PostProcessor>& steps, std::string_view text, bool add_special_tokens,
                  std::vector<PlacedToken>& tokens);

/// Counts the white space (and the byte-level spelling of a blank) at both ends of `token`.
void count_spaces(std::string_view token, std::size_t& leading, std::size_t& trailing);

}  // namespace rondo::data::tok
