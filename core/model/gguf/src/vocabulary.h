// The tokenizer's keys: tokens with their kinds, merges or scores, the ids of special tokens, the chat template.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "container.h"
#include "rondo/base/documents.h"
#include "rondo/model/config.h"

namespace rondo::gguf {

/// As tokenizer.ggml.token_type has it.
enum TokenKind : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

/// Reads the tokenizer of a model. Errors: InvalidArgument naming file and key of what is malformed or has no
/// counterpart in GGUF, or when it has more tokens than the model.
absl::Status add_tokenizer_keys(const Documents& base, const model::ModelConfig& config, Keys& keys);

}  // namespace rondo::gguf
