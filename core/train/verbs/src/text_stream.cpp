// Decodes the whole answer at each token: what a token adds depends on those before it.
#include "text_stream.h"

namespace rondo::train {
namespace {

/// A byte of a byte-fallback vocabulary, such as <0xE6>. A run of them is a text only if all of it is UTF-8, else each
/// one is U+FFFD: until another token ends the run nothing of it is certain.
bool is_byte(const std::string& token) { return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>'); }

}  // namespace

std::string TextStream::past_given(const std::string& whole) {
  if (!whole.starts_with(given_)) return {};
  std::string piece = whole.substr(given_.size());
  given_ = whole;
  return piece;
}

std::string TextStream::add(data::TokenId id) {
  ids_.push_back(id);
  const std::string token = tokenizer_.token_of(id);
  // What decodes to nothing ends no run.
  if (token.empty() || tokenizer_.is_special(id) || is_byte(token)) return {};
  const std::string whole = text();
  // An unfinished UTF-8 character shows as U+FFFD: it waits for its rest.
  if (whole.ends_with("\xEF\xBF\xBD")) return {};
  return past_given(whole);
}

std::string TextStream::rest() { return past_given(text()); }

}  // namespace rondo::train
