// The tokenizer's keys: tokens with their kinds, merges or scores, the ids of special tokens, the chat template.
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "container.h"
#include "rondo/model/config.h"

namespace rondo::gguf {

/// Reads the tokenizer of a model directory. Errors: InvalidArgument naming file and key of what is malformed or has no
/// counterpart in GGUF, or when it has more tokens than the model.
absl::Status add_tokenizer_keys(const std::filesystem::path& folder, const model::ModelConfig& config, Keys& keys);

}  // namespace rondo::gguf
