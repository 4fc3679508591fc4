// A file's tensors as views that decode themselves.
#include "rondo/gguf/import.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "import_config.h"
#include "import_latent.h"
#include "import_tokenizer.h"
#include "names.h"
#include "names_experts.h"
#include "names_latent.h"
#include "names_linear.h"
#include "names_space.h"
#include "rondo/base/status.h"
#include "rondo/model/fused_linears.h"
#include "row_order.h"

namespace rondo::gguf {
namespace {

/// Rows of `width` numbers, which files may have in another order and otherwise.
struct StoredRows {
  const Coding* coding;
  std::span<const std::byte> data;
  std::uint64_t rows;
  std::uint64_t width;
  Order of_rows;
  Order of_columns;
  float offset;   // taken from each number
  bool is_decay;  // log(-number)

  /// So many numbers from `first` on lie together in the file, from `begin` on.
  struct Run {
    std::uint64_t begin;
    std::uint64_t numbers;
  };
  Run run_at(std::uint64_t first) const {
    if (!of_rows.changes() && !of_columns.changes()) return {first, rows * width - first};
    const std::uint64_t column = first % width;
    const std::uint64_t row = stored_place(first / width, rows, of_rows);
    const std::uint64_t together = of_columns.changes() ? of_columns.width - column % of_columns.width : width - column;
    return {row * width + stored_place(column, width, of_columns), together};
  }

  void read(std::uint64_t first, std::span<float> out) const {
    while (!out.empty()) {
      const Run run = run_at(first);
      const std::span<float> together = out.first(std::min<std::uint64_t>(run.numbers, out.size()));
      decode_stretch(*coding, data, run.begin, together);
      for (float& value : together) value = is_decay ? std::log(-value) : value - offset;
      first += together.size();
      out = out.subspan(together.size());
    }
  }
};

/// The matrices of all experts, each a view of its own.
absl::Status add_stack(const std::vector<std::string>& names, std::uint32_t experts, StoredTensor& tensor,
                       const model::TensorView& like, std::vector<model::TensorView>& views) {
  const std::size_t of_expert = names.size() / experts;
  if (tensor.shape.size() != 3 || tensor.shape[0] != experts || tensor.shape[1] % of_expert != 0) {
    return invalid_input("{}: tensor {}: expected the matrices of {} experts", like.file, name_in_quotes(like.name),
                         experts);
  }
  const std::size_t bytes = tensor.data.size() / names.size();
  for (std::size_t matrix = 0; matrix < names.size(); ++matrix) {
    model::TensorView view = like;
    view.name = names[matrix];
    view.shape = {tensor.shape[1] / of_expert, tensor.shape[2]};
    view.data = tensor.data.subspan(matrix * bytes, bytes);
    view.decode = [coding = tensor.coding, data = tensor.data, begin = matrix * view.elements()](
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

/// Of blocks behind the model's, which predict further tokens.
bool is_behind_blocks(const model::ModelConfig& config, const std::string& name) {
  const auto place = in_block(name, kBlocks);
  if ((!config.linear_attention && !config.latent_attention && config.lone_mlps.empty()) || !place) return false;
  std::uint32_t block = 0;
  std::from_chars(place->first.data(), place->first.data() + place->first.size(), block);
  return block >= config.num_layers;
}

/// A tensor that is one of the model's, whole or as parts.
absl::Status add_view(const model::ModelConfig& config, StoredTensor& tensor, model::TensorView view,
                      std::vector<model::TensorView>& views) {
  const std::string name = std::exchange(view.name, model_tensor_name(config, view.name).value_or(view.name));
  view.shape = std::move(tensor.shape);
  if (is_stored_as_vector(config, name) && view.shape.size() == 1) view.shape.insert(view.shape.begin(), 1);
  if (config.state_space && is_of_space(name)) view.shape = {view.elements()};
  if (is_convolution_weight(name) && view.shape.size() == 2) view.shape.insert(view.shape.begin() + 1, 1);
  const std::uint64_t rows = view.shape.front();
  const StoredRows numbers{tensor.coding,
                           tensor.data,
                           rows,
                           view.elements() / rows,
                           order_of_rows(config, view.name),
                           order_of_columns(config, view.name),
                           stored_offset(config, view.name),
                           is_decay(view.name)};
  if (!suits(numbers.of_rows, rows) || !suits(numbers.of_columns, numbers.width)) {
    return invalid_input("{}: tensor {}: expected rows of whole heads, found {} of {}", view.file, name_in_quotes(name),
                         rows, numbers.width);
  }
  if (numbers.is_decay) {
    std::vector<float> logarithms(view.elements());
    numbers.read(0, logarithms);
    if (!std::ranges::all_of(logarithms, [](float value) { return std::isfinite(value); })) {
      return invalid_input("{}: tensor {}: expected negative numbers", view.file, name_in_quotes(name));
    }
  }
  view.decode = [numbers](std::uint64_t first, std::span<float> out) { numbers.read(first, out); };
  views.push_back(std::move(view));
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
    if (is_behind_blocks(config, name)) continue;
    model::TensorView view;
    view.name = name;
    view.type = config.weight_type;
    view.data = tensor.data;
    view.file = file.origin();
    if (const std::vector<std::string> names = model_names_of_stack(config, name); !names.empty()) {
      RONDO_RETURN_IF_ERROR(add_stack(names, config.experts->count, tensor, view, views));
      continue;
    }
    const std::string own = model_tensor_name(config, name).value_or("");
    if (is_by_heads(config, own)) {
      // Some files have both.
      if (file.tensors.contains(tensor_name(config, name_of_both(own)))) continue;
      RONDO_RETURN_IF_ERROR(add_matrices_of_heads(config, tensor, std::move(view), views));
      continue;
    }
    RONDO_RETURN_IF_ERROR(add_view(config, tensor, std::move(view), views));
  }
  // The tokenizer's part need not stay in memory while the weights are read.
  file.file.release_pages(file.head);
  model::TensorFiles files = model::TensorFiles::from_views(std::move(file.file), std::move(views));
  std::vector<model::JoinedTensor> joined = joined_as_in_files(model::joined_weights(config));
  for (model::JoinedTensor& tensor : model::joined_weights(config)) {
    if (is_of_both(tensor.name) && files.find(tensor.name) != nullptr) joined.push_back(std::move(tensor));
  }
  RONDO_RETURN_IF_ERROR(model::split_tensors(joined, files));
  return files;
}

}  // namespace rondo::gguf
