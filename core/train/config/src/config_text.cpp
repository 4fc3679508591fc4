// Text in values and messages: lists, quoting.
#include "rondo/train/config_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "rondo/base/text.h"
#include "rondo/base/utf8.h"

namespace rondo::train::config {

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (at >= kMost) {
      result += "...";
      break;
    }
    const std::size_t length = utf8_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (length == 0 || byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
      ++at;
    } else {
      result += text.substr(at, length);
      at += length;
    }
  }
  return result;
}

std::string in_quotes(std::string_view text) { return "'" + printable(text) + "'"; }

std::vector<std::string> elements_of(std::string_view list) {
  std::vector<std::string> elements;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    elements.emplace_back(trimmed(list.substr(0, comma)));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return elements;
}

std::optional<std::vector<double>> numbers_of(std::string_view list) {
  std::vector<double> numbers;
  for (const std::string& element : elements_of(list)) {
    double number = 0;
    const char* end = element.data() + element.size();
    const std::from_chars_result read = std::from_chars(element.data(), end, number);
    if (read.ec != std::errc() || read.ptr != end || !std::isfinite(number)) return std::nullopt;
    numbers.push_back(number);
  }
  return numbers;
}

std::string yaml_quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,";
  const bool plain = !text.empty() && text.find_first_not_of(kPlain) == std::string::npos;
  return plain ? text : shell_quoted(text);
}

}  // namespace rondo::train::config
