// Writes and reads GGUF files for the comparison with the package gguf.
//
//   gguf_probe init ARCH FOLDER                            a small random model; ARCH+experts: with experts, of one
//   that
//                                                          may have none
//   gguf_probe model FOLDER QUANTIZATION FILE
//   gguf_probe adapter FOLDER ADAPTER QUANTIZATION FILE
//   gguf_probe import FILE FOLDER                          a model directory of what the file holds
//   gguf_probe decode TYPE CODES NUMBERS                   blocks of a type (its number) to fp32
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "coding.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/gguf/export.h"
#include "rondo/gguf/import.h"
#include "rondo/model/config_documents.h"
#include "rondo/model/init.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"

namespace {

using namespace rondo;

absl::Status import(const std::filesystem::path& file, const std::filesystem::path& folder) {
  RONDO_ASSIGN_OR_RETURN(const Documents documents, gguf::import_documents(file));
  RONDO_ASSIGN_OR_RETURN(const model::ModelConfig config, model::load_config(documents));
  RONDO_ASSIGN_OR_RETURN(const model::TensorFiles files, gguf::import_tensors(file));
  RONDO_RETURN_IF_ERROR(model::check_model_tensors(config, files));
  std::filesystem::create_directories(folder);
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    if (!documents.has(name)) continue;
    RONDO_RETURN_IF_ERROR(write_file_atomically(folder / name, *documents.read(name)));
  }
  std::vector<model::TensorToWrite> tensors;
  for (const auto& [name, view] : files.tensors()) tensors.push_back({name, model::WeightType::kFloat32, view.shape});
  const auto fill = [&](std::size_t i, std::span<std::byte> out) {
    model::TensorFiles::read_as_float32(*files.find(tensors[i].name),
                                        {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
    return absl::OkStatus();
  };
  const model::WritePlan plan = model::stored_weights(config, {tensors, model::produce_whole(tensors, fill)});
  return model::write_sharded_safetensors(folder, plan.tensors, plan.produce);
}

absl::Status decode(const std::string& type, const std::string& from, const std::string& to) {
  const gguf::Coding* coding = gguf::find_coding(static_cast<std::uint32_t>(std::stoul(type)));
  if (coding == nullptr) return invalid_input("type {} is not read", type);
  RONDO_ASSIGN_OR_RETURN(const std::string codes, read_file(from));
  std::string numbers(codes.size() / coding->block_bytes * coding->block_numbers * sizeof(float), '\0');
  gguf::decode_stretch(*coding, std::as_bytes(std::span(codes)), 0,
                       {reinterpret_cast<float*>(numbers.data()), numbers.size() / sizeof(float)});
  return write_file_atomically(to, numbers);
}

absl::Status run(const std::vector<std::string>& words) {
  if (words.size() == 3 && words[0] == "init") {
    constexpr std::string_view kWithExperts = "+experts";
    model::InitOptions options;
    options.arch = words[1];
    if (options.arch.ends_with(kWithExperts)) {
      options.arch.resize(options.arch.size() - kWithExperts.size());
      options.moe_intermediate_size = 96;
    }
    options.tie_word_embeddings = words[1] == "qwen2" || words[1].starts_with("gemma");
    if (words[1] == "olmoe") options.num_key_value_heads = options.num_attention_heads;
    options.num_hidden_layers = 7;  // so many that each kind of layer is there
    return model::init_model(options, words[2]);
  }
  if (words.size() == 3 && words[0] == "import") return import(words[1], words[2]);
  if (words.size() == 4 && words[0] == "decode") return decode(words[1], words[2], words[3]);
  const bool adapter = words.size() == 5 && words[0] == "adapter";
  if (!adapter && !(words.size() == 4 && words[0] == "model")) return invalid_input("expected another command line");
  RONDO_ASSIGN_OR_RETURN(const model::ModelConfig config, model::load_config(std::filesystem::path(words[1])));
  if (adapter) {
    const std::filesystem::path folder = words[2];
    RONDO_ASSIGN_OR_RETURN(const model::LoraConfig lora, model::load_adapter_config(folder));
    RONDO_ASSIGN_OR_RETURN(const auto files, model::TensorFiles::open_file(folder / "adapter_model.safetensors"));
    RONDO_RETURN_IF_ERROR(model::check_adapter_tensors(config, lora, files));
    return gguf::export_adapter(Documents(words[1]), config, lora, files, words[3], words[4]);
  }
  RONDO_ASSIGN_OR_RETURN(const auto files, model::open_weights(config, words[1]));
  RONDO_RETURN_IF_ERROR(model::check_model_tensors(config, files));
  return gguf::export_model(Documents(words[1]), config, files, words[2], words[3]);
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = run({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
