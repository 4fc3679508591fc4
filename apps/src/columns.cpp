// Columns of UTF-8 text. A character counts as one column: wide scripts give lines that are too long, nothing worse.
#include "rondo/apps/columns.h"

#include <fmt/format.h>

#include <algorithm>

namespace rondo::apps {
namespace {

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

/// Bytes of the first `count` characters.
std::size_t bytes_of(std::string_view text, std::size_t count) {
  std::size_t at = 0;
  for (std::size_t seen = 0; at < text.size(); ++at) {
    if (begins_character(text[at]) && seen++ == count) break;
  }
  return at;
}

void wrap_line(std::string_view line, std::size_t width, std::vector<std::string>& lines) {
  while (characters(line) > width) {
    const std::size_t most = bytes_of(line, width);
    const std::size_t blank = line.rfind(' ', most);
    const bool breaks = blank != std::string_view::npos && blank > 0;
    lines.emplace_back(line.substr(0, breaks ? blank : most));
    line.remove_prefix(breaks ? blank + 1 : most);
  }
  lines.emplace_back(line);
}

}  // namespace

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    wrap_line(text.substr(begin, end - begin), std::max<std::size_t>(width, 1), lines);
    begin = end + 1;
  }
  return lines;
}

std::string side_by_side(std::string_view left_title, std::string_view left, std::string_view right_title,
                         std::string_view right, std::size_t width) {
  constexpr std::string_view kGap = " | ";
  const std::size_t column = (std::max<std::size_t>(width, 12) - kGap.size()) / 2;
  std::vector<std::string> lefts = wrapped(left, column);
  std::vector<std::string> rights = wrapped(right, column);
  lefts.insert(lefts.begin(), std::string(left_title));
  rights.insert(rights.begin(), std::string(right_title));
  const std::size_t rows = std::max(lefts.size(), rights.size());
  lefts.resize(rows);
  rights.resize(rows);
  std::string text;
  for (std::size_t i = 0; i < rows; ++i) {
    text += lefts[i] + std::string(column - std::min(column, characters(lefts[i])), ' ');
    text += kGap;
    text += rights[i];
    while (text.back() == ' ') text.pop_back();
    text += '\n';
  }
  return text;
}

std::string harmless(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool high_control =
        byte == 0xC2 && i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xE0U) == 0x80U;
    if (high_control) {
      plain += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      plain += fmt::format("\\x{:02x}", byte);
    } else {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace rondo::apps
