// What the keys and tensors of a GGUF file say about a mixture of experts.
#pragma once

#include <string>

#include "key_reader.h"
#include "rondo/model/config.h"

namespace rondo::gguf {

/// Under llama's name they make a Mixtral. REQUIRES: the sizes of `config` are there.
void read_experts(KeyReader& keys, const std::string& prefix, model::ModelConfig& config);

}  // namespace rondo::gguf
