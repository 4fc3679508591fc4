// Where a model is and in which form: a Hugging Face directory, a GGUF file, or either in the local Hugging Face cache;
// and what is opened of it and of an adapter. Nothing is ever fetched.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "rondo/base/documents.h"
#include "rondo/model/adapter.h"
#include "rondo/model/config_documents.h"
#include "rondo/model/safetensors.h"

namespace rondo::train {

/// The folder of the local Hugging Face cache: $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub. It need not
/// exist.
std::filesystem::path hub_cache();

/// A directory with config.json, a GGUF file, a directory with one GGUF file and no config.json, or a Hub id in the
/// local cache (see hub_cache()), where `revision` is a branch, tag or commit. The
/// result is the directory or the GGUF file. Errors: InvalidArgument naming what was looked for and where, and of a
/// cached model what has not arrived.
absl::StatusOr<std::filesystem::path> find_model(const std::string& name_or_path, const std::string& revision = "main");

/// The model's small files, or those that stand for a GGUF file's keys. `model`: from find_model().
absl::StatusOr<Documents> open_documents(const std::filesystem::path& model);

/// The model's configuration; of a directory whose files have a head of its own although it says that embedding and
/// head are one, with two.
absl::StatusOr<model::ModelConfig> open_config(const std::filesystem::path& model, const Documents& documents);

/// The model's tensors, checked against `config`; values are not looked at.
absl::StatusOr<model::TensorFiles> open_tensors(const std::filesystem::path& model, const model::ModelConfig& config);

/// An adapter of PEFT's: what it is, and its factors.
struct OpenAdapter {
  model::LoraConfig lora;
  model::TensorFiles files;
};
/// The adapter in `folder`, checked against `config`, its model's; values are not looked at.
absl::StatusOr<OpenAdapter> open_adapter(const std::filesystem::path& folder, const model::ModelConfig& config);

}  // namespace rondo::train
