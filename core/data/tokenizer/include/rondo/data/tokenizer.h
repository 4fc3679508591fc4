// Text to token ids and back, as the file tokenizer.json says (byte-level and byte-fallback BPE).
//
// The `tokenizers` library is the reference for ids. A Tokenizer is immutable once loaded and may be used from any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/base/documents.h"

namespace rondo::data {

using TokenId = std::int32_t;

/// Half-open byte range of the original text (before normalisation) that a token stands for. A token that special-token
/// processing inserted has begin == end.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct Encoded {
  std::vector<TokenId> ids;
  std::vector<TextRange> ranges;  // one per id
  std::uint64_t dropped = 0;      // symbols that the vocabulary lacks and that have no unk_token: left out, counted
};

class Tokenizer {
 public:
  /// Reads tokenizer.json and, for the names of the special tokens, tokenizer_config.json, special_tokens_map.json and
  /// config.json.
  /// Errors: InvalidArgument naming the file and the key or component that is missing, malformed or not supported.
  static absl::StatusOr<Tokenizer> load(const Documents& documents);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// `text` is UTF-8, below 2 GiB; invalid sequences count as U+FFFD. Special tokens in the text are parsed.
  /// With `add_special_tokens` the post-processor adds bos, eos as the file says; without, it only trims ranges.
  /// The file's truncation and padding are not applied.
  Encoded encode(std::string_view text, bool add_special_tokens) const;

  /// How many tokens the post-processor puts before those of a text.
  std::size_t inserted_before() const;

  /// The text of `ids`, as `tokenizers` decodes them. Ids outside the vocabulary give nothing.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  std::optional<TokenId> id_of(std::string_view token) const;
  /// Empty when the id is not in the vocabulary.
  std::string token_of(TokenId id) const;
  bool is_special(TokenId id) const;
  /// One more than the largest id.
  std::size_t size() const;

  /// From tokenizer_config.json (a string or {"content": ...}), nothing when absent or null; where that file does not
  /// list the added tokens (added_tokens_decoder), special_tokens_map.json goes before it. Without both, the token that
  /// config.json names by id (bos_token_id; the first of a list).
  std::optional<std::string> bos_token() const;
  std::optional<std::string> eos_token() const;
  /// Of eos_token(), where the vocabulary has it.
  std::optional<TokenId> eos_id() const;
  std::optional<std::string> pad_token() const;
  std::optional<std::string> unk_token() const;
  /// All that are named so, by the names by which templates know them: bos_token, sep_token, ..., and those of the
  /// tokenizer's own under extra_special_tokens.
  const std::map<std::string, std::string>& named_tokens() const;

 private:
  class Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace rondo::data
