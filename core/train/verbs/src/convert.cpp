// The verbs that turn models into other files: no device takes part.
#include <filesystem>

#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/gguf/export.h"
#include "rondo/model/adapter.h"
#include "rondo/model/merge.h"
#include "rondo/model/new_folder.h"
#include "rondo/train/model_place.h"
#include "rondo/train/run.h"
#include "rondo/train/weights.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

}  // namespace

absl::StatusOr<std::string> run_merge(const Config& config) {
  RONDO_ASSIGN_OR_RETURN(const fs::path base, find_model(config.model_name_or_path, config.model_revision));
  RONDO_ASSIGN_OR_RETURN(const Documents documents, open_documents(base));
  RONDO_ASSIGN_OR_RETURN(const model::ModelConfig model_config, open_config(base, documents));
  RONDO_ASSIGN_OR_RETURN(const OpenAdapter adapter, open_adapter(config.adapter_name_or_path, model_config));
  RONDO_ASSIGN_OR_RETURN(const model::TensorFiles files, open_tensors(base, model_config));
  RONDO_ASSIGN_OR_RETURN(model::NewFolder folder, model::NewFolder::create(config.output_dir, "merge"));
  RONDO_RETURN_IF_ERROR(model::write_merged_weights(model_config, files, adapter.lora, adapter.files, folder.path()));
  for (const char* name : {"config.json", "generation_config.json"}) {
    if (!documents.has(name)) continue;
    RONDO_ASSIGN_OR_RETURN(const std::string text, documents.read(name));
    RONDO_RETURN_IF_ERROR(write_file_atomically(folder.path() / name, text));
  }
  const bool expanded = model_config.experts && model_config.experts->mxfp4;
  if (model_config.text_part || expanded) {
    model::ModelConfig written = model_config;
    if (expanded) written.experts->mxfp4 = false;
    RONDO_RETURN_IF_ERROR(write_file_atomically(folder.path() / "config.json", model::format_config(written)));
  }
  RONDO_RETURN_IF_ERROR(copy_tokenizer_files(documents, folder.path()));
  RONDO_RETURN_IF_ERROR(folder.commit());
  return config.output_dir;
}

absl::StatusOr<std::string> run_export(const Config& config) {
  std::string base = config.model_name_or_path;
  if (base.empty()) {
    RONDO_ASSIGN_OR_RETURN(const model::LoraConfig lora, model::load_adapter_config(config.adapter_name_or_path));
    base = lora.base_model;
  }
  RONDO_ASSIGN_OR_RETURN(const fs::path folder, find_model(base, config.model_revision));
  RONDO_ASSIGN_OR_RETURN(const Documents documents, open_documents(folder));
  RONDO_ASSIGN_OR_RETURN(const model::ModelConfig model_config, open_config(folder, documents));
  if (!config.adapter_name_or_path.empty()) {
    RONDO_ASSIGN_OR_RETURN(const OpenAdapter adapter, open_adapter(config.adapter_name_or_path, model_config));
    RONDO_RETURN_IF_ERROR(
        gguf::export_adapter(documents, model_config, adapter.lora, adapter.files, config.quantization, config.output));
    return config.output;
  }
  RONDO_ASSIGN_OR_RETURN(const model::TensorFiles files, open_tensors(folder, model_config));
  RONDO_RETURN_IF_ERROR(gguf::export_model(documents, model_config, files, config.quantization, config.output));
  return config.output;
}

}  // namespace rondo::train
