#include "pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <utility>

#include "rondo/base/status.h"
#include "unicode.h"
#include "utf8.h"

namespace rondo::data::tok {
namespace {

PCRE2_SPTR8 units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR8>(text.data()); }

struct FreeContext {
  void operator()(pcre2_compile_context_8* context) const { pcre2_compile_context_free_8(context); }
};

std::string message_of(int code) {
  std::array<PCRE2_UCHAR8, 160> text{};
  pcre2_get_error_message_8(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

// One pair suffices: only the whole match is ever read.
RegexScratch::RegexScratch() : data_(pcre2_match_data_create_8(1, nullptr)) {}

void RegexScratch::Free::operator()(pcre2_real_match_data_8* data) const { pcre2_match_data_free_8(data); }

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free_8(code); }

absl::StatusOr<Regex> Regex::build(std::string_view pattern, unsigned options) {
  const std::unique_ptr<pcre2_compile_context_8, FreeContext> context(pcre2_compile_context_create_8(nullptr));
  pcre2_set_newline_8(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  Regex regex;
  regex.code_.reset(pcre2_compile_8(units(pattern), pattern.size(), options, &code, &offset, context.get()));
  if (regex.code_ == nullptr) return invalid_input("{} at character {} of the expression", message_of(code), offset);
  regex.jit_ = pcre2_jit_compile_8(regex.code_.get(), PCRE2_JIT_COMPLETE) == 0;
  return regex;
}

absl::StatusOr<Regex> Regex::compile(std::string_view pattern) {
  if (!is_utf8(pattern)) return invalid_input("the expression is not UTF-8");
  RONDO_ASSIGN_OR_RETURN(const std::string translated, pcre2_pattern(pattern));
  return build(translated, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
}

absl::StatusOr<Regex> Regex::literal(std::string_view text) {
  auto regex = build(text, PCRE2_UTF | PCRE2_LITERAL);
  if (regex.ok()) regex->literal_ = true;
  return regex;
}

int Regex::match(std::string_view text, std::size_t from, const RegexScratch& scratch) const {
  if (jit_) {
    const int found = pcre2_jit_match_8(code_.get(), units(text), text.size(), from, 0, scratch.data(), nullptr);
    if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
  }
  return pcre2_match_8(code_.get(), units(text), text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch.data(),
                       nullptr);
}

void Regex::find(std::string_view text, RegexScratch& scratch, std::vector<Span>& spans) const {
  spans.clear();
  if (text.empty()) return;
  const std::string_view subject = literal_ ? text : with_stand_ins(text, scratch.subject);
  const PCRE2_SIZE* const found = pcre2_get_ovector_pointer_8(scratch.data());
  std::size_t done = 0;
  bool matched_before = false;
  for (std::size_t from = 0; from <= text.size();) {
    if (match(subject, from, scratch) < 0) break;
    const std::size_t begin = found[0];
    const std::size_t end = found[1];
    // An empty match right behind the last one would be found for ever: one character on.
    if (begin == end && matched_before && begin == done) {
      from = from < text.size() ? character_end(text, from) : from + 1;
      continue;
    }
    if (done != begin) spans.push_back({done, begin, false});
    spans.push_back({begin, end, true});
    done = end;
    from = end;
    matched_before = true;
  }
  if (done != text.size()) spans.push_back({done, text.size(), false});
}

bool pcre2_accepts(const std::string& pattern) {
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code_8* const compiled =
      pcre2_compile_8(units(pattern), pattern.size(), PCRE2_UTF | PCRE2_UCP, &code, &offset, nullptr);
  pcre2_code_free_8(compiled);
  return compiled != nullptr;
}

}  // namespace rondo::data::tok
