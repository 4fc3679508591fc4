// UTF-8 as RFC 3629 has it: whole, shortest sequences without surrogates, up to U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rondo {

/// Bytes of the sequence that begins at text[at] (at < text.size()), 1 to 4; 0 where none begins.
std::size_t utf8_length(std::string_view text, std::size_t at);

/// Bytes at the beginning of the text that are nothing but such sequences.
std::size_t utf8_prefix(std::string_view text);

/// True when the text is nothing but such sequences; an empty one is.
bool is_utf8(std::string_view text);

/// Adds the sequence of a code point (at most U+10FFFF; a surrogate is written too).
void append_utf8(std::string& text, char32_t code_point);

}  // namespace rondo
