// See fused_linears.h.
#include "rondo/model/fused_linears.h"

#include <map>
#include <memory>
#include <utility>

#include "rondo/base/status.h"
#include "rondo/model/parameters.h"

namespace rondo::model {
namespace {

using Shape = std::vector<std::uint64_t>;

/// The shape of parts that are joined; rows add up.
Shape joined_shape(const std::vector<Shape>& parts) {
  Shape whole = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) whole[0] += parts[i][0];
  return whole;
}

absl::Status split_tensor(const JoinedTensor& joined, const std::map<std::string, Shape>& shapes, TensorFiles& files) {
  const TensorView* found = files.find(joined.name);
  if (found == nullptr) return invalid_input("{}: tensor {} is missing", files.origin(), joined.name);
  std::vector<Shape> parts;
  for (const std::string& part : joined.parts) parts.push_back(shapes.at(part));
  const Shape expected = joined_shape(parts);
  if (found->shape != expected || found->codes) {
    return invalid_input("{}: tensor {}: expected numbers [{}], found {}[{}]", found->file, joined.name,
                         fmt::join(expected, ", "), found->codes ? "U8 " : "", fmt::join(found->shape, ", "));
  }
  const TensorView whole = *found;
  files.erase(joined.name);
  const std::size_t size = weight_type_size(whole.type);
  std::uint64_t first = 0;  // element of the whole
  for (std::size_t i = 0; i < parts.size(); ++i) {
    TensorView view = whole;
    view.name = joined.parts[i];
    view.shape = parts[i];
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
  for (const LinearModule& part : linear.parts) joined.parts.push_back(name_of(part.path));
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

absl::Status split_tensors(const std::vector<JoinedTensor>& joined, const std::vector<ParameterSpec>& parts,
                           TensorFiles& files) {
  if (joined.empty()) return absl::OkStatus();
  std::map<std::string, Shape> shapes;
  for (const ParameterSpec& spec : parts) shapes[spec.name] = spec.shape;
  for (const JoinedTensor& one : joined) RONDO_RETURN_IF_ERROR(split_tensor(one, shapes, files));
  return absl::OkStatus();
}

WritePlan join_tensors(const std::vector<JoinedTensor>& joined, WritePlan plan) {
  if (joined.empty()) return plan;
  std::map<std::string, const JoinedTensor*> whole_of;  // by each of its parts
  for (const JoinedTensor& one : joined) {
    for (const std::string& part : one.parts) whole_of[part] = &one;
  }
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
    if (plan.tensors[i].name != tensor.parts.front()) continue;  // written with the first
    std::vector<Shape> parts;
    std::vector<std::size_t>& own = sources.emplace_back();
    for (const std::string& part : tensor.parts) {
      own.push_back(index_of.at(part));
      parts.push_back(plan.tensors[own.back()].shape);
    }
    out.tensors.push_back({tensor.name, plan.tensors[i].type, joined_shape(parts)});
  }
  out.produce = [sources = std::move(sources), produce = std::move(plan.produce)](
                    std::size_t index, const TensorSink& sink) -> absl::Status {
    for (const std::size_t source : sources[index]) RONDO_RETURN_IF_ERROR(produce(source, sink));
    return absl::OkStatus();
  };
  return out;
}

}  // namespace rondo::model
