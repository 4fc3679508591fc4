// From Oniguruma's syntax to PCRE2's.
//
// Most of a pattern is the same in both. What differs is rewritten (\w and \b, which PCRE2 reads more narrowly; \h and
// \v; script names; {n,m}+, which repeats here and is possessive there; {,n}); what has no safe equal is refused by
// name.
#include <array>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>

#include "pattern.h"
#include "rondo/base/status.h"

namespace rondo::data::tok {
namespace {

constexpr std::string_view kWordsOfSets = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Six signs of Latin-1 are letters and digits to Oniguruma's \w by an old table of its own, which its sets do not ask.
constexpr std::string_view kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
constexpr std::string_view kHexClass = "0-9a-fA-F";

bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> run() {
    while (!at_end()) RONDO_RETURN_IF_ERROR(element());
    return std::move(out_);
  }

 private:
  bool at_end() const { return at_ >= pattern_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  bool starts_with(std::string_view text) const { return pattern_.substr(at_).substr(0, text.size()) == text; }
  void copy(std::size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }
  void put(std::string_view text, std::size_t taken) {
    out_ += text;
    at_ += taken;
  }
  absl::Status refuse(std::string_view what) const {
    return invalid_input("{} at character {} of the expression is not supported", what, at_);
  }

  absl::Status element();
  absl::Status group();
  absl::Status escape(bool in_class);
  absl::Status letter_escape(char letter, bool in_class);
  absl::Status numbered_escape(char letter);
  absl::Status assertion_escape(char letter);
  absl::Status property();
  absl::Status character_class();
  absl::Status interval();

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;                  // where in out_ the element that a quantifier would repeat begins
  std::vector<std::size_t> open_groups_;  // where in out_ they begin
};

absl::Status Translator::element() {
  const char c = peek();
  if (c == '{') return interval();
  if (c == '*' || c == '+' || c == '?') {
    copy(1);
    return absl::OkStatus();
  }
  if (c == ')') {
    if (!open_groups_.empty()) {
      atom_ = open_groups_.back();
      open_groups_.pop_back();
    }
    copy(1);
    return absl::OkStatus();
  }
  atom_ = out_.size();
  if (c == '(') return group();
  if (c == '[') return character_class();
  if (c == '\\') return escape(false);
  copy(1);  // a multi-byte literal is copied byte by byte: atom_ must stay at its lead
  while (!at_end() && (static_cast<unsigned char>(peek()) & 0xC0U) == 0x80U) copy(1);
  return absl::OkStatus();
}

absl::Status Translator::group() {
  open_groups_.push_back(out_.size());
  if (peek(1) == '*') return refuse("'(*'");
  if (peek(1) != '?') {
    copy(1);
    return absl::OkStatus();
  }
  for (const std::string_view plain : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
    if (!starts_with(plain)) continue;
    copy(plain.size());
    return absl::OkStatus();
  }
  std::size_t end = at_ + 2;
  std::string flags;
  while (end < pattern_.size() && (pattern_[end] == 'i' || pattern_[end] == 'm' || pattern_[end] == '-')) {
    flags += pattern_[end] == 'm' ? 's' : pattern_[end];  // (?m: lets the dot match line feeds, in PCRE2 (?s:
    ++end;
  }
  const char closing = end < pattern_.size() ? pattern_[end] : '\0';
  if (flags.empty() || (closing != ':' && closing != ')')) return refuse("this kind of group");
  // Further on, what an option without a group governs differs between the two.
  if (closing == ')' && at_ != 0) return refuse("an option in the middle");
  if (closing == ')') open_groups_.pop_back();
  put("(?" + flags + closing, end + 1 - at_);
  return absl::OkStatus();
}

absl::Status Translator::interval() {
  std::size_t end = at_ + 1;
  while (end < pattern_.size() && (is_digit(pattern_[end]) || pattern_[end] == ',')) ++end;
  const std::string_view body = pattern_.substr(at_ + 1, end - at_ - 1);
  const std::size_t comma = body.find(',');
  const bool repeats = end < pattern_.size() && pattern_[end] == '}' && !body.empty() && body != "," &&
                       (comma == std::string_view::npos || body.find(',', comma + 1) == std::string_view::npos);
  if (!repeats) {
    atom_ = out_.size();
    put("\\{", 1);
    return absl::OkStatus();
  }
  const std::string quantifier = fmt::format("{{{}{}}}", body.front() == ',' ? "0" : "", body);
  const char next = end + 1 < pattern_.size() ? pattern_[end + 1] : '\0';
  if (next == '?' && comma == std::string_view::npos) return refuse("'{n}?'");
  put(quantifier, end + 1 - at_);
  if (next == '+') {
    out_.insert(atom_, "(?:");
    put(")+", 1);
  }
  return absl::OkStatus();
}

absl::Status Translator::escape(bool in_class) {
  if (at_ + 1 >= pattern_.size()) return refuse("a lone backslash");
  const char c = peek(1);
  if (is_letter(c)) return letter_escape(c, in_class);
  if (is_digit(c)) return refuse("a back reference or an octal number");
  if ((static_cast<unsigned char>(c) & 0x80U) != 0) {
    at_ += 1;  // an escaped character beyond ASCII is the character itself
    return absl::OkStatus();
  }
  copy(2);
  return absl::OkStatus();
}

absl::Status Translator::letter_escape(char letter, bool in_class) {
  const auto either = [&](std::string_view set) {
    put(in_class ? std::string(set) : fmt::format("[{}]", set), 2);
    return absl::OkStatus();
  };
  switch (letter) {
    case 'd':
    case 'D':
    case 's':
    case 'S':
    case 'n':
    case 'r':
    case 't':
    case 'f':
    case 'a':
    case 'e':
      copy(2);
      return absl::OkStatus();
    case 'w':
      return either(in_class ? kWordsOfSets : kWordClass);
    case 'h':
      return either(kHexClass);
    case 'v':
      put("\\x0B", 2);
      return absl::OkStatus();
    case 'p':
    case 'P':
      return property();
    case 'x':
    case 'u':
      return numbered_escape(letter);
    case 'b':
      if (in_class) {
        put("\\x08", 2);
        return absl::OkStatus();
      }
      return assertion_escape(letter);
    default:
      if (in_class) return refuse(fmt::format("'\\{}' in a set", letter));
      return assertion_escape(letter);
  }
}

absl::Status Translator::numbered_escape(char letter) {
  if (letter == 'x' && peek(2) == '{') {
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) return refuse("an open '\\x{'");
    copy(end + 1 - at_);
    return absl::OkStatus();
  }
  const std::size_t digits = letter == 'x' ? 2 : 4;
  std::string value;
  while (value.size() < digits && is_hex(peek(2 + value.size()))) value += peek(2 + value.size());
  // A byte beyond ASCII is not a character there.
  if (value.size() < digits || (letter == 'x' && value[0] >= '8')) return refuse("this number of a character");
  put(fmt::format("\\x{{{}}}", value), 2 + digits);
  return absl::OkStatus();
}

// What cannot stand in a set: assertions, and sets that are complements.
absl::Status Translator::assertion_escape(char letter) {
  const std::string word = fmt::format("[{}]", kWordClass);
  switch (letter) {
    case 'W':
      put(fmt::format("[^{}]", kWordClass), 2);
      return absl::OkStatus();
    case 'H':
      put(fmt::format("[^{}]", kHexClass), 2);
      return absl::OkStatus();
    case 'b':
      put(fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word), 2);
      return absl::OkStatus();
    case 'B':
      put(fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word), 2);
      return absl::OkStatus();
    case 'A':
    case 'z':
    case 'Z':
    case 'R':
      copy(2);
      return absl::OkStatus();
    default:
      return refuse(fmt::format("'\\{}'", letter));
  }
}

absl::Status Translator::property() {
  const std::size_t end = pattern_.find('}', at_);
  if (peek(2) != '{' || end == std::string_view::npos) return refuse("a property without braces");
  std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
  bool negated = peek(1) == 'P';
  if (!name.empty() && name.front() == '^') {
    negated = !negated;
    name.remove_prefix(1);
  }
  for (const char c : name) {
    if (!is_letter(c) && c != '_' && c != ' ' && c != '-') return refuse("this name of a property");
  }
  if (name.empty()) return refuse("a property without a name");
  const char* const head = negated ? "\\P" : "\\p";
  // A script's name means the script; PCRE2 would take the characters that other scripts share with it as well.
  const std::string script = fmt::format("{}{{sc:{}}}", head, name);
  const std::string plain = fmt::format("{}{{{}}}", head, name);
  const bool category = name.size() <= 2;
  if (!category && pcre2_accepts(script)) {
    put(script, end + 1 - at_);
    return absl::OkStatus();
  }
  if (!pcre2_accepts(plain)) return refuse(fmt::format("the property '{}'", name));
  put(plain, end + 1 - at_);
  return absl::OkStatus();
}

absl::Status Translator::character_class() {
  copy(1);
  if (peek() == '^') copy(1);
  if (peek() == ']') return refuse("']' as the first of a set");
  while (!at_end() && peek() != ']') {
    if (peek() == '[') return refuse("a set within a set");
    if (starts_with("&&")) return refuse("'&&' in a set");
    if (peek() == '\\') {
      RONDO_RETURN_IF_ERROR(escape(true));
    } else {
      copy(1);
    }
  }
  if (at_end()) return refuse("an open set");
  copy(1);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> pcre2_pattern(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace rondo::data::tok
