// The tokenizer's keys: tokens with their kinds, merges or scores, the ids of special tokens, the chat template.
#pragma once

#include "absl/status/status.h"
#include "container.h"
#include "rondo/base/documents.h"
#include "rondo/model/config.h"

namespace rondo::gguf {

/// Reads the tokenizer of a model. Errors: InvalidArgument naming file and key of what is malformed or has no
/// counterpart in GGUF, or when it has more tokens than the model.
absl::Status add_tokenizer_keys(const Documents& base, const model::ModelConfig& config, Keys& keys);

}  // namespace rondo::gguf
