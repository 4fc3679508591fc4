// Decodes the whole answer at each token: what a token adds depends on those before it.
#include "text_stream.h"

namespace rondo::train {

std::string TextStream::past_given(const std::string& whole) {
  if (!whole.starts_with(given_)) return {};
  std::string piece = whole.substr(given_.size());
  given_ = whole;
  return piece;
}

std::string TextStream::add(data::TokenId id) {
  ids_.push_back(id);
  const std::string whole = text();
  // An unfinished UTF-8 character shows as U+FFFD: it waits for its rest.
  if (whole.ends_with("\xEF\xBF\xBD")) return {};
  return past_given(whole);
}

std::string TextStream::rest() { return past_given(text()); }

}  // namespace rondo::train
