// Models and adapters as GGUF files (version 3), as llama.cpp and its relatives read them.
//
// A file has general.*, the keys and tensor names of the architecture (llama, qwen2, qwen3) and the tokenizer. Vectors
// are f32 always; a matrix whose rows are no multiple of 32 is f16 where q8_0 is asked for. The rows of llama's q and k
// are interleaved, since readers rotate neighbouring rows.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "rondo/base/documents.h"
#include "rondo/model/adapter.h"
#include "rondo/model/config.h"
#include "rondo/model/safetensors.h"

namespace rondo::gguf {

/// `quantization`: f32, f16, bf16, q8_0, or auto: the type that the files have. The tensors were checked against
/// `config`; `base` are the model's, for its tokenizer. `output` must not exist; it is whole or not there. Errors:
/// InvalidArgument naming file and key of what GGUF cannot express, the tensor of a number that is not finite or too
/// large for the type, or the output that exists; Internal when it cannot be written.
absl::Status export_model(const Documents& base, const model::ModelConfig& config, const model::TensorFiles& files,
                          const std::string& quantization, const std::filesystem::path& output);

/// The same of a LoRA adapter for a model with this `config` and these documents. Readers scale by alpha / rank: with
/// rsLoRA alpha is written so that this gives the adapter's scale.
absl::Status export_adapter(const Documents& base, const model::ModelConfig& config, const model::LoraConfig& lora,
                            const model::TensorFiles& files, const std::string& quantization,
                            const std::filesystem::path& output);

}  // namespace rondo::gguf
