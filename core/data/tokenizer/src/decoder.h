// The decoders of tokenizer.json: from the tokens' spellings to text.
//
// Immutable once loaded; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "pattern.h"

namespace rondo::data::tok {

struct DecodeByteLevel {};
struct DecodeReplace {
  Regex pattern;
  std::string content;
};
struct DecodeByteFallback {};
struct DecodeFuse {};
struct DecodeStrip {
  std::string content;  // one character
  std::size_t start = 0;
  std::size_t stop = 0;
};
struct DecodeMetaspace {
  std::string replacement;  // one character
  bool prepended = true;
};

using Decoder =
    std::variant<DecodeByteLevel, DecodeReplace, DecodeByteFallback, DecodeFuse, DecodeStrip, DecodeMetaspace>;

/// The text of `tokens`.
std::string decode_tokens(const std::vector<Decoder>& decoders, std::vector<std::string> tokens);

}  // namespace rondo::data::tok
