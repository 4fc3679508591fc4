// See paired_rows.h.
#include "rondo/model/paired_rows.h"

#include <algorithm>
#include <utility>

#include "reordered.h"
#include "rondo/base/status.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

/// In the file, of the row that devices have at `row`.
std::uint64_t place_in_file(const PairedTensor& paired, std::uint64_t row) {
  const std::uint64_t within = row % paired.head_dim;
  const std::uint64_t half = paired.turned / 2;
  if (within >= paired.turned) return row;
  return row - within + within % half * 2 + within / half;
}

bool has_pairs(const ModelConfig& config, const LinearModule& linear) {
  return config.turns_neighbours && (linear.name == "q_proj" || linear.name == "k_proj");
}

PairedTensor paired_of(const ModelConfig& config, std::string name) {
  return {std::move(name), config.head_dim, turned_channels(config, config.rope)};
}

}  // namespace

std::vector<PairedTensor> paired_weights(const ModelConfig& config) {
  std::vector<PairedTensor> out;
  for (const LinearModule& linear : linear_modules(config)) {
    if (!has_pairs(config, linear)) continue;
    out.push_back(paired_of(config, linear.path + ".weight"));
    if (linear.bias) out.push_back(paired_of(config, linear.path + ".bias"));
  }
  return out;
}

std::vector<PairedTensor> paired_factors(const ModelConfig& config, const LoraConfig& lora) {
  std::vector<PairedTensor> out;
  for (const LinearModule& linear : linear_modules(config)) {
    if (!has_pairs(config, linear) || !lora.adapts(linear)) continue;
    out.push_back(paired_of(config, adapter_tensor_name(linear.path, 'B')));
    if (lora.use_dora) out.push_back(paired_of(config, magnitude_tensor_name(linear.path)));
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
  for (const TensorToWrite& tensor : plan.tensors) rows.push_back(tensor.shape.front());
  plan.produce = [of_index = std::move(of_index), rows = std::move(rows), produce = std::move(plan.produce)](
                     std::size_t index, const TensorSink& sink) -> absl::Status {
    const PairedTensor& one = of_index[index];
    if (one.head_dim == 0) return produce(index, sink);
    std::vector<std::byte> whole;
    RONDO_RETURN_IF_ERROR(collect(produce, index, whole));
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
