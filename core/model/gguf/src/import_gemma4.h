// Those of a file's keys that only Gemma 4's have.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "key_reader.h"
#include "rondo/model/config.h"

namespace rondo::gguf {

/// Heads of keys and sizes of heads, by the kind of layer, and the windows. REQUIRES: config.num_layers and num_heads.
/// What is refused is in the reader's status.
void read_gemma4(KeyReader& keys, const StoredFile& file, const std::string& prefix, model::ModelConfig& config);

/// How far layers that see all are turned, from rope_freqs.weight. Errors: InvalidArgument naming the tensor.
absl::Status read_still_frequencies(const StoredFile& file, model::ModelConfig& config);

}  // namespace rondo::gguf
