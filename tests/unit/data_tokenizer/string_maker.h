// Strings to try tokenizers on, made from fragments by a 64-bit linear congruential generator.
//
// tests/reference/tokenizer/string_maker.py makes the same strings byte for byte: change both or neither.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "utf8.h"

namespace rondo::data {

/// One fragment of fragments.txt with its escapes (\n \r \t \\ \u{...}) resolved.
inline std::string unescape(const std::string& line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      out += line[i];
      continue;
    }
    const char kind = line[++i];
    if (kind == 'u') {
      const std::size_t end = line.find('}', i);
      append_utf8(out, static_cast<char32_t>(std::stoul(line.substr(i + 2, end - i - 2), nullptr, 16)));
      i = end;
    } else {
      out += kind == 'n' ? '\n' : kind == 'r' ? '\r' : kind == 't' ? '\t' : kind;
    }
  }
  return out;
}

inline std::vector<std::string> read_fragments(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> fragments;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) fragments.push_back(unescape(line));
  }
  return fragments;
}

class StringMaker {
 public:
  StringMaker(std::uint64_t seed, std::vector<std::string> fragments)
      : state_(seed), fragments_(std::move(fragments)) {}

  std::string string() {
    std::string out;
    const std::uint64_t parts = 1 + next(12);
    for (std::uint64_t i = 0; i < parts; ++i) part(out);
    return out;
  }

 private:
  std::uint64_t next(std::uint64_t bound) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return (state_ >> 33U) % bound;
  }
  char32_t code_point() {
    constexpr std::array<std::uint64_t, 4> kBounds = {0x250, 0x3000, 0x10000, 0x110000};
    const std::uint64_t c = next(kBounds[next(4)]);
    return c >= 0xD800 && c < 0xE000 ? U' ' : static_cast<char32_t>(c);
  }
  const std::string& fragment() { return fragments_[next(fragments_.size())]; }

  void part(std::string& out) {
    const std::uint64_t kind = next(16);
    if (kind == 0) {
      append_utf8(out, code_point());
    } else if (kind == 1) {
      const std::string& repeated = fragment();
      const std::uint64_t times = 1 + next(6);
      for (std::uint64_t i = 0; i < times; ++i) out += repeated;
    } else if (kind == 2 && next(20) == 0) {
      const std::uint64_t letters = next(400);
      for (std::uint64_t i = 0; i < letters; ++i) out += static_cast<char>('a' + next(26));
    } else {
      out += fragment();
    }
  }

  std::uint64_t state_;
  std::vector<std::string> fragments_;
};

}  // namespace rondo::data
