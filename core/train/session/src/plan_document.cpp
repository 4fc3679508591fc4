#include "rondo/train/plan_document.h"

#include <fmt/format.h>

#include "rondo/partition/layout.h"

namespace rondo::train {
namespace {

using Json = nlohmann::ordered_json;

/// Layers are described by the bucket, which the slots' times and tokens a second do not count either.
double of_microbatch(double flops, const partition::Workload& work) {
  return work.mean_tokens > 0 ? flops / work.microbatch_tokens * work.mean_tokens : flops;
}

Json layers_json(const PlannedRun& run) {
  Json layers = Json::array();
  for (const partition::LayerShape& layer : run.shape.layers) {
    layers.push_back({{"name", layer.name},
                      {"parameters", layer.parameters},
                      {"weight_bytes", layer.weight_bytes + layer.held_weight_bytes},
                      {"forward_flops", of_microbatch(layer.forward.flops(), run.work)}});
  }
  return layers;
}

Json memory_json(const partition::MemoryTable& table) {
  Json json = Json::object();
  for (const auto& [purpose, bytes] : table) json[purpose] = bytes;
  return json;
}

Json devices_json(const partition::Plan& plan) {
  Json devices = Json::array();
  for (partition::DeviceIndex i = 0; i < plan.devices.size(); ++i) {
    const partition::DevicePlan& device = plan.devices[i];
    Json entry = {{"name", device.name},
                  {"peak_bytes", device.peak_bytes},
                  {"budget_bytes", device.budget_bytes},
                  {"busy", device.busy},
                  {"memory", memory_json(device.memory)},
                  {"resident_layers", partition::residents_of(plan, i)}};
    if (!device.unused_because.empty()) entry["unused_because"] = device.unused_because;
    devices.push_back(std::move(entry));
  }
  return devices;
}

Json slots_json(const partition::Plan& plan) {
  Json slots = Json::array();
  for (const partition::Slot& slot : plan.slots) {
    slots.push_back({{"device", plan.devices[slot.device].name},
                     {"round", slot.round},
                     {"microbatches", plan.rounds[slot.round].microbatches},
                     {"phase", partition::name_of(slot.phase)},
                     {"first_layer", slot.first_layer},
                     {"last_layer", slot.last_layer},
                     {"seconds", slot.seconds}});
  }
  return slots;
}

}  // namespace

std::string dataset_not_read(const Config& config) {
  return fmt::format(
      "{} is not read, for the files of {} are not here and so no tokenizer: every sequence counts as {} "
      "tokens",
      config.dataset, config.model_name_or_path, config.cutoff_len);
}

Json plan_document(const PlannedRun& run) {
  const partition::Plan& plan = run.plan;
  return {{"step_seconds", plan.predicted.step_seconds},
          {"least_step_seconds", plan.predicted.least_step_seconds},
          {"tokens_per_second", plan.predicted.tokens_per_second},
          {"bubble", plan.predicted.bubble},
          {"limited_by", plan.predicted.limited_by},
          {"commit_seconds", plan.predicted.commit_seconds},
          {"layers", layers_json(run)},
          {"devices", devices_json(plan)},
          {"host_peak_bytes", plan.host_peak_bytes},
          {"host_memory", memory_json(plan.host)},
          {"disk_bytes", plan.disk_bytes},
          {"disk_memory", memory_json(plan.disk)},
          {"disk_bytes_written_per_step", plan.disk_traffic.state_bytes + plan.disk_traffic.boundaries_written},
          {"disk_bytes_read_per_step", plan.disk_traffic.state_bytes + plan.disk_traffic.boundaries_read},
          {"advice", plan.predicted.advice},
          {"slots", slots_json(plan)}};
}

}  // namespace rondo::train
