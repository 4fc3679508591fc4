// See layer_parts.h.
#include "layer_parts.h"

#include <fmt/format.h>

#include <utility>

#include "rondo/model/expert_factors.h"

namespace rondo::model {

PartsBuilder::PartsBuilder(const ModelConfig& config, const MethodSpec& method, std::uint32_t block)
    : method_(method), block_(block), trains_(method.trains_block(block, config.num_layers)) {}

std::uint32_t PartsBuilder::add(std::string name, devices::Shape shape, WeightKind kind) {
  parts_.parameters.push_back({std::move(name), std::move(shape), kind, trains_});
  return static_cast<std::uint32_t>(parts_.parameters.size() - 1);
}

std::optional<NormUse> PartsBuilder::norm_if(const ModelConfig& config, const std::string& prefix, const char* name) {
  if (name == nullptr) return std::nullopt;
  const NormUse use = norm_use(config, static_cast<std::uint32_t>(parts_.parameters.size()));
  const std::string module = prefix + "." + name;
  if (use.weight) add(module + ".weight", {config.hidden_size}, WeightKind::kNorm);
  if (use.bias) add(module + ".bias", {config.hidden_size}, WeightKind::kBias);
  return use;
}

std::uint32_t PartsBuilder::matrix(const std::string& module, std::int64_t out, std::int64_t in) {
  const std::uint32_t index = add(module + ".weight", {out, in}, WeightKind::kMatrix);
  if (!trains_) parts_.parameters.back().encoding = method_.base_encoding;
  return index;
}

std::uint32_t PartsBuilder::matrix_of_expert(const std::string& module, std::int64_t out, std::int64_t in) {
  const std::uint32_t index = matrix(module, out, in);
  if (!trains_ && method_.keeps_mxfp4) parts_.parameters.back().encoding = devices::Encoding::kMxfp4;
  return index;
}

std::uint32_t PartsBuilder::factor(std::string name, devices::Shape shape, WeightKind kind, double rate) {
  const std::uint32_t index = add(std::move(name), std::move(shape), kind);
  parts_.parameters.back().trained = method_.train_lora;
  parts_.parameters.back().rate_factor = rate;
  return index;
}

void PartsBuilder::linear(const LinearModule& module) {
  const bool adapted = module.adaptable && method_.lora && method_.lora->adapts(module);
  const auto site = static_cast<std::uint32_t>(parts_.linears.size());
  std::optional<std::uint32_t> lora_a;
  for (const LinearModule& part : parts_or_self(module)) {
    const auto out = static_cast<std::int64_t>(part.out);
    const auto in = static_cast<std::int64_t>(part.in);
    LinearUse use{part.path, out, in, site, {}, {}, {}, {}, {}};
    use.exact = module.exact;
    use.factor = part.factor;
    use.weight = use.exact ? add(part.path + ".weight", {out, in}, WeightKind::kMatrix) : matrix(part.path, out, in);
    if (part.bias) use.bias = add(part.path + ".bias", {out}, WeightKind::kBias);
    if (adapted) {
      use.rank = method_.lora->rank_of(module.path);
      use.scale = method_.lora->scale_of(module.path);
      if (!lora_a) lora_a = factor(adapter_tensor_name(module.path, 'A'), {use.rank, in}, WeightKind::kLoraA, 1.0);
      use.lora_a = lora_a;
      const double rate = method_.lora_b_rate;
      use.lora_b = factor(adapter_tensor_name(part.path, 'B'), {out, use.rank}, WeightKind::kLoraB, rate);
      if (method_.lora->use_dora) {
        use.magnitude = factor(magnitude_tensor_name(part.path), {out}, WeightKind::kMagnitude, rate);
      }
    }
    parts_.linears.push_back(std::move(use));
  }
}

void PartsBuilder::experts(const std::string& prefix, const ModelConfig& config) {
  const ExpertNames names = expert_names(config);
  const std::string module = prefix + "." + names.module;
  const std::string router = module + names.router;
  const std::int64_t count = config.experts->count;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t width = config.experts->width;
  ExpertParts& parts = parts_.experts.emplace();
  if (config.experts->beside_mlp) {
    BesideParts& beside = parts_.beside.emplace();
    const std::string block = prefix + ".";
    beside.router_scale = add(block + BesideNames::kRouterScale, {hidden}, WeightKind::kFactor);
    beside.expert_scale = add(block + BesideNames::kExpertScale, {count}, WeightKind::kExpertScale);
    beside.mlp_output = norm(block + BesideNames::kMlpOutput, hidden);
    beside.experts_input = norm(block + BesideNames::kExpertsInput, hidden);
    beside.experts_output = norm(block + BesideNames::kExpertsOutput, hidden);
  } else if (!config.experts->has_linear_router()) {
    parts.router = add(router + ".weight", {count, hidden}, WeightKind::kMatrix);
  }
  for (std::int64_t expert = 0; expert < count; ++expert) {
    const std::string one = fmt::format("{}experts.{}.", module, expert);
    if (config.gated_mlp) parts.gate.weights.push_back(matrix_of_expert(one + names.gate, width, hidden));
    parts.up.weights.push_back(matrix_of_expert(one + names.up, width, hidden));
    parts.down.weights.push_back(matrix_of_expert(one + names.down, hidden, width));
  }
  if (names.choice_bias != nullptr) {
    const std::vector<std::uint64_t> shape = choice_bias_shape(config);
    parts.choice_bias =
        add(module + names.choice_bias, devices::Shape(shape.begin(), shape.end()), WeightKind::kChoiceBias);
    parts_.parameters.back().trained = false;
  }
  if (method_.lora) expert_adapters(config, parts);
  if (!config.experts->biases) return;
  const auto bias = [&](const std::string& name, const devices::Shape& shape) {
    return add(name + ".bias", shape, WeightKind::kBias);
  };
  parts.router_bias = bias(router, {count});
  parts.gate.bias = bias(module + "experts." + names.gate, {count, width});
  parts.up.bias = bias(module + "experts." + names.up, {count, width});
  parts.down.bias = bias(module + "experts." + names.down, {count, hidden});
}

void PartsBuilder::expert_adapters(const ModelConfig& config, ExpertParts& parts) {
  for (const ExpertFactors& factors : expert_factors(config, *method_.lora, block_)) {
    ExpertAdapter adapter;
    adapter.rank = factors.rank;
    adapter.scale = factors.scale;
    const auto experts = static_cast<std::int64_t>(factors.experts);
    adapter.a =
        factor(factors.a, {experts * adapter.rank, static_cast<std::int64_t>(factors.in)}, WeightKind::kLoraA, 1.0);
    std::vector<std::optional<ExpertAdapter>*> of_parts = {&parts.router_adapter};
    if (factors.tensor.kind == ExpertTensor::Kind::kInner) of_parts = {&parts.gate.adapter, &parts.up.adapter};
    if (factors.parts.size() < of_parts.size()) of_parts = {&parts.up.adapter};  // without a gate
    if (factors.tensor.kind == ExpertTensor::Kind::kDown) of_parts = {&parts.down.adapter};
    for (std::size_t part = 0; part < factors.parts.size(); ++part) {
      const auto out = static_cast<std::int64_t>(factors.parts[part].out);
      adapter.b = factor(factors.parts[part].b, {experts * out, adapter.rank}, WeightKind::kLoraB, method_.lora_b_rate);
      *of_parts[part] = adapter;
    }
  }
}

}  // namespace rondo::model
