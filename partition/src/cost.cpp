// Costs: seconds of ops, layers and slots; bytes of devices and host.
#include <algorithm>
#include <numeric>

#include "disk_choice.h"
#include "rondo/devices/chunk.h"
#include "rondo/partition/layout.h"
#include "rondo/partition/plan.h"

namespace rondo::partition {

double PhaseCost::flops() const {
  return std::accumulate(ops.begin(), ops.end(), 0.0, [](double sum, const OpCost& op) { return sum + op.flops; });
}

double PhaseCost::OpCost::seconds(const DeviceShape& device, devices::DType dtype) const {
  if (device.rates != nullptr) {
    if (const auto rate = device.rates->rate(shape)) return devices::work_of({flops, bytes}) / *rate;
  }
  return device.profile.seconds({flops, bytes, conversion_bytes}, dtype, shape.fp8);
}

double PhaseCost::seconds(const DeviceShape& device, devices::DType dtype) const {
  double seconds = 0;
  for (const OpCost& op : ops) seconds += op.seconds(device, dtype);
  return seconds;
}

const char* name_of(SlotPhase phase) {
  constexpr const char* kNames[kSlotPhases] = {"forward", "fused", "backward", "weight_gradient"};
  return kNames[static_cast<std::size_t>(phase)];
}

namespace {
constexpr std::string_view kScheduleNames[] = {"roundpipe",   "gpipe", "looped_bfs", "1f1b",
                                               "interleaved", "zb_h1", "zb_v"};
}  // namespace

const char* name_of(Schedule schedule) { return kScheduleNames[static_cast<std::size_t>(schedule)].data(); }

std::optional<Schedule> executable_schedule(std::string_view name) {
  const auto* const found = std::ranges::find(kScheduleNames, name);
  if (found == std::end(kScheduleNames)) return std::nullopt;
  return static_cast<Schedule>(found - std::begin(kScheduleNames));
}

Bytes total_of(const MemoryTable& table) {
  return std::accumulate(table.begin(), table.end(), Bytes{0},
                         [](Bytes sum, const auto& entry) { return sum + entry.second; });
}

std::vector<LayerIndex> residents_of(const Plan& plan, DeviceIndex device) {
  return device < plan.resident.size() ? plan.resident[device] : std::vector<LayerIndex>();
}

double slot_seconds(const ModelShape& model, const Workload& work, const DeviceShape& device, const Slot& slot,
                    Keep keep) {
  const SlotPhase phase = slot.phase;
  const LayerIndex last = slot.last_layer;
  const auto seconds = [&](const PhaseCost& cost) { return cost.seconds(device, work.dtype); };
  double sum = 0;
  for (LayerIndex layer = slot.first_layer; layer <= last; ++layer) {
    const LayerShape& shape = model.layers[layer];
    if (phase == SlotPhase::kWeightGradient) {
      sum += seconds(shape.weight_gradients);
      continue;
    }
    if (phase == SlotPhase::kFused && shape.head_part) {
      sum += seconds(shape.fused);
      continue;
    }
    // On the way back the parts of a head pass on what they are given.
    if (phase == SlotPhase::kForward || (layer < last && !shape.head_part)) sum += seconds(shape.forward);
    if (phase == SlotPhase::kForward) continue;
    if (!shape.has_backward) {
      if (layer == last) sum += seconds(shape.forward);
      continue;
    }
    const auto& backward = defers_weights(model, slot, layer) ? shape.input_gradient : shape.backward;
    sum += seconds(backward[static_cast<std::size_t>(keep_of(model, slot, layer, keep))]);
  }
  if (goes_back(slot) && slot.first_layer == 1 && model.layers[0].has_backward) {
    sum += seconds(model.layers[0].backward[0]);
  }
  const double share = work.microbatch_tokens > 0 && work.mean_tokens > 0
                           ? work.mean_tokens / static_cast<double>(work.microbatch_tokens)
                           : 1.0;
  return sum * share;
}

MemoryTable device_memory(const ModelShape& model, const Workload& work, const DeviceShape& device, DeviceIndex index,
                          const std::vector<Slot>& slots, Keep keep, const std::vector<LayerIndex>& resident) {
  return device_memory(layout_device(model, work, device, index, slots, keep, resident), device);
}

MemoryTable device_memory(const DeviceLayout& layout, const DeviceShape& device) {
  MemoryTable table = layout.table();
  if (layout.total() > 0 && device.fixed_bytes > 0) table.emplace_back("kernels", device.fixed_bytes);
  return table;
}

void move_to_disk(const ModelShape& model, LayerIndex first, MemoryTable& table) {
  std::uint64_t parameters = 0;
  Bytes moments = 0;
  for (LayerIndex i = first; i < model.layers.size(); ++i) {
    parameters += model.layers[i].trained_parameters;
    moments += model.layers[i].moment_bytes;
  }
  if (parameters == 0) return;
  for (auto& [purpose, bytes] : table) {
    if (purpose == kMasterWeights) bytes -= std::min(bytes, parameters * 4);
    if (purpose == kMoments) bytes -= std::min(bytes, moments);
  }
  table.emplace_back("disk buffers", model.disk_buffer_bytes);
}

double update_seconds(const ModelShape& model, const devices::HostProfile& host, LayerIndex layer,
                      LayerIndex first_layer_on_disk) {
  const LayerShape& shape = model.layers[layer];
  const double seconds = host.update_seconds(static_cast<double>(shape.trained_parameters));
  if (layer < first_layer_on_disk || host.disk_bandwidth <= 0) return seconds;
  return std::max(seconds, 2.0 * static_cast<double>(shape.state_disk_bytes) / host.disk_bandwidth);
}

namespace {

/// What the neediest layer of a device's slots works in.
Bytes processor_scratch(const ProcessorMemory& memory, DeviceIndex device, const std::vector<Slot>& slots) {
  Bytes most = 0;
  for (const Slot& slot : slots) {
    if (slot.device != device) continue;
    for (LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
      if (layer >= memory.scratch_of_layers.size()) break;
      const std::array<Bytes, 2>& scratch = memory.scratch_of_layers[layer];
      if (goes_forward(slot)) most = std::max(most, scratch[0]);
      if (slot.phase != SlotPhase::kForward) most = std::max(most, scratch[1]);
    }
    // The embedding's way back goes with the first block's.
    if (goes_back(slot) && slot.first_layer == 1 && !memory.scratch_of_layers.empty()) {
      most = std::max(most, memory.scratch_of_layers[0][1]);
    }
  }
  return most;
}

void add_to(MemoryTable& table, const std::string& purpose, Bytes bytes) {
  if (bytes == 0) return;
  const auto entry = std::ranges::find(table, purpose, [](const auto& one) { return one.first; });
  if (entry == table.end()) {
    table.emplace_back(purpose, bytes);
  } else {
    entry->second += bytes;
  }
}

}  // namespace

MemoryTable host_taken(const MachineShape& machine, const std::vector<Slot>& slots) {
  MemoryTable table(machine.host_taken.begin(), machine.host_taken.end());
  for (DeviceIndex i = 0; i < machine.devices.size(); ++i) {
    const bool used = std::ranges::any_of(slots, [i](const Slot& slot) { return slot.device == i; });
    if (!used || machine.devices[i].host_taken == nullptr) continue;
    const ProcessorMemory& memory = *machine.devices[i].host_taken;
    for (const auto& [purpose, bytes] : memory.always) add_to(table, purpose, bytes);
    add_to(table, memory.scratch_purpose, processor_scratch(memory, i, slots));
  }
  return table;
}

MemoryTable host_memory(const ModelShape& model, const Workload& work, const MachineShape& machine,
                        const std::vector<Slot>& slots, const std::vector<Round>& rounds, Keep keep,
                        LayerIndex first_layer_on_disk, std::uint32_t boundary_buffers) {
  MemoryTable table(model.host_bytes.begin(), model.host_bytes.end());
  table.emplace_back(kBoundaries, boundary_buffers > 0
                                      ? BoundaryLayout::buffer_bytes(work, boundary_buffers)
                                      : layout_boundaries(model, slots, rounds, work.staleness).bytes(work));
  table.emplace_back("batches", work.batch_bytes * work.microbatches * (1 + work.staleness));
  Bytes staging = 0;
  Bytes pinned = 0;
  for (DeviceIndex i = 0; i < machine.devices.size(); ++i) {
    const DeviceShape& device = machine.devices[i];
    if (device.unified_memory) continue;
    const bool used = std::ranges::any_of(slots, [i](const Slot& slot) { return slot.device == i; });
    for (std::size_t direction = 0; used && direction < device.staging_pieces.size(); ++direction) {
      pinned += device.staging_pieces[direction] *
                devices::staging_piece(device.staging_bytes, model.longest_transfer[direction]);
    }
    const DeviceLayout layout = layout_device(model, work, device, i, slots, keep);
    if (groups_of(work) > 1) staging += layout.gradients;
    const bool has_rows = std::ranges::any_of(slots, [&](const Slot& slot) {
      return slot.device == i && goes_back(slot) && lowest_gradient_layer(model, slot) == 0;
    });
    if (has_rows) staging += model.layers[0].row_gradient_bytes;
  }
  table.emplace_back("gradient staging", staging);
  table.emplace_back("pinned", pinned);
  const MemoryTable taken = host_taken(machine, slots);
  table.insert(table.end(), taken.begin(), taken.end());
  move_to_disk(model, first_layer_on_disk, table);
  return table;
}

}  // namespace rondo::partition
