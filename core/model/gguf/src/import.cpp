// A file's tensors as views that decode themselves.
#include "rondo/gguf/import.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "import_config.h"
#include "import_tokenizer.h"
#include "names.h"
#include "rondo/base/status.h"
#include "rondo/model/fused_linears.h"

namespace rondo::gguf {
namespace {

/// Rows of `width` numbers, perhaps interleaved; only where they are not is there an offset.
struct Rows {
  const Coding* coding;
  std::span<const std::byte> data;
  std::uint64_t rows;
  std::uint64_t width;
  Interleaved interleaved;
  float offset;  // taken from each number

  void read(std::uint64_t first, std::span<float> out) const {
    if (interleaved.heads == 0) {
      decode_stretch(*coding, data, first, out);
      for (float& value : out) value -= offset;
      return;
    }
    while (!out.empty()) {
      const std::uint64_t inside = first % width;
      const auto taken = static_cast<std::size_t>(std::min<std::uint64_t>(width - inside, out.size()));
      decode_stretch(*coding, data, stored_row(first / width, rows, interleaved) * width + inside, out.first(taken));
      first += taken;
      out = out.subspan(taken);
    }
  }
};

/// The matrices of all experts, each a view of its own.
absl::Status add_stack(const std::vector<std::string>& names, StoredTensor& tensor, const model::TensorView& like,
                       std::vector<model::TensorView>& views) {
  if (tensor.shape.size() != 3 || tensor.shape[0] != names.size()) {
    return invalid_input("{}: tensor {}: expected the matrices of {} experts", like.file, name_in_quotes(like.name),
                         names.size());
  }
  const std::size_t bytes = tensor.data.size() / names.size();
  for (std::size_t expert = 0; expert < names.size(); ++expert) {
    model::TensorView view = like;
    view.name = names[expert];
    view.shape = {tensor.shape[1], tensor.shape[2]};
    view.data = tensor.data.subspan(expert * bytes, bytes);
    view.decode = [coding = tensor.coding, data = tensor.data, begin = expert * view.elements()](
                      std::uint64_t first, std::span<float> out) { decode_stretch(*coding, data, begin + first, out); };
    if (tensor.coding->name == "mxfp4") {
      view.copy_mxfp4 = [data = view.data](std::span<std::byte> codes, std::span<std::byte> scales) {
        split_mxfp4(data, codes, scales);
      };
    }
    views.push_back(std::move(view));
  }
  return absl::OkStatus();
}

std::string generation_text(const model::ModelConfig& config) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  if (config.bos_token_id) out["bos_token_id"] = *config.bos_token_id;
  if (!config.eos_token_ids.empty()) out["eos_token_id"] = config.eos_token_ids;
  if (config.pad_token_id) out["pad_token_id"] = *config.pad_token_id;
  return out.dump(2) + "\n";
}

}  // namespace

bool is_gguf(const std::filesystem::path& file) {
  std::array<char, 4> begin{};
  std::ifstream in(file, std::ios::binary);
  return in.read(begin.data(), begin.size()) && std::memcmp(begin.data(), "GGUF", begin.size()) == 0;
}

absl::StatusOr<Documents> import_documents(const std::filesystem::path& path) {
  RONDO_ASSIGN_OR_RETURN(const StoredFile file, open_stored_file(path));
  RONDO_ASSIGN_OR_RETURN(const model::ModelConfig config, import_config(file));
  std::map<std::string, std::string> texts;
  texts["config.json"] = model::format_config(config);
  texts["generation_config.json"] = generation_text(config);
  RONDO_RETURN_IF_ERROR(import_tokenizer(file, config, texts));
  return Documents(path, std::move(texts));
}

absl::StatusOr<model::TensorFiles> import_tensors(const std::filesystem::path& path) {
  RONDO_ASSIGN_OR_RETURN(StoredFile file, open_stored_file(path));
  RONDO_ASSIGN_OR_RETURN(const model::ModelConfig config, import_config(file));
  std::vector<model::TensorView> views;
  for (auto& [name, tensor] : file.tensors) {
    // What is in the configuration.
    if (name == "rope_freqs.weight" || name == kShortFactors || name == kLongFactors) continue;
    model::TensorView view;
    view.name = name;
    view.type = config.weight_type;
    view.data = tensor.data;
    view.file = file.origin();
    if (const std::vector<std::string> names = model_names_of_stack(config, name); !names.empty()) {
      RONDO_RETURN_IF_ERROR(add_stack(names, tensor, view, views));
      continue;
    }
    view.name = model_tensor_name(config, name).value_or(name);
    const Interleaved interleaved = interleaved_heads(config, view.name);
    view.shape = std::move(tensor.shape);
    if (is_stored_as_vector(config, name) && view.shape.size() == 1) view.shape.insert(view.shape.begin(), 1);
    if (is_convolution_weight(name) && view.shape.size() == 2) view.shape.insert(view.shape.begin() + 1, 1);
    const std::uint64_t rows = view.shape.front();
    const std::uint32_t heads = interleaved.heads;
    if (heads != 0 && (rows % (2 * heads) != 0 || rows / heads < interleaved.turned)) {
      return invalid_input("{}: tensor {}: expected rows in pairs for {} heads, found {}", view.file,
                           name_in_quotes(name), heads, rows);
    }
    view.decode = [rows_of = Rows{tensor.coding, tensor.data, rows, view.elements() / rows, interleaved,
                                  stored_offset(config, view.name)}](std::uint64_t first, std::span<float> out) {
      rows_of.read(first, out);
    };
    views.push_back(std::move(view));
  }
  // The tokenizer's part need not stay in memory while the weights are read.
  file.file.release_pages(file.head);
  model::TensorFiles files = model::TensorFiles::from_views(std::move(file.file), std::move(views));
  RONDO_RETURN_IF_ERROR(model::split_tensors(model::joined_weights(config), files));
  return files;
}

}  // namespace rondo::gguf
