// How a tokenizer.json cuts text before its merges, as GGUF names it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace rondo::gguf {

/// The value of tokenizer.ggml.pre for a byte-level tokenizer: gpt-2, llama-bpe, qwen2, deepseek-v3 and others. GGUF
/// readers know cuts by name only, so that any other cut is refused: it would be read as a different tokenizer. Errors:
/// InvalidArgument naming `origin` and the key.
absl::StatusOr<std::string> splitting_name(const nlohmann::json& tokenizer, const std::string& origin);

/// Whether a byte-fallback tokenizer puts a blank before a text. Errors: InvalidArgument when it normalises or cuts in
/// a way that GGUF's llama tokenizer does not.
absl::StatusOr<bool> puts_blank_first(const nlohmann::json& tokenizer, const std::string& origin);

}  // namespace rondo::gguf
