// See paired_rows.h.
#include "rondo/model/paired_rows.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "reordered.h"
#include "rondo/base/status.h"
#include "rondo/model/parameters.h"
#include "safetensors_header.h"

namespace rondo::model {
namespace {

/// In the file, of the row that devices have at `row`.
std::uint64_t place_in_file(const PairedTensor& paired, std::uint64_t row) {
  const std::uint64_t within = row % paired.head_dim;
  const std::uint64_t half = paired.turned / 2;
  const std::uint64_t head = row - within;
  if (within >= paired.turned) return within < paired.turned + paired.before ? row - paired.turned : row;
  if (!paired.neighbours) return row + paired.before;
  return head + paired.before + within % half * 2 + within / half;
}

/// How the rows of a layer, or of a part of one, are turned; nothing where files have them as devices do. Without a
/// name.
std::optional<PairedTensor> pairs_of(const ModelConfig& config, const LinearModule& linear) {
  const std::uint32_t turned = turned_channels(config, config.rope);
  if (config.latent_attention) {
    const bool of_query = linear.name == "q_proj" || linear.name == "q_b_proj";
    if (of_query) return PairedTensor{"", config.head_dim, turned, config.head_dim - turned, config.turns_neighbours};
    if (linear.name == "turned_proj" && config.turns_neighbours) return PairedTensor{"", turned, turned};
    return std::nullopt;
  }
  if (!config.turns_neighbours || (linear.name != "q_proj" && linear.name != "k_proj")) return std::nullopt;
  return PairedTensor{"", config.head_dim, turned};
}

void add_paired(PairedTensor pairs, std::string name, std::vector<PairedTensor>& out) {
  pairs.name = std::move(name);
  out.push_back(std::move(pairs));
}

}  // namespace

std::vector<PairedTensor> paired_weights(const ModelConfig& config) {
  std::vector<PairedTensor> out;
  for (const LinearModule& linear : linear_modules(config)) {
    for (const LinearModule& part : parts_or_self(linear)) {
      const std::optional<PairedTensor> pairs = pairs_of(config, part);
      if (!pairs) continue;
      add_paired(*pairs, part.path + ".weight", out);
      if (part.bias) add_paired(*pairs, part.path + ".bias", out);
    }
  }
  return out;
}

std::vector<PairedTensor> paired_factors(const ModelConfig& config, const LoraConfig& lora) {
  std::vector<PairedTensor> out;
  for (const LinearModule& linear : linear_modules(config)) {
    if (!lora.adapts(linear)) continue;
    for (const LinearModule& part : parts_or_self(linear)) {
      const std::optional<PairedTensor> pairs = pairs_of(config, part);
      if (!pairs) continue;
      add_paired(*pairs, adapter_tensor_name(part.path, 'B'), out);
      if (lora.use_dora) add_paired(*pairs, magnitude_tensor_name(part.path), out);
    }
  }
  return out;
}

void part_pairs(const std::vector<PairedTensor>& paired, TensorFiles& files) {
  for (const PairedTensor& one : paired) {
    const TensorView* found = files.find(one.name);
    // What has another shape is refused by who checks all.
    if (found == nullptr || found->shape.empty() || found->shape[0] % one.head_dim != 0 || found->codes) continue;
    const TensorView whole = *found;
    TensorView view = whole;
    view.copy_mxfp4 = nullptr;
    view.decode = decode_runs(whole, [one, width = whole.elements() / whole.shape[0]](std::uint64_t begin) {
      const std::uint64_t within = begin % width;
      return Run{place_in_file(one, begin / width) * width + within, width - within};
    });
    files.erase(one.name);
    files.add(std::move(view));
  }
}

WritePlan pair_rows(const std::vector<PairedTensor>& paired, WritePlan plan) {
  if (paired.empty()) return plan;
  std::vector<PairedTensor> of_index(plan.tensors.size());
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const auto found = std::ranges::find(paired, plan.tensors[i].name, &PairedTensor::name);
    if (found != paired.end()) of_index[i] = *found;
  }
  std::vector<std::uint64_t> rows;
  std::vector<std::size_t> bytes;
  const Bytes held = plan.held;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorToWrite& tensor = plan.tensors[i];
    rows.push_back(tensor.shape.front());
    bytes.push_back(tensor_bytes(tensor.type, tensor.shape).value_or(0));
    if (of_index[i].head_dim > 0) plan.held = std::max(plan.held, held + 2 * bytes.back());
  }
  plan.produce = [of_index = std::move(of_index), rows = std::move(rows), bytes = std::move(bytes),
                  produce = std::move(plan.produce)](std::size_t index, const TensorSink& sink) -> absl::Status {
    const PairedTensor& one = of_index[index];
    if (one.head_dim == 0) return produce(index, sink);
    std::vector<std::byte> whole;
    RONDO_RETURN_IF_ERROR(collect(produce, index, bytes[index], whole));
    const std::size_t row = whole.size() / rows[index];
    std::vector<std::byte> stored(whole.size());
    for (std::uint64_t r = 0; r < rows[index]; ++r) {
      std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(r * row), row,
                  stored.begin() + static_cast<std::ptrdiff_t>(place_in_file(one, r) * row));
    }
    return sink(stored);
  };
  return plan;
}

}  // namespace rondo::model
