// The verbs that turn model directories into other files: no device takes part.
#include <filesystem>

#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/model/adapter.h"
#include "rondo/model/merge.h"
#include "rondo/model/new_folder.h"
#include "rondo/model/parameters.h"
#include "rondo/model/safetensors.h"
#include "rondo/train/run.h"
#include "rondo/train/session.h"
#include "rondo/train/weights.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

/// An adapter that fits the model.
struct OpenAdapter {
  model::LoraConfig lora;
  model::TensorFiles files;
};

absl::StatusOr<OpenAdapter> open_adapter(const fs::path& folder, const model::ModelConfig& config) {
  RONDO_ASSIGN_OR_RETURN(model::LoraConfig lora, model::load_adapter_config(folder));
  RONDO_ASSIGN_OR_RETURN(model::TensorFiles files, model::TensorFiles::open_file(folder / "adapter_model.safetensors"));
  RONDO_RETURN_IF_ERROR(model::check_adapter_tensors(config, lora, files));
  return OpenAdapter{std::move(lora), std::move(files)};
}

}  // namespace

absl::StatusOr<std::string> run_merge(const Config& config) {
  RONDO_ASSIGN_OR_RETURN(const fs::path base, find_model(config.model_name_or_path));
  RONDO_ASSIGN_OR_RETURN(const model::ModelConfig model_config, model::load_config(base));
  RONDO_ASSIGN_OR_RETURN(const OpenAdapter adapter, open_adapter(config.adapter_name_or_path, model_config));
  RONDO_ASSIGN_OR_RETURN(const model::TensorFiles files, model::TensorFiles::open_model(base));
  RONDO_RETURN_IF_ERROR(model::check_model_tensors(model_config, files));
  RONDO_ASSIGN_OR_RETURN(model::NewFolder folder, model::NewFolder::create(config.output_dir, "merge"));
  RONDO_RETURN_IF_ERROR(model::write_merged_weights(model_config, files, adapter.lora, adapter.files, folder.path()));
  for (const char* name : {"config.json", "generation_config.json"}) {
    if (!fs::exists(base / name)) continue;
    RONDO_ASSIGN_OR_RETURN(const std::string text, read_file(base / name));
    RONDO_RETURN_IF_ERROR(write_file_atomically(folder.path() / name, text));
  }
  RONDO_RETURN_IF_ERROR(copy_tokenizer_files(base, folder.path()));
  RONDO_RETURN_IF_ERROR(folder.commit());
  return config.output_dir;
}

}  // namespace rondo::train
