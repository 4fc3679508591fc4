// Regular expressions as the `tokenizers` library reads them (Oniguruma's syntax), matched by PCRE2 with its JIT.
//
// A Regex is immutable and may be used from any thread; what a match needs of its own is in RegexScratch.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "splitting.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace rondo::data::tok {

/// Memory for matching, one per encode or decode call.
class RegexScratch {
 public:
  RegexScratch();
  pcre2_real_match_data_8* data() const { return data_.get(); }
  std::string subject;      // a text with stand-ins
  std::vector<Span> spans;  // the matches of the piece at hand

 private:
  struct Free {
    void operator()(pcre2_real_match_data_8* data) const;
  };
  std::unique_ptr<pcre2_real_match_data_8, Free> data_;
};

class Regex {
 public:
  /// Errors: InvalidArgument naming what in the pattern is wrong or not supported.
  static absl::StatusOr<Regex> compile(std::string_view pattern);
  /// Matches `text` itself.
  static absl::StatusOr<Regex> literal(std::string_view text);

  /// The spans of `text`: matches and what lies between them; a match may be empty.
  void find(std::string_view text, RegexScratch& scratch, std::vector<Span>& spans) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  Regex() = default;
  static absl::StatusOr<Regex> build(std::string_view pattern, unsigned options);
  int match(std::string_view text, std::size_t from, const RegexScratch& scratch) const;

  std::unique_ptr<pcre2_real_code_8, Free> code_;
  bool jit_ = false;
  bool literal_ = false;
};

/// `pattern` in PCRE2's words. Errors: InvalidArgument naming the construct that has no equal there.
absl::StatusOr<std::string> pcre2_pattern(std::string_view pattern);

/// True if PCRE2 compiles `pattern` (its own syntax).
bool pcre2_accepts(const std::string& pattern);

}  // namespace rondo::data::tok
