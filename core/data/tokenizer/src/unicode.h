// Character classes as the `tokenizers` library sees them.
//
// Its parts carry different versions of Unicode: regular expressions 16.0, numbers, white space and lower case 17.0,
// normal forms 9.0, punctuation 8.0. Here PCRE2 knows 14.0 and ICU 15.0, so the newer characters come from a table and
// the older versions are asked by the age of a character.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rondo::data::tok {

/// Unicode's White_Space.
bool is_white_space(char32_t c);
/// General category N (decimal, letter and other numbers).
bool is_numeric(char32_t c);
/// ASCII punctuation and symbols, and general category P up to Unicode 8.0.
bool is_punctuation(char32_t c);
/// Alphabetic, marks, decimal digits, connectors and the two joiners: the `\w` that fences off single-word tokens.
bool is_word(char32_t c);
/// True when the character is in Unicode 9.0, whose normal forms are the ones in force.
bool has_normal_form_data(char32_t c);

/// Appends the lower case of `c`, without regard to its neighbours; returns how many characters that is.
int append_lower_case(std::string& out, char32_t c);

/// For PCRE2: what stands in for `c` if PCRE2 does not know its category, else `c` itself. As many bytes in UTF-8.
char32_t stand_in(char32_t c);
/// `text` itself, or `storage` with every character replaced by its stand-in where there is one. Same length.
std::string_view with_stand_ins(std::string_view text, std::string& storage);

}  // namespace rondo::data::tok
