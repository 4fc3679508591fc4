// See advice.h.
#include "advice.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "rondo/base/status.h"
#include "rondo/model/parameters.h"
#include "rondo/partition/slots.h"

namespace rondo::train {

namespace {

/// Says so where a step would be shorter with the state on the device.
void advise_state(const Config& config, const Machine& machine, PlannedRun& run) {
  const bool may = updates_on_devices(config) && config.staleness == 0 && check_holds_state(machine, run.work).ok();
  if (!may || run.shape.state_bytes > machine.shape.devices.front().budget_bytes) return;
  constexpr double kWorthSaying = 0.95;
  const double now = run.plan.predicted.step_seconds;
  if (run.plan.predicted.least_step_seconds > kWorthSaying * now) return;  // no plan could be so much quicker
  const auto other = partition::make_plan(partition::hold_state(run.shape), run.work, machine.shape, run.request);
  if (!other.ok() || other->predicted.step_seconds > kWorthSaying * now) return;
  run.advice.push_back(fmt::format(
      "with optimizer_state: device masters and moments would stay on {}, which has room for them: {:.4g} s "
      "a step instead of {:.4g} s; were it lost, what was trained since the last checkpoint would be too",
      machine.pool.front().device->caps().name, other->predicted.step_seconds, now));
}

/// Says so where keys of another way to fine-tune are set: one file often serves several ways, so they are no error.
void advise_keys(const Config& config, PlannedRun& run) {
  const Config usual;
  std::vector<const char*> idle;
  const auto look = [&](const char* key, auto Config::*value) {
    if (config.*value != usual.*value) idle.push_back(key);
  };
  const bool goes_on = !config.adapter_name_or_path.empty();  // with an adapter that is there
  if (config.finetuning_type != "lora" || goes_on) {
    look("lora_rank", &Config::lora_rank);
    look("lora_alpha", &Config::lora_alpha);
    look("lora_dropout", &Config::lora_dropout);
    look("lora_target", &Config::lora_target);
    look("target_parameters", &Config::target_parameters);
    look("use_rslora", &Config::use_rslora);
    look("use_dora", &Config::use_dora);
    look("rank_pattern", &Config::rank_pattern);
    look("alpha_pattern", &Config::alpha_pattern);
    look("layers_to_transform", &Config::layers_to_transform);
    look("modules_to_save", &Config::modules_to_save);
  }
  if (config.finetuning_type != "lora") look("loraplus_lr_ratio", &Config::loraplus_lr_ratio);
  if (config.finetuning_type != "freeze") look("freeze_trainable_layers", &Config::freeze_trainable_layers);
  if (idle.empty()) return;
  run.advice.push_back(fmt::format(
      "{} {} no effect beside {}", fmt::join(idle, ", "), idle.size() == 1 ? "has" : "have",
      goes_on ? "adapter_name_or_path, whose adapter has its own" : "finetuning_type " + config.finetuning_type));
}

/// Says so where devices have matrix units that do not multiply bf16 as it is.
void advise_dtype(const model::Architecture& model, const Machine& machine, PlannedRun& run) {
  if (model.method().dtype != devices::DType::kBfloat16) return;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < machine.pool.size(); ++i) {
    const devices::DeviceCaps& caps = machine.pool[i].device->caps();
    const bool slower =
        caps.multiplies_by_units(devices::DType::kFloat16) && !caps.multiplies_by_units(devices::DType::kBfloat16);
    const bool used = std::ranges::any_of(run.plan.slots, [i](const auto& slot) { return slot.device == i; });
    if (slower && used) names.push_back(caps.name);
  }
  if (names.empty()) return;
  run.advice.push_back(fmt::format("with dtype: fp16 {} would be quicker: the matrix units there do not multiply bf16",
                                   fmt::join(names, ", ")));
}

/// Says so where `all` is more than attention.
void advise_experts(const Config& config, const model::Architecture& model, PlannedRun& run) {
  if (!model.method().trains_expert_factors() || !config.adapter_name_or_path.empty() || config.lora_target != "all")
    return;
  double trained = 0;
  double of_experts = 0;
  for (const model::Parameter& parameter : model.parameters()) {
    if (!parameter.trained) continue;
    const auto elements = static_cast<double>(parameter.elements());
    trained += elements;
    if (parameter.name.find(".experts.") != std::string::npos) of_experts += elements;
  }
  run.advice.push_back(fmt::format(
      "lora_target: all adapts experts too, {:.4g} M of {:.4g} M trained parameters; {} adapts attention alone",
      of_experts / 1e6, trained / 1e6, model::attention_alone(model.config())));
}

/// What full training leaves as it is.
void advise_frozen(const model::Architecture& model, PlannedRun& run) {
  const model::MethodSpec& method = model.method();
  if (!model.block_table() || !method.train_weights || method.trained_blocks) return;
  run.advice.push_back(fmt::format("{} and {} stay as they are: full trains all other weights",
                                   model::BlockInputNames::kTable, model::BlockInputNames::kProjectionNorm));
}

}  // namespace

absl::Status check_holds_state(const Machine& machine, const partition::Workload& work) {
  if (machine.pool.size() != 1) {
    return invalid_input("optimizer_state: device is for a pool of one card, found {} devices; name one, or set host",
                         machine.pool.size());
  }
  const devices::DeviceCaps& caps = machine.pool.front().device->caps();
  if (caps.unified_memory || caps.weights_in_place) {
    return invalid_input("optimizer_state: {} works in main memory, where the state is already; set host", caps.name);
  }
  if (!caps.updates) {
    return invalid_input("optimizer_state: {} has no programs that update weights; set host", caps.name);
  }
  if (partition::groups_of(work) > 1) {
    return invalid_input(
        "optimizer_state: device needs the gradients of a step to be one reduction group, found groups of {} for {} "
        "microbatches; set reduction_group: {}, or host",
        work.reduction_group, work.microbatches, work.microbatches);
  }
  return absl::OkStatus();
}

void advise(const Config& config, const model::Architecture& model, const Machine& machine, PlannedRun& run) {
  if (config.optimizer_state != "device") advise_state(config, machine, run);
  advise_dtype(model, machine, run);
  advise_keys(config, run);
  advise_experts(config, model, run);
  advise_frozen(model, run);
}

}  // namespace rondo::train
