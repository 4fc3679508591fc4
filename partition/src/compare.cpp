// The published schedules on a given model and machine, beside a plan.
#include <algorithm>
#include <functional>

#include "packing.h"
#include "rondo/partition/schedules.h"
#include "rondo/partition/slots.h"

namespace rondo::partition {
namespace {

constexpr std::uint32_t kMostChunks = 8;

/// One schedule with one number of stages a device, with recomputation or without.
class Row {
 public:
  Row(const ModelShape& model, const Workload& work, const MachineShape& machine)
      : model_(model), work_(work), machine_(machine) {}

  ComparedSchedule measure(const PipelineSchedule& schedule, bool recompute) const {
    ComparedSchedule row;
    row.name = schedule.name;
    row.recompute = recompute;
    row.stages_per_device = static_cast<std::uint32_t>(schedule.device_of_stage.size() / machine_.devices.size());
    const auto layers = even_stages(model_, schedule.device_of_stage.size());
    std::vector<double> held;
    for (const StageLayers& of_stage : layers) held.push_back(held_by(of_stage, recompute));
    const PipelineRun result = run(schedule, seconds(schedule.device_of_stage, recompute), hop_seconds(), held);
    row.bubble = speed_weighted_bubble(result);
    const double step = result.seconds + after_commit(schedule, layers, result);
    row.tokens_per_second = step > 0 ? work_.mean_tokens * work_.microbatches / step : 0;
    row.fits = true;
    for (DeviceIndex i = 0; i < machine_.devices.size(); ++i) {
      const Bytes bytes = fixed_bytes(schedule, layers, i) + static_cast<Bytes>(result.most_weighed[i]);
      row.peak_bytes = std::max(row.peak_bytes, bytes);
      row.fits = row.fits && bytes <= machine_.devices[i].budget_bytes;
    }
    Bytes host = work_.batch_bytes * work_.microbatches;
    for (const auto& [purpose, bytes] : model_.host_bytes) host += bytes;
    row.fits = row.fits && host <= machine_.host_budget_bytes;
    return row;
  }

  /// By stage. Empty when the layers are too few.
  std::vector<StageSeconds> seconds(const std::vector<DeviceIndex>& device_of_stage, bool recompute) const {
    std::vector<StageSeconds> seconds;
    for (const StageLayers& layers : even_stages(model_, device_of_stage.size())) {
      const DeviceShape& device = machine_.devices[device_of_stage[seconds.size()]];
      seconds.push_back(seconds_of(device, layers, recompute));
    }
    return seconds;
  }

 private:
  double share() const {
    return work_.microbatch_tokens > 0 && work_.mean_tokens > 0 ? work_.mean_tokens / work_.microbatch_tokens : 1.0;
  }

  StageSeconds seconds_of(const DeviceShape& device, StageLayers layers, bool recompute) const {
    StageSeconds stage;
    const auto time = [&](const PhaseCost& cost) { return cost.seconds(device, work_.dtype) * share(); };
    const auto keep = static_cast<std::size_t>(recompute ? Keep::kNothing : Keep::kAll);
    for (LayerIndex i = layers.first; i <= layers.last; ++i) {
      const LayerShape& layer = model_.layers[i];
      const double forward = time(layer.forward);
      if (i >= model_.first_head_layer()) {  // loss and gradients are one program
        const double whole = time(layer.head_part ? layer.fused : layer.backward[0]);
        stage.backward += layer.has_backward ? whole : forward;
        stage.input_gradient += layer.has_backward ? whole - forward : forward;
        stage.weight_gradient += layer.has_backward ? forward : 0;
        continue;
      }
      stage.forward += forward;
      if (!layer.has_backward) continue;
      const double backward = time(layer.backward[keep]);
      const double weights = time(layer.weight_gradients);
      stage.backward += backward;
      stage.weight_gradient += weights;
      stage.input_gradient += backward - weights;
    }
    return stage;
  }

  /// Bytes that a stage keeps of a microbatch between its forward and its backward.
  double held_by(StageLayers layers, bool recompute) const {
    Bytes bytes = 0;
    for (LayerIndex i = layers.first; i <= layers.last; ++i) {
      bytes += work_.boundary_bytes;
      if (!recompute) bytes += model_.layers[i].saved_bytes[static_cast<std::size_t>(Keep::kAll)];
    }
    return static_cast<double>(bytes);
  }

  /// Weights, gradient sums and the workspace of one layer at a time.
  Bytes fixed_bytes(const PipelineSchedule& schedule, const std::vector<StageLayers>& layers,
                    DeviceIndex device) const {
    Bytes bytes = machine_.devices[device].fixed_bytes + 2 * work_.batch_bytes;
    Bytes workspace = 0;
    for (std::size_t stage = 0; stage < layers.size(); ++stage) {
      if (schedule.device_of_stage[stage] != device) continue;
      for (LayerIndex i = layers[stage].first; i <= layers[stage].last; ++i) {
        const LayerShape& layer = model_.layers[i];
        if (!machine_.devices[device].weights_in_place) bytes += layer.weight_bytes;
        bytes += layer.gradient_bytes + layer.row_gradient_bytes;
        workspace = std::max(workspace, layer.scratch_bytes + layer.saved_bytes[0] + 4 * work_.boundary_bytes +
                                            layer.saved_bytes[static_cast<std::size_t>(Keep::kAll)]);
      }
    }
    return bytes + workspace;
  }

  /// Device to host to device, at the pace of the slowest.
  double hop_seconds() const {
    double slowest = 0;
    const double bytes = static_cast<double>(work_.boundary_bytes) * share();
    for (const DeviceShape& device : machine_.devices) {
      if (device.unified_memory) continue;
      const devices::DeviceProfile& profile = device.profile;
      double seconds = 2 * profile.link_latency_seconds;
      if (profile.link_up > 0) seconds += bytes / profile.link_up;
      if (profile.link_down > 0) seconds += bytes / profile.link_down;
      slowest = std::max(slowest, seconds);
    }
    return slowest;
  }

  /// The norm, and by how much the next step's stages must wait for the updates of their layers; those on the processor
  /// that makes the updates for all of them.
  double after_commit(const PipelineSchedule& schedule, const std::vector<StageLayers>& layers,
                      const PipelineRun& result) const {
    const auto all = static_cast<double>(work_.trained_parameters);
    double trained = 0;  // up to here
    double wait = 0;
    for (std::size_t stage = 0; stage < layers.size(); ++stage) {
      for (LayerIndex i = layers[stage].first; i <= layers[stage].last; ++i) {
        trained += static_cast<double>(model_.layers[i].trained_parameters);
      }
      const bool on_host = machine_.devices[schedule.device_of_stage[stage]].on_host;
      wait = std::max(wait, machine_.host.update_seconds(on_host ? all : trained) - result.first_forward[stage]);
    }
    const double bandwidth = machine_.host.memory_bandwidth;
    return wait + (bandwidth > 0 ? 4.0 * all / bandwidth : 0);
  }

  double speed_weighted_bubble(const PipelineRun& result) const {
    double speeds = 0;
    double working = 0;
    for (DeviceIndex i = 0; i < machine_.devices.size(); ++i) {
      const double speed = machine_.devices[i].profile.speed(work_.dtype);
      speeds += speed;
      working += speed * result.busy[i] / result.seconds;
    }
    return speeds > 0 ? 1 - working / speeds : 0;
  }

  const ModelShape& model_;
  const Workload& work_;
  const MachineShape& machine_;
};

bool better(const ComparedSchedule& a, const ComparedSchedule& b) {
  if (a.fits != b.fits) return a.fits;
  return a.fits ? a.tokens_per_second > b.tokens_per_second : a.peak_bytes < b.peak_bytes;
}

/// The quickest of those that fit; if none does, the one that needs the least.
ComparedSchedule best_of(const Row& row, const std::vector<PipelineSchedule>& candidates) {
  std::optional<ComparedSchedule> best;
  for (const PipelineSchedule& schedule : candidates) {
    for (const bool recompute : {false, true}) {
      const ComparedSchedule measured = row.measure(schedule, recompute);
      if (!best || better(measured, *best)) best = measured;
    }
  }
  return *best;
}

ComparedSchedule row_of(const Plan& plan) {
  ComparedSchedule row;
  row.name = name_of(plan.schedule);
  row.bubble = plan.predicted.bubble;
  row.tokens_per_second = plan.predicted.tokens_per_second;
  std::vector<std::uint32_t> slots(plan.devices.size(), 0);
  for (const Slot& slot : plan.slots) {
    if (slot.round == 0 && goes_forward(slot)) ++slots[slot.device];
  }
  row.stages_per_device = std::max(1U, *std::ranges::max_element(slots));
  for (const DevicePlan& device : plan.devices) row.peak_bytes = std::max(row.peak_bytes, device.peak_bytes);
  row.recompute = plan.keep != Keep::kAll || plan.slots.size() > plan.rounds.size();
  row.fits = true;
  return row;
}

}  // namespace

std::vector<StageLayers> even_stages(const ModelShape& model, std::size_t count) {
  const std::size_t inner = model.first_head_layer() - std::size_t{1};  // without lookup table and head
  // A block is two layers, as long as there are enough blocks.
  const std::size_t unit = inner % 2 == 0 && inner / 2 >= count ? 2 : 1;
  const std::size_t units = inner / unit;
  if (count == 0 || units < count) return {};
  std::vector<StageLayers> stages;
  std::size_t taken = 0;
  for (std::size_t stage = 0; stage < count; ++stage) {
    const std::size_t end = (stage + 1) * units / count;
    StageLayers layers{static_cast<LayerIndex>(1 + taken * unit), static_cast<LayerIndex>(end * unit)};
    if (stage == 0) layers.first = 0;
    if (stage + 1 == count) layers.last = static_cast<LayerIndex>(model.layers.size() - 1);
    stages.push_back(layers);
    taken = end;
  }
  return stages;
}

std::vector<ComparedSchedule> compare(const Plan& plan, const ModelShape& model, const Workload& work,
                                      const MachineShape& machine) {
  std::vector<ComparedSchedule> rows = {row_of(plan)};
  const auto devices = static_cast<std::uint32_t>(machine.devices.size());
  const std::uint32_t microbatches = work.microbatches;
  const Row row(model, work, machine);
  const auto add = [&](const char* name, const std::vector<PipelineSchedule>& candidates) {
    std::vector<PipelineSchedule> possible;
    for (const PipelineSchedule& schedule : candidates) {
      if (!even_stages(model, schedule.device_of_stage.size()).empty()) possible.push_back(schedule);
    }
    ComparedSchedule best;
    if (!possible.empty()) best = best_of(row, possible);
    best.name = name;
    rows.push_back(best);
  };
  std::vector<PipelineSchedule> loops;
  std::vector<PipelineSchedule> interleaves;
  for (std::uint32_t chunks = 2; chunks <= kMostChunks; ++chunks) {
    loops.push_back(looped_breadth_first(devices, microbatches, chunks));
    if (microbatches % devices == 0) interleaves.push_back(interleaved(devices, microbatches, chunks));
  }
  add("gpipe", {gpipe(devices, microbatches)});
  add("1f1b", {one_f_one_b(devices, microbatches)});
  add("interleaved", interleaves);
  add("looped_bfs", loops);
  // In the published order, and in those that these stages' own times make.
  const auto halves = [&](const auto& make) {
    std::vector<PipelineSchedule> orders = {make(devices, microbatches, std::vector<StageSeconds>())};
    for (const bool recompute : {false, true}) {
      orders.push_back(make(devices, microbatches, row.seconds(orders[0].device_of_stage, recompute)));
    }
    return orders;
  };
  add("zb_h1", halves(zb_h1));
  add("zb_v", halves(zb_v));
  return rows;
}

}  // namespace rondo::partition
