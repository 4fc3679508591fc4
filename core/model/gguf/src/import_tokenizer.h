// From a file's tokenizer.ggml.* keys to tokenizer.json and tokenizer_config.json.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "rondo/model/config.h"
#include "stored_file.h"

namespace rondo::gguf {

/// Adds the two texts to `documents` and, where the file has a template, chat_template.jinja. gpt2 is byte-level BPE
/// with the cut that tokenizer.ggml.pre names; llama is BPE with byte fallback whose merges follow from the scores,
/// gemma4 likewise with merges of its own. Nothing is added when the file holds no tokenizer. Errors: InvalidArgument
/// naming the key.
absl::Status import_tokenizer(const StoredFile& file, const model::ModelConfig& config,
                              std::map<std::string, std::string>& documents);

}  // namespace rondo::gguf
