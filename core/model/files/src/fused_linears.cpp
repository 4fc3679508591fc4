// See fused_linears.h.
#include "rondo/model/fused_linears.h"

#include <functional>
#include <utility>

#include "rondo/base/status.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

using Shape = std::vector<std::uint64_t>;

absl::Status split_tensor(const JoinedTensor& joined, TensorFiles& files) {
  const TensorView* found = files.find(joined.name);
  if (found == nullptr) return invalid_input("{}: tensor {} is missing", files.origin(), joined.name);
  const Shape expected = shape_of(joined, found->shape.empty() ? Shape{0} : found->shape);
  if (found->shape != expected || found->codes) {
    return invalid_input("{}: tensor {}: expected numbers [{}], found {}[{}]", found->file, joined.name,
                         fmt::join(expected, ", "), found->codes ? "U8 " : "", fmt::join(found->shape, ", "));
  }
  const TensorView whole = *found;
  files.erase(joined.name);
  const std::size_t size = weight_type_size(whole.type);
  std::uint64_t first = 0;  // element of the whole
  for (const JoinedTensor::Part& part : joined.parts) {
    TensorView view = whole;
    view.name = part.name;
    view.shape[0] = part.rows;
    if (whole.decode) {
      view.decode = [decode = whole.decode, first](std::uint64_t begin, std::span<float> out) {
        decode(first + begin, out);
      };
    } else {
      view.data = whole.data.subspan(first * size, view.elements() * size);
    }
    first += view.elements();
    files.add(std::move(view));
  }
  return absl::OkStatus();
}

void add_joined(const LinearModule& linear, const std::function<std::string(const std::string& path)>& name_of,
                std::vector<JoinedTensor>& out) {
  JoinedTensor joined{name_of(linear.path), {}};
  for (const LinearModule& part : linear.parts) joined.parts.push_back({name_of(part.path), part.out});
  out.push_back(std::move(joined));
}

}  // namespace

std::vector<JoinedTensor> joined_weights(const ModelConfig& config) {
  std::vector<JoinedTensor> out;
  for (const LinearModule& linear : linear_modules(config)) {
    if (linear.parts.empty()) continue;
    add_joined(
        linear, [](const std::string& path) { return path + ".weight"; }, out);
  }
  return out;
}

std::vector<JoinedTensor> joined_factors(const ModelConfig& config, const LoraConfig& lora) {
  std::vector<JoinedTensor> out;
  for (const LinearModule& linear : linear_modules(config)) {
    if (linear.parts.empty() || !lora.adapts(linear.name, linear.layer)) continue;
    add_joined(
        linear, [](const std::string& path) { return adapter_tensor_name(path, 'B'); }, out);
    if (lora.use_dora) add_joined(linear, magnitude_tensor_name, out);
  }
  return out;
}

std::map<std::string, const JoinedTensor*> by_part(const std::vector<JoinedTensor>& joined) {
  std::map<std::string, const JoinedTensor*> out;
  for (const JoinedTensor& one : joined) {
    for (const JoinedTensor::Part& part : one.parts) out[part.name] = &one;
  }
  return out;
}

std::vector<std::uint64_t> shape_of(const JoinedTensor& joined, std::vector<std::uint64_t> shape_of_part) {
  shape_of_part.front() = 0;
  for (const JoinedTensor::Part& part : joined.parts) shape_of_part.front() += part.rows;
  return shape_of_part;
}

absl::Status split_tensors(const std::vector<JoinedTensor>& joined, TensorFiles& files) {
  for (const JoinedTensor& one : joined) RONDO_RETURN_IF_ERROR(split_tensor(one, files));
  return absl::OkStatus();
}

WritePlan join_tensors(const std::vector<JoinedTensor>& joined, WritePlan plan) {
  if (joined.empty()) return plan;
  const std::map<std::string, const JoinedTensor*> whole_of = by_part(joined);
  std::map<std::string, std::size_t> index_of;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) index_of[plan.tensors[i].name] = i;
  WritePlan out;
  std::vector<std::vector<std::size_t>> sources;  // of each tensor, among the plan's
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const auto whole = whole_of.find(plan.tensors[i].name);
    if (whole == whole_of.end()) {
      out.tensors.push_back(plan.tensors[i]);
      sources.push_back({i});
      continue;
    }
    const JoinedTensor& tensor = *whole->second;
    if (plan.tensors[i].name != tensor.parts.front().name) continue;  // written with the first
    std::vector<std::size_t>& own = sources.emplace_back();
    for (const JoinedTensor::Part& part : tensor.parts) own.push_back(index_of.at(part.name));
    out.tensors.push_back({tensor.name, plan.tensors[i].type, shape_of(tensor, plan.tensors[i].shape)});
  }
  out.produce = [sources = std::move(sources), produce = std::move(plan.produce)](
                    std::size_t index, const TensorSink& sink) -> absl::Status {
    for (const std::size_t source : sources[index]) RONDO_RETURN_IF_ERROR(produce(source, sink));
    return absl::OkStatus();
  };
  return out;
}

}  // namespace rondo::model
