// What the room model_files reads and writes, as JSON on stdout, for comparison from outside.
//
//   config FILE | format FILE | tensors DIR | adapter DIR | init ARCH DIR [key=value]...
//   shards DIR OUT MAX_BYTES            copies the weights of DIR into shards
//   lora DIR OUT RANK ALPHA TARGETS     an adapter for the model in DIR, A and B both random
#include <fmt/format.h>

#include <cstring>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "config_json.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/model/adapter.h"
#include "rondo/model/config.h"
#include "rondo/model/init.h"
#include "rondo/model/parameters.h"
#include "rondo/model/safetensors.h"
#include "rondo/model/stored_weights.h"

namespace rondo::model {
namespace {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

absl::StatusOr<ModelConfig> config_of_file(const std::string& file) {
  RONDO_ASSIGN_OR_RETURN(const std::string text, read_file(file));
  return parse_config(text, file);
}

absl::Status show_config(const Arguments& arguments) {
  RONDO_ASSIGN_OR_RETURN(const ModelConfig config, config_of_file(arguments.at(0)));
  std::cout << to_json(config).dump() << '\n';
  return absl::OkStatus();
}

absl::Status show_format(const Arguments& arguments) {
  RONDO_ASSIGN_OR_RETURN(const ModelConfig config, config_of_file(arguments.at(0)));
  std::cout << format_config(config);
  return absl::OkStatus();
}

/// FNV-1a-64 of the fp32 bytes and of the bf16 bytes: enough to see that every number is right.
std::string hash(std::span<const std::byte> bytes) {
  std::uint64_t state = 0xcbf29ce484222325U;
  for (const std::byte byte : bytes) state = (state ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3U;
  return fmt::format("{:016x}", state);
}

absl::Status show_tensors(const Arguments& arguments) {
  RONDO_ASSIGN_OR_RETURN(const TensorFiles files, TensorFiles::open_model(arguments.at(0)));
  Json out = Json::object();
  for (const auto& [name, view] : files.tensors()) {
    std::vector<float> wide(view.elements());
    TensorFiles::read_as_float32(view, wide);
    std::vector<std::uint16_t> narrow(view.elements());
    TensorFiles::read_as_bfloat16(view, narrow);
    out[name] = {{"dtype", static_cast<int>(view.type)},
                 {"shape", view.shape},
                 {"float32", hash(std::as_bytes(std::span(wide)))},
                 {"bfloat16", hash(std::as_bytes(std::span(narrow)))}};
    files.release(view);
  }
  std::cout << out.dump() << '\n';
  return absl::OkStatus();
}

absl::Status show_adapter(const Arguments& arguments) {
  RONDO_ASSIGN_OR_RETURN(const LoraConfig lora, load_adapter_config(arguments.at(0)));
  const Json out = {{"r", lora.rank},
                    {"alpha", lora.alpha},
                    {"dropout", lora.dropout},
                    {"rslora", lora.use_rslora},
                    {"targets", lora.targets},
                    {"base", lora.base_model},
                    {"scale", lora.scale_of("q_proj")}};
  std::cout << out.dump() << '\n';
  if (arguments.size() < 2) return absl::OkStatus();
  RONDO_ASSIGN_OR_RETURN(const ModelConfig config, load_config(arguments.at(1)));
  RONDO_ASSIGN_OR_RETURN(const TensorFiles files,
                         TensorFiles::open_file(std::filesystem::path(arguments.at(0)) / "adapter_model.safetensors"));
  return check_adapter_tensors(config, lora, files);
}

absl::Status make_model(const Arguments& arguments) {
  InitOptions options;
  options.arch = arguments.at(0);
  const std::map<std::string, std::uint32_t*> sizes = {{"hidden_size", &options.hidden_size},
                                                       {"intermediate_size", &options.intermediate_size},
                                                       {"num_hidden_layers", &options.num_hidden_layers},
                                                       {"num_attention_heads", &options.num_attention_heads},
                                                       {"num_key_value_heads", &options.num_key_value_heads},
                                                       {"head_dim", &options.head_dim},
                                                       {"vocab_size", &options.vocab_size}};
  for (std::size_t i = 2; i < arguments.size(); ++i) {
    const std::size_t equals = arguments[i].find('=');
    const std::string key = arguments[i].substr(0, equals);
    const std::string value = arguments[i].substr(equals + 1);
    if (const auto found = sizes.find(key); found != sizes.end()) {
      *found->second = static_cast<std::uint32_t>(std::stoul(value));
    } else if (key == "seed") {
      options.seed = std::stoull(value);
    } else if (key == "tie") {
      options.tie_word_embeddings = value == "1";
    } else if (key == "dtype") {
      RONDO_ASSIGN_OR_RETURN(options.weight_type, parse_weight_type(value));
    } else {
      return invalid_input("unknown key {}", key);
    }
  }
  return init_model(options, arguments.at(1));
}

absl::Status copy_in_shards(const Arguments& arguments) {
  RONDO_ASSIGN_OR_RETURN(const TensorFiles files, TensorFiles::open_model(arguments.at(0)));
  RONDO_ASSIGN_OR_RETURN(const ModelConfig config, load_config(arguments.at(0)));
  RONDO_RETURN_IF_ERROR(check_model_tensors(config, files));
  std::vector<const TensorView*> views;
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, view] : files.tensors()) {
    views.push_back(&view);
    tensors.push_back({name, view.type, view.shape});
  }
  const auto produce = [&](std::size_t index, const TensorSink& sink) { return sink(views[index]->data); };
  const std::filesystem::path out = arguments.at(1);
  RONDO_RETURN_IF_ERROR(write_file_atomically(out / "config.json", format_config(config)));
  return write_sharded_safetensors(out, tensors, produce, std::stoull(arguments.at(2)));
}

absl::Status make_adapter(const Arguments& arguments) {
  RONDO_ASSIGN_OR_RETURN(const ModelConfig config, load_config(arguments.at(0)));
  const std::filesystem::path out = arguments.at(1);
  LoraConfig lora;
  lora.rank = static_cast<std::uint32_t>(std::stoul(arguments.at(2)));
  lora.alpha = std::stod(arguments.at(3));
  lora.base_model = arguments.at(0);
  RONDO_RETURN_IF_ERROR(resolve_targets(config, arguments.at(4), "", lora));
  const std::vector<ParameterSpec> parameters = adapter_parameters(config, lora);
  std::vector<TensorToWrite> tensors;
  for (const ParameterSpec& spec : parameters) tensors.push_back({spec.name, WeightType::kFloat32, spec.shape});
  RONDO_RETURN_IF_ERROR(write_file_atomically(out / "adapter_config.json", format_adapter_config(lora)));
  const auto produce = [&](std::size_t index, const TensorSink& sink) {
    std::vector<float> values(parameters[index].elements());
    fill_normal(7, parameters[index].name, 0, 0.5, values);
    return sink(std::as_bytes(std::span(values)));
  };
  const WritePlan plan = stored_factors(config, lora, {std::move(tensors), produce});
  return write_safetensors(out / "adapter_model.safetensors", plan.tensors, {{"format", "pt"}}, plan.produce);
}

absl::Status run(const std::string& verb, const Arguments& arguments) {
  if (verb == "config") return show_config(arguments);
  if (verb == "format") return show_format(arguments);
  if (verb == "tensors") return show_tensors(arguments);
  if (verb == "adapter") return show_adapter(arguments);
  if (verb == "init") return make_model(arguments);
  if (verb == "shards") return copy_in_shards(arguments);
  if (verb == "lora") return make_adapter(arguments);
  return invalid_input("unknown verb {}", verb);
}

}  // namespace
}  // namespace rondo::model

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) return 2;
  const absl::Status status = rondo::model::run(words[0], {words.begin() + 1, words.end()});
  if (status.ok()) return 0;
  std::cerr << "error: " << status.message() << '\n';
  return 1;
}
