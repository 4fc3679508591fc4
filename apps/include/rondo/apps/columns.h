// Two texts beside each other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo::apps {

/// Lines of at most `width` characters, broken at blanks where there are any; line breaks of the text stay.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

/// Both texts in columns of equal width under their titles, `width` characters in all, each line ended.
std::string side_by_side(std::string_view left_title, std::string_view left, std::string_view right_title,
                         std::string_view right, std::size_t width);

/// Without what could steer a terminal: control characters other than line break and tab, and those of the range from
/// U+0080, become \xNN. For text that a model wrote.
std::string harmless(std::string_view text);

}  // namespace rondo::apps
