// From template text to tokens: the delimiters, white-space control and literals of Jinja2 with trim_blocks and
// lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::data::jinja {

enum class TokenType : std::uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;  // a string's value; a number without underscores; otherwise as written
  std::uint32_t line = 1;

  bool is_operator(std::string_view symbol) const { return type == TokenType::kOperator && text == symbol; }
  bool is_name(std::string_view name) const { return type == TokenType::kName && text == name; }
};

/// All tokens, ended by kEnd. Throws Failure with the line.
std::vector<Token> tokenize(std::string_view source);

/// What to call the token in a message.
std::string describe(const Token& token);

}  // namespace rondo::data::jinja
