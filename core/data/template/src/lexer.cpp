// Template text:
//
//   template = *( data / "{{" [sign] tokens ["-"] "}}" / "{%" [sign] tokens [sign] "%}" / "{#" ... [sign] "#}" / raw )
//   raw      = "{%" [sign] "raw" ["-"] "%}" ... "{%" [sign] "endraw" [sign] "%}"
//   sign     = "-" (strip white space on this side, line ends too) / "+" (keep it)
//
// After a block or comment one line end goes; before one, white space back to the line's start goes (unless "+").
// An end delimiter inside open brackets is not one.
#include "lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "rondo/base/utf8.h"
#include "text.h"
#include "value.h"

namespace rondo::data::jinja {
namespace {

bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/// All line ends as \n, and the last one dropped.
std::string normalize(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// The escapes of a Python string literal.
class Unescaper {
 public:
  Unescaper(std::string_view body, std::uint32_t line) : body_(body), line_(line) {}
  std::string run() {
    while (position_ < body_.size()) {
      const char c = body_[position_++];
      if (c == '\\') {
        escape();
      } else {
        result_ += c;
      }
    }
    return std::move(result_);
  }

 private:
  void escape() {
    constexpr std::string_view kNames = "\\'\"abfnrtv";
    constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    const char c = body_[position_];
    if (const std::size_t simple = kNames.find(c); simple != std::string_view::npos) {
      ++position_;
      result_ += kValues[simple];
    } else if (c == '\n') {
      ++position_;
    } else if (c >= '0' && c <= '7') {
      octal();
    } else if (c == 'x' || c == 'u' || c == 'U') {
      ++position_;
      hexadecimal(c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c == 'N') {
      throw Failure{"character names in strings (\\N) are not supported", line_};
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      // Python sees this character already escaped, so the backslash swallows that escape's own.
      const auto code = static_cast<std::uint32_t>(next_code_point(body_, position_));
      result_ += code < 0x100     ? fmt::format("\\x{:02x}", code)
                 : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                  : fmt::format("\\U{:08x}", code);
    } else {
      result_ += '\\';
    }
  }

  void octal() {
    char32_t code = 0;
    for (int i = 0; i < 3 && position_ < body_.size() && body_[position_] >= '0' && body_[position_] <= '7'; ++i) {
      code = code * 8 + static_cast<char32_t>(body_[position_++] - '0');
    }
    append_utf8(result_, code);
  }

  void hexadecimal(std::size_t digits) {
    const std::string_view text = body_.substr(position_, digits);
    if (text.size() < digits || !std::all_of(text.begin(), text.end(), is_hex)) {
      throw Failure{"truncated character escape in a string", line_};
    }
    const unsigned long code = std::stoul(std::string(text), nullptr, 16);
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      throw Failure{fmt::format("a string escapes U+{:X}, which is no character", code), line_};
    }
    append_utf8(result_, static_cast<char32_t>(code));
    position_ += digits;
  }

  std::string_view body_;
  std::uint32_t line_;
  std::size_t position_ = 0;
  std::string result_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize(source)), text_(source_) {}
  std::vector<Token> run();

 private:
  char at(std::size_t position) const { return position < text_.size() ? text_[position] : '\0'; }
  bool starts(std::size_t position, std::string_view what) const { return text_.substr(position, what.size()) == what; }
  std::size_t skip_space(std::size_t position) const {
    return text_.size() - strip_space(text_.substr(position), Side::kLeft).size();
  }
  std::uint32_t line_at(std::size_t position);
  void emit(TokenType type, std::size_t position, std::string text) {
    tokens_.push_back({type, std::move(text), line_at(position)});
  }
  /// Moves to `end`, remembering whether a line starts there.
  void finish(std::size_t end) {
    if (end > position_) line_starting_ = text_[end - 1] == '\n';
    position_ = end;
  }
  void emit_data(std::size_t end, char sign, bool variable);
  /// End of an end delimiter at `position` with its white-space control, or 0.
  std::size_t end_of_tag(std::size_t position, std::string_view delimiter, bool plus_and_trim) const;
  bool raw_block(std::size_t open, char sign);
  void comment(std::size_t open);
  void tag(bool variable);
  void next_token();
  std::size_t number_end(bool& real) const;
  std::size_t digits_end(std::size_t position) const;
  void string_token(char quote);
  void operator_token();

  std::string source_;
  std::string_view text_;
  std::size_t position_ = 0;
  bool line_starting_ = true;
  std::string brackets_;  // the closing ones that are due
  std::size_t counted_to_ = 0;
  std::uint32_t line_ = 1;
  std::vector<Token> tokens_;
};

std::uint32_t Lexer::line_at(std::size_t position) {
  // Positions only grow but for the start of data before a tag, which may be asked late: never count twice.
  if (position > counted_to_) {
    line_ += static_cast<std::uint32_t>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_to_),
                                                   text_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
    counted_to_ = position;
  }
  return line_;
}

void Lexer::emit_data(std::size_t end, char sign, bool variable) {
  std::string_view data = text_.substr(position_, end - position_);
  if (sign == '-') {
    data = strip_space(data, Side::kRight);
  } else if (sign != '+' && !variable) {
    const std::size_t newline = data.rfind('\n');
    const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    const bool at_line_start = start > 0 || line_starting_;
    if (at_line_start && strip_space(data.substr(start), Side::kLeft).empty()) data = data.substr(0, start);
  }
  if (!data.empty()) emit(TokenType::kData, position_, std::string(data));
}

std::size_t Lexer::end_of_tag(std::size_t position, std::string_view delimiter, bool plus_and_trim) const {
  if (at(position) == '-' && starts(position + 1, delimiter)) return skip_space(position + 1 + delimiter.size());
  if (plus_and_trim && at(position) == '+' && starts(position + 1, delimiter)) return position + 1 + delimiter.size();
  if (!starts(position, delimiter)) return 0;
  const std::size_t end = position + delimiter.size();
  return plus_and_trim && at(end) == '\n' ? end + 1 : end;
}

bool Lexer::raw_block(std::size_t open, char sign) {
  std::size_t position = skip_space(open + (sign == '\0' ? 2 : 3));
  if (!starts(position, "raw")) return false;
  position = skip_space(position + 3);
  if (starts(position, "-%}")) {
    position = skip_space(position + 3);
  } else if (starts(position, "%}")) {
    position += 2;
  } else {
    return false;
  }
  emit_data(open, sign, false);
  finish(position);
  for (std::size_t end = text_.find("{%", position); end != std::string_view::npos; end = text_.find("{%", end + 1)) {
    const char end_sign = at(end + 2) == '-' || at(end + 2) == '+' ? at(end + 2) : '\0';
    const std::size_t name = skip_space(end + (end_sign == '\0' ? 2 : 3));
    if (!starts(name, "endraw")) continue;
    if (const std::size_t after = end_of_tag(skip_space(name + 6), "%}", true); after != 0) {
      emit_data(end, end_sign, false);
      finish(after);
      return true;
    }
  }
  if (position == text_.size()) return true;  // as in Jinja2, nothing to close is not an error
  throw Failure{"a raw block is not closed", line_at(open)};
}

void Lexer::comment(std::size_t open) {
  const std::size_t begin = open + (at(open + 2) == '-' || at(open + 2) == '+' ? 3 : 2);
  for (std::size_t position = begin; position < text_.size(); ++position) {
    if (const std::size_t end = end_of_tag(position, "#}", true); end != 0) {
      finish(end);
      return;
    }
  }
  if (begin < text_.size()) throw Failure{"a comment is not closed", line_at(open)};
  finish(text_.size());
}

std::size_t Lexer::digits_end(std::size_t position) const {
  if (!is_digit(at(position))) return position;
  while (is_digit(at(position)) || (at(position) == '_' && is_digit(at(position + 1)))) ++position;
  return position;
}

std::size_t Lexer::number_end(bool& real) const {
  const std::size_t whole = digits_end(position_);
  std::size_t end = whole;
  if (at(end) == '.' && is_digit(at(end + 1))) end = digits_end(end + 1);
  if (at(end) == 'e' || at(end) == 'E') {
    const std::size_t exponent = end + (at(end + 1) == '+' || at(end + 1) == '-' ? 2 : 1);
    if (is_digit(at(exponent))) end = digits_end(exponent);
  }
  // A number right after a dot (as in a.1.5) is an index, not a fraction.
  real = end > whole && !(position_ > 0 && text_[position_ - 1] == '.');
  if (real) return end;
  const char radix = static_cast<char>(at(position_ + 1) | 0x20);
  if (at(position_) == '0' && (radix == 'x' || radix == 'o' || radix == 'b')) {
    const auto fits = [radix](char c) {
      return radix == 'x' ? is_hex(c) : c >= '0' && c <= (radix == 'o' ? '7' : '1');
    };
    std::size_t p = position_ + 2;
    while (fits(at(p)) || (at(p) == '_' && fits(at(p + 1)))) ++p;
    if (p > position_ + 2) return p;
  }
  if (at(position_) != '0') return whole;
  std::size_t zeros = position_;
  while (at(zeros) == '0' || (at(zeros) == '_' && at(zeros + 1) == '0')) ++zeros;
  return zeros;
}

void Lexer::string_token(char quote) {
  std::size_t end = position_ + 1;
  while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2U : 1U;
  if (end >= text_.size()) throw Failure{"a string is not closed", line_at(position_)};
  const std::uint32_t line = line_at(position_);
  emit(TokenType::kString, position_, Unescaper(text_.substr(position_ + 1, end - position_ - 1), line).run());
  finish(end + 1);
}

void Lexer::operator_token() {
  constexpr std::array<std::string_view, 26> kOperators = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
  const auto found = std::find_if(kOperators.begin(), kOperators.end(),
                                  [this](std::string_view symbol) { return starts(position_, symbol); });
  if (found == kOperators.end()) {
    throw Failure{
        fmt::format("unexpected character '{}'", text_.substr(position_, byte_offset(text_.substr(position_), 1))),
        line_at(position_)};
  }
  const char c = found->size() == 1 ? found->front() : '\0';
  if (c == '(' || c == '[' || c == '{') brackets_ += c == '(' ? ')' : static_cast<char>(c + 2);
  if (c == ')' || c == ']' || c == '}') {
    if (brackets_.empty() || brackets_.back() != c)
      throw Failure{fmt::format("unexpected '{}'", c), line_at(position_)};
    brackets_.pop_back();
  }
  emit(TokenType::kOperator, position_, std::string(*found));
  finish(position_ + found->size());
}

void Lexer::next_token() {
  const char c = text_[position_];
  if (is_digit(c)) {
    bool real = false;
    const std::size_t end = number_end(real);
    std::string number(text_.substr(position_, end - position_));
    number.erase(std::remove(number.begin(), number.end(), '_'), number.end());
    emit(real ? TokenType::kFloat : TokenType::kInteger, position_, std::move(number));
    finish(end);
    return;
  }
  if (c == '\'' || c == '"') return string_token(c);
  std::size_t end = position_;
  if (!is_identifier_start(next_code_point(text_, end))) return operator_token();
  while (end < text_.size()) {
    std::size_t next = end;
    if (!is_identifier_part(next_code_point(text_, next))) break;
    end = next;
  }
  emit(TokenType::kName, position_, std::string(text_.substr(position_, end - position_)));
  finish(end);
}

void Lexer::tag(bool variable) {
  const std::string_view delimiter = variable ? "}}" : "%}";
  emit(variable ? TokenType::kVariableBegin : TokenType::kBlockBegin, position_, std::string(variable ? "{{" : "{%"));
  const std::size_t open = position_;
  const bool signed_tag = at(position_ + 2) == '-' || at(position_ + 2) == '+';
  finish(position_ + (signed_tag ? 3 : 2));
  brackets_.clear();
  while (true) {
    if (brackets_.empty()) {
      if (const std::size_t end = end_of_tag(position_, delimiter, !variable); end != 0) {
        emit(variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, position_, std::string(delimiter));
        finish(end);
        return;
      }
    }
    if (const std::size_t next = skip_space(position_); next > position_) {
      finish(next);
      continue;
    }
    if (position_ >= text_.size()) {
      throw Failure{fmt::format("'{}' is not closed", variable ? "{{" : "{%"), line_at(open)};
    }
    next_token();
  }
}

std::vector<Token> Lexer::run() {
  while (position_ < text_.size()) {
    std::size_t open = text_.find('{', position_);
    while (open != std::string_view::npos && at(open + 1) != '{' && at(open + 1) != '%' && at(open + 1) != '#') {
      open = text_.find('{', open + 1);
    }
    if (open == std::string_view::npos) {
      emit(TokenType::kData, position_, std::string(text_.substr(position_)));
      position_ = text_.size();
      break;
    }
    const char kind = at(open + 1);
    const char sign = at(open + 2) == '-' || at(open + 2) == '+' ? at(open + 2) : '\0';
    if (kind == '%' && raw_block(open, sign)) continue;
    emit_data(open, sign, kind == '{');
    position_ = open;
    if (kind == '#') {
      comment(open);
    } else {
      tag(kind == '{');
    }
  }
  emit(TokenType::kEnd, text_.size(), "");
  return std::move(tokens_);
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (!is_utf8(source)) throw Failure{"the template is not UTF-8"};
  return Lexer(source).run();
}

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "text";
    case TokenType::kString:
      return "a string";
    case TokenType::kEnd:
      return "the end of the template";
    default:
      return fmt::format("'{}'", token.text);
  }
}

}  // namespace rondo::data::jinja
