// Writes GGUF files for the comparison with the package gguf.
//
//   gguf_probe init ARCH FOLDER                            a small random model
//   gguf_probe model FOLDER QUANTIZATION FILE
//   gguf_probe adapter FOLDER ADAPTER QUANTIZATION FILE
#include <cstdio>
#include <string>
#include <vector>

#include "rondo/base/status.h"
#include "rondo/gguf/export.h"
#include "rondo/model/init.h"
#include "rondo/model/parameters.h"

namespace {

using namespace rondo;

absl::Status run(const std::vector<std::string>& words) {
  if (words.size() == 3 && words[0] == "init") {
    model::InitOptions options;
    options.arch = words[1];
    options.tie_word_embeddings = words[1] == "qwen2";
    return model::init_model(options, words[2]);
  }
  const bool adapter = words.size() == 5 && words[0] == "adapter";
  if (!adapter && !(words.size() == 4 && words[0] == "model")) return invalid_input("expected another command line");
  RONDO_ASSIGN_OR_RETURN(const model::ModelConfig config, model::load_config(words[1]));
  if (adapter) {
    const std::filesystem::path folder = words[2];
    RONDO_ASSIGN_OR_RETURN(const model::LoraConfig lora, model::load_adapter_config(folder));
    RONDO_ASSIGN_OR_RETURN(const auto files, model::TensorFiles::open_file(folder / "adapter_model.safetensors"));
    RONDO_RETURN_IF_ERROR(model::check_adapter_tensors(config, lora, files));
    return gguf::export_adapter(words[1], config, lora, files, words[3], words[4]);
  }
  RONDO_ASSIGN_OR_RETURN(const auto files, model::TensorFiles::open_model(words[1]));
  RONDO_RETURN_IF_ERROR(model::check_model_tensors(config, files));
  return gguf::export_model(words[1], config, files, words[2], words[3]);
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = run({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
