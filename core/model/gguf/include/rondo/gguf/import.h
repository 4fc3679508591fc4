// GGUF files as models: their keys as the small files of a model directory, their tensors under transformers' names.
//
// Tensors are decoded when they are read, a stretch at a time, to the exact fp32 numbers that the format defines; the
// rows of llama's q and k come back in transformers' order. See docs/gguf.md for what is read and what is refused.
#pragma once

#include <filesystem>

#include "absl/status/statusor.h"
#include "rondo/base/documents.h"
#include "rondo/model/safetensors.h"

namespace rondo::gguf {

/// Whether a file begins as GGUF files do.
bool is_gguf(const std::filesystem::path& file);

/// config.json, generation_config.json and, where the file holds a tokenizer, tokenizer.json, tokenizer_config.json and
/// chat_template.jinja. transformers and this program load them as they are. Errors: InvalidArgument naming the file
/// and the key or tensor.
absl::StatusOr<Documents> import_documents(const std::filesystem::path& file);

/// Every tensor of the model; check_model_tensors() has yet to be asked. Errors as above.
absl::StatusOr<model::TensorFiles> import_tensors(const std::filesystem::path& file);

}  // namespace rondo::gguf
