// An answer's tokens as text, piece by piece as they come.
#pragma once

#include <string>
#include <vector>

#include "rondo/data/tokenizer.h"

namespace rondo::train {

class TextStream {
 public:
  /// `tokenizer` outlives it.
  explicit TextStream(const data::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// What can be shown more once `id` has come; empty while a character is unfinished. Special tokens give nothing.
  std::string add(data::TokenId id);
  /// What was held back, at the end.
  std::string rest();
  /// The whole text so far.
  std::string text() const { return tokenizer_.decode(ids_, true); }

 private:
  std::string past_given(const std::string& whole);

  const data::Tokenizer& tokenizer_;
  std::vector<data::TokenId> ids_;
  std::string given_;
};

}  // namespace rondo::train
