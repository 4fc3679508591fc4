// See expert_factors.h.
#include "rondo/model/expert_factors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "reordered.h"
#include "rondo/base/status.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stacked_experts.h"
#include "safetensors_header.h"

namespace rondo::model {
namespace {

using Kind = ExpertTensor::Kind;

void add_tensors(const ModelConfig& config, std::uint32_t layer, std::vector<ExpertTensor>& out) {
  if (!has_experts(config, layer)) return;
  const MixtureInMemory names = mixture_in_memory(config);
  const std::string mixture = fmt::format("{}layers.{}.{}", name_prefix(config), layer, names.module);
  const std::string router = mixture + names.router;
  // Where it is a linear layer an adapter has it as such.
  if (!config.experts->has_linear_router()) out.push_back({Kind::kRouter, router + ".weight", router, layer});
  const char* inner = config.gated_mlp ? "experts.gate_up_proj" : "experts.up_proj";
  out.push_back({Kind::kInner, mixture + inner, mixture + "experts", layer});
  out.push_back({Kind::kDown, mixture + "experts.down_proj", mixture + "experts", layer});
}

ExpertFactors factors_of(const ModelConfig& config, const LoraConfig& lora, const ExpertTensor& tensor,
                         bool within_other) {
  const ExpertsConfig& experts = *config.experts;
  const std::string holder = tensor.module + (within_other ? ".base_layer" : "");
  ExpertFactors factors;
  factors.tensor = tensor;
  factors.rank = lora.rank_of(tensor.path);
  factors.scale = lora.scale_of(tensor.path);
  factors.a = adapter_tensor_name(holder, 'A');
  factors.stored_b = adapter_tensor_name(holder, 'B');
  if (tensor.kind == Kind::kRouter) {
    factors.in = config.hidden_size;
    factors.parts = {{factors.stored_b, experts.count}};
    return factors;
  }
  const auto part = [&](const char* name) { return adapter_tensor_name(tensor.module + "." + name, 'B'); };
  factors.experts = experts.count;
  if (tensor.kind == Kind::kInner) {
    factors.in = config.hidden_size;
    if (config.gated_mlp) factors.parts.push_back({part("gate_proj"), experts.width});
    factors.parts.push_back({part("up_proj"), experts.width});
    factors.in_turn = has_experts_in_turn(config);
  } else {
    factors.in = experts.width;
    factors.parts = {{part("down_proj"), config.hidden_size}};
  }
  return factors;
}

/// Where a part's numbers lie in the stored B.
struct Placing {
  std::uint64_t experts;
  std::uint64_t rank;
  std::uint64_t out;        // rows of the part
  std::uint64_t first_row;  // in the stored B, and from one row to the next
  std::uint64_t row_step;

  std::uint64_t place(std::uint64_t i) const {
    const std::uint64_t column = i % rank * experts + i / rank / out;
    return (first_row + i / rank % out * row_step) * rank * experts + column;
  }
};

Placing placing_of(const ExpertFactors& factors, std::size_t part) {
  Placing placing{factors.experts, factors.rank, factors.parts[part].out, part, factors.parts.size()};
  if (factors.in_turn) return placing;
  placing.first_row = 0;
  placing.row_step = 1;
  for (std::size_t i = 0; i < part; ++i) placing.first_row += factors.parts[i].out;
  return placing;
}

/// The router's, which lies as its part does, is no matter of this file's.
bool is_stored_apart(const ExpertFactors& factors) { return factors.tensor.kind != Kind::kRouter; }

absl::Status split_b(const ExpertFactors& factors, TensorFiles& files) {
  const TensorView* found = files.find(factors.stored_b);
  if (found == nullptr) return invalid_input("{}: tensor {} is missing", files.origin(), factors.stored_b);
  const std::vector<std::uint64_t> expected = {factors.stored_rows(), factors.rank * factors.experts};
  if (found->shape != expected || found->codes) {
    return invalid_input("{}: tensor {}: expected numbers [{}], found {}[{}]", found->file, factors.stored_b,
                         fmt::join(expected, ", "), found->codes ? "U8 " : "", fmt::join(found->shape, ", "));
  }
  const TensorView whole = *found;
  files.erase(factors.stored_b);
  for (std::size_t part = 0; part < factors.parts.size(); ++part) {
    TensorView view = whole;
    view.name = factors.parts[part].b;
    view.shape = {factors.experts * factors.parts[part].out, factors.rank};
    view.decode = decode_runs(whole, [placing = placing_of(factors, part)](std::uint64_t i) {
      return Run{placing.place(i), 1};
    });
    files.add(std::move(view));
  }
  return absl::OkStatus();
}

/// A tensor of an adapter's file: one of the plan's as it is, or a B of parts.
struct StoredFactor {
  TensorToWrite tensor;
  std::vector<std::size_t> parts;  // places in the plan
  std::vector<Placing> placings;   // of parts; empty: the only one is as it is
};

absl::Status write_b(const StoredFactor& stored, const TensorProducer& produce, const TensorSink& sink) {
  const std::size_t size = weight_type_size(stored.tensor.type);
  std::vector<std::byte> whole(stored.tensor.shape[0] * stored.tensor.shape[1] * size);
  for (std::size_t part = 0; part < stored.parts.size(); ++part) {
    const Placing& placing = stored.placings[part];
    std::uint64_t i = 0;
    RONDO_RETURN_IF_ERROR(produce(stored.parts[part], [&](std::span<const std::byte> piece) -> absl::Status {
      if (piece.size() % size != 0) return internal_error("{}: a piece ends within a number", stored.tensor.name);
      for (; !piece.empty(); piece = piece.subspan(size)) {
        std::memcpy(whole.data() + placing.place(i++) * size, piece.data(), size);
      }
      return absl::OkStatus();
    }));
  }
  return sink(whole);
}

}  // namespace

std::uint64_t ExpertFactors::stored_rows() const {
  std::uint64_t rows = 0;
  for (const Part& part : parts) rows += part.out;
  return rows;
}

std::vector<ExpertTensor> expert_tensors(const ModelConfig& config) {
  std::vector<ExpertTensor> out;
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) add_tensors(config, layer, out);
  return out;
}

std::vector<ExpertFactors> expert_factors(const ModelConfig& config, const LoraConfig& lora, std::uint32_t layer) {
  std::vector<ExpertFactors> out;
  if (lora.parameters.empty()) return out;
  std::vector<ExpertTensor> tensors;
  add_tensors(config, layer, tensors);
  std::erase_if(tensors, [&](const ExpertTensor& tensor) { return !lora.adapts_tensor(tensor.path); });
  const bool has_down = std::ranges::count(tensors, Kind::kDown, &ExpertTensor::kind) > 0;
  for (const ExpertTensor& tensor : tensors) {
    out.push_back(factors_of(config, lora, tensor, has_down && tensor.kind == Kind::kInner));
  }
  return out;
}

std::vector<ExpertFactors> expert_factors(const ModelConfig& config, const LoraConfig& lora) {
  std::vector<ExpertFactors> out;
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    for (ExpertFactors& factors : expert_factors(config, lora, layer)) out.push_back(std::move(factors));
  }
  return out;
}

std::string weight_of_expert(const ModelConfig& config, const ExpertTensor& tensor, std::uint64_t expert,
                             std::size_t part) {
  const ExpertNames names = expert_names(config);
  const std::string mixture = fmt::format("{}layers.{}.{}", name_prefix(config), tensor.layer, names.module);
  if (tensor.kind == Kind::kRouter) return mixture + names.router + ".weight";
  const bool is_gate = part == 0 && config.gated_mlp;
  const char* name = tensor.kind == Kind::kDown ? names.down : is_gate ? names.gate : names.up;
  return fmt::format("{}experts.{}.{}.weight", mixture, expert, name);
}

bool names_mean_experts(const ModelConfig& config) {
  return config.experts && !config.experts->adapts_shared && !has_stacked_experts(config);
}

absl::Status split_expert_factors(const ModelConfig& config, const LoraConfig& lora, TensorFiles& files) {
  for (const ExpertFactors& factors : expert_factors(config, lora)) {
    if (is_stored_apart(factors)) RONDO_RETURN_IF_ERROR(split_b(factors, files));
  }
  return absl::OkStatus();
}

WritePlan join_expert_factors(const ModelConfig& config, const LoraConfig& lora, WritePlan plan) {
  const std::vector<ExpertFactors> all = expert_factors(config, lora);
  if (all.empty()) return plan;
  std::map<std::string, std::size_t> place_of;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) place_of[plan.tensors[i].name] = i;
  std::map<std::size_t, const ExpertFactors*> begins;  // by the place of the first part
  for (const ExpertFactors& factors : all) {
    if (is_stored_apart(factors)) begins[place_of.at(factors.parts.front().b)] = &factors;
  }
  std::vector<StoredFactor> stored;
  std::vector<bool> taken(plan.tensors.size());
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const auto found = begins.find(i);
    if (found == begins.end()) {
      if (!taken[i]) stored.push_back({plan.tensors[i], {i}, {}});
      continue;
    }
    const ExpertFactors& factors = *found->second;
    StoredFactor& b = stored.emplace_back(StoredFactor{
        {factors.stored_b, plan.tensors[i].type, {factors.stored_rows(), factors.rank * factors.experts}}, {}, {}});
    for (std::size_t part = 0; part < factors.parts.size(); ++part) {
      b.parts.push_back(place_of.at(factors.parts[part].b));
      b.placings.push_back(placing_of(factors, part));
      taken[b.parts.back()] = true;
    }
  }
  WritePlan out;
  out.held = plan.held;
  for (const StoredFactor& one : stored) {
    out.tensors.push_back(one.tensor);
    const Bytes whole = one.placings.empty() ? 0 : tensor_bytes(one.tensor.type, one.tensor.shape).value_or(0);
    out.held = std::max(out.held, plan.held + whole);
  }
  out.produce = [stored = std::move(stored), produce = std::move(plan.produce)](
                    std::size_t index, const TensorSink& sink) -> absl::Status {
    const StoredFactor& one = stored[index];
    return one.placings.empty() ? produce(one.parts.front(), sink) : write_b(one, produce, sink);
  };
  return out;
}

}  // namespace rondo::model
