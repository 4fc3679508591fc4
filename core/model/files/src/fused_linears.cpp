// See fused_linears.h.
#include "rondo/model/fused_linears.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "family.h"
#include "reordered.h"
#include "rondo/base/status.h"
#include "rondo/model/parameters.h"
#include "safetensors_header.h"

namespace rondo::model {
namespace {

using Shape = std::vector<std::uint64_t>;

/// Of a part that has `rows` rows of each turn, `first_row` before them in their turn of `rows_of_turn`.
struct Turns {
  std::uint64_t width = 0;  // elements of a row
  std::uint64_t rows = 0;
  std::uint64_t first_row = 0;
  std::uint64_t rows_of_turn = 0;

  /// Elements from `begin` on.
  Run run_at(std::uint64_t begin) const {
    const std::uint64_t of_turn = rows * width;
    const std::uint64_t within = begin % of_turn;
    return {(begin / of_turn * rows_of_turn + first_row) * width + within, of_turn - within};
  }
};

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
  Turns turns;
  for (const JoinedTensor::Part& part : joined.parts) turns.rows_of_turn += part.rows / joined.turns;
  turns.width = whole.elements() / whole.shape[0];
  for (const JoinedTensor::Part& part : joined.parts) {
    turns.rows = part.rows / joined.turns;
    TensorView view = whole;
    view.name = part.name;
    view.shape[0] = part.rows;
    if (joined.turns > 1 || whole.decode) {
      view.decode = decode_runs(whole, [turns](std::uint64_t begin) { return turns.run_at(begin); });
    } else {  // its bytes lie together
      const std::size_t row = turns.width * weight_type_size(whole.type);
      view.data = whole.data.subspan(turns.first_row * row, turns.rows * row);
    }
    turns.first_row += turns.rows;
    files.add(std::move(view));
  }
  return absl::OkStatus();
}

void add_joined(const LinearModule& linear, const std::function<std::string(const std::string& path)>& name_of,
                std::vector<JoinedTensor>& out) {
  JoinedTensor joined{name_of(linear.path), {}, linear.turns};
  for (const LinearModule& part : linear.parts) joined.parts.push_back({name_of(part.path), part.out});
  out.push_back(std::move(joined));
}

/// `of`: what has convolution_parts(), `path` its module.
template <typename Config>
void add_convolution(const std::string& path, const Config& of, const char* tensor, std::vector<JoinedTensor>& out) {
  const std::string prefix = path + ".";
  JoinedTensor convolution{prefix + "conv1d" + tensor, {}};
  for (const ConvolutionPart& part : convolution_parts(of)) {
    convolution.parts.push_back({prefix + part.name + tensor, part.channels});
  }
  out.push_back(std::move(convolution));
}

/// What a joined tensor is written from: tensors of a plan, and where these take turns the bytes of each in one.
struct Sources {
  std::vector<std::size_t> tensors;
  std::vector<std::size_t> bytes_of_turn;  // of each; empty: one stands behind the other
  std::size_t turns = 1;
};

std::vector<std::size_t> bytes_of_turn(const JoinedTensor& joined, const TensorToWrite& first) {
  std::uint64_t width = weight_type_size(first.type);
  for (std::size_t i = 1; i < first.shape.size(); ++i) width *= first.shape[i];
  std::vector<std::size_t> bytes;
  for (const JoinedTensor::Part& part : joined.parts) bytes.push_back(part.rows / joined.turns * width);
  return bytes;
}

/// Parts come one after another, so all of them are held for a moment.
absl::Status produce_in_turns(const Sources& sources, const TensorProducer& produce, const TensorSink& sink) {
  std::vector<std::vector<std::byte>> parts(sources.tensors.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    RONDO_RETURN_IF_ERROR(collect(produce, sources.tensors[i], sources.bytes_of_turn[i] * sources.turns, parts[i]));
  }
  for (std::size_t turn = 0; turn * sources.bytes_of_turn[0] < parts[0].size(); ++turn) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::size_t size = sources.bytes_of_turn[i];
      RONDO_RETURN_IF_ERROR(sink(std::span<const std::byte>(parts[i]).subspan(turn * size, size)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<JoinedTensor> joined_weights(const ModelConfig& config) {
  std::vector<JoinedTensor> out;
  for (const LinearModule& linear : linear_modules(config)) {
    if (linear.parts.empty()) continue;
    const auto add = [&](const char* tensor) {
      add_joined(
          linear, [&](const std::string& path) { return path + tensor; }, out);
    };
    add(".weight");
    if (linear.bias) add(".bias");
  }
  const std::string head = traits_of(config.family).head_in_files;
  if (head != "lm_head" && !config.tie_word_embeddings) {  // under another name
    out.push_back({head + ".weight", {{"lm_head.weight", config.vocab_size}}});
  }
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    if (is_linear(config, layer)) {
      add_convolution(attention_path(config, layer), *config.linear_attention, ".weight", out);
    }
    if (!is_state_space(config, layer)) continue;
    const std::string path = space_path(config, layer);
    add_convolution(path, *config.state_space, ".weight", out);
    if (config.state_space->convolution_bias) add_convolution(path, *config.state_space, ".bias", out);
  }
  return out;
}

std::vector<JoinedTensor> joined_factors(const ModelConfig& config, const LoraConfig& lora) {
  std::vector<JoinedTensor> out;
  for (const LinearModule& linear : linear_modules(config)) {
    if (linear.parts.empty() || !lora.adapts(linear)) continue;
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
  out.held = plan.held;
  std::vector<Sources> sources;  // of each tensor
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const auto whole = whole_of.find(plan.tensors[i].name);
    if (whole == whole_of.end()) {
      out.tensors.push_back(plan.tensors[i]);
      sources.push_back({{i}, {}});
      continue;
    }
    const JoinedTensor& tensor = *whole->second;
    if (plan.tensors[i].name != tensor.parts.front().name) continue;  // written with the first
    Sources& own = sources.emplace_back();
    for (const JoinedTensor::Part& part : tensor.parts) own.tensors.push_back(index_of.at(part.name));
    out.tensors.push_back({tensor.name, plan.tensors[i].type, shape_of(tensor, plan.tensors[i].shape)});
    if (tensor.turns == 1) continue;
    own.turns = tensor.turns;
    own.bytes_of_turn = bytes_of_turn(tensor, plan.tensors[i]);
    const TensorToWrite& joint = out.tensors.back();
    out.held = std::max(out.held, plan.held + tensor_bytes(joint.type, joint.shape).value_or(0));
  }
  out.produce = [sources = std::move(sources), produce = std::move(plan.produce)](
                    std::size_t index, const TensorSink& sink) -> absl::Status {
    const Sources& own = sources[index];
    if (!own.bytes_of_turn.empty()) return produce_in_turns(own, produce, sink);
    for (const std::size_t source : own.tensors) RONDO_RETURN_IF_ERROR(produce(source, sink));
    return absl::OkStatus();
  };
  return out;
}

}  // namespace rondo::model
