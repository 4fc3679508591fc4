#include "plan_memory.h"

#include <algorithm>
#include <limits>

#include "disk_choice.h"
#include "rondo/base/status.h"
#include "rondo/partition/layout.h"

namespace rondo::partition {
namespace {

/// Of what the plan has chosen, only what can still be changed.
std::string what_spares_devices(const Plan& plan) {
  return fmt::format("lower cutoff_len or per_device_train_batch_size{}{}",
                     plan.keep == Keep::kNothing ? "" : ", or set recompute: full",
                     plan.schedule == Schedule::kRoundPipe
                         ? ""
                         : ", or set schedule: roundpipe, whose visits may be as short as a layer");
}

}  // namespace

PlanMemory::Lack PlanMemory::fill(Plan& plan) const {
  Lack lack;
  plan.devices.clear();
  const MemoryTable without_disk = host_memory(model_, work_, machine_, plan.slots, plan.rounds, plan.keep);
  plan.host = without_disk;
  const DiskChoice choice = choose_disk(model_, work_, machine_, plan.slots, plan.rounds, plan.host);
  plan.first_layer_on_disk = choice.first_layer;
  plan.boundary_buffers = choice.boundary_buffers;
  plan.disk = disk_memory(plan, model_, work_);
  plan.disk_bytes = total_of(plan.disk);
  if (plan.disk_bytes > 0) {
    plan.host = host_memory(model_, work_, machine_, plan.slots, plan.rounds, plan.keep, plan.first_layer_on_disk,
                            plan.boundary_buffers);
  }
  plan.host_peak_bytes = total_of(plan.host);
  for (DeviceIndex i = 0; i < machine_.devices.size(); ++i) {
    const DeviceShape& device = machine_.devices[i];
    DevicePlan entry;
    entry.name = device.name;
    const DeviceLayout layout = layout_device(model_, work_, device, i, plan.slots, plan.keep);
    entry.memory = device_memory(layout, device);
    entry.peak_bytes = total_of(entry.memory);
    entry.budget_bytes = device.budget_bytes;
    const double share =
        static_cast<double>(entry.peak_bytes) / static_cast<double>(std::max<Bytes>(entry.budget_bytes, 1));
    if (entry.peak_bytes > entry.budget_bytes && share > lack.overfull) {
      lack.overfull = share;
      lack.why =
          resource_exhausted("{}: the plan needs {} and {} may be used: {}", entry.name, format_bytes(entry.peak_bytes),
                             format_bytes(entry.budget_bytes), what_spares_devices(plan));
    } else if (lack.why.ok() && !blocks_fit(layout, device)) {
      lack.why =
          resource_exhausted("{}: the plan needs more in one block than the {} that the driver gives at once: {}",
                             entry.name, format_bytes(device.most_block_bytes), what_spares_devices(plan));
    }
    plan.devices.push_back(std::move(entry));
  }
  if (!lack.why.ok()) {
    plan.devices.clear();
    return lack;
  }
  if (plan.host_peak_bytes > machine_.host_budget_bytes) {
    if (machine_.disk_budget_bytes > 0) {
      plan.host_peak_bytes = least_host_bytes(model_, work_, machine_, plan.slots, plan.rounds, without_disk);
    }
    lack.why = resource_exhausted(
        "host memory: the plan needs {} and {} may be used: lower cutoff_len, per_device_train_batch_size or "
        "reduction_group{}",
        format_bytes(plan.host_peak_bytes), format_bytes(machine_.host_budget_bytes),
        machine_.disk_budget_bytes > 0 ? what_the_disk_lacks(plan) : ", or name a folder on a disk with nvme_path");
  }
  return lack;
}

std::string PlanMemory::what_the_disk_lacks(const Plan& plan) const {
  const Bytes boundaries = layout_boundaries(model_, plan.slots, plan.rounds, work_.staleness).disk_bytes(work_);
  const Bytes all = disk_bytes_from(model_, 0) + boundaries;
  if (all <= machine_.disk_budget_bytes) return {};
  return fmt::format(", or free space in nvme_path, where state and boundaries take {} and {} may be used",
                     format_bytes(all), format_bytes(machine_.disk_budget_bytes));
}

double PlanMemory::disk_seconds(const Plan& plan) const {
  const double bandwidth = machine_.host.disk_bandwidth;
  return bandwidth > 0 ? static_cast<double>(disk_traffic(plan, model_, work_).total()) / bandwidth : 0;
}

void PlanMemory::keep_resident(Plan& plan) const {
  plan.resident.clear();
  for (DeviceIndex i = 0; i < machine_.devices.size(); ++i) {
    const DeviceShape& device = machine_.devices[i];
    plan.resident.push_back(choose_residents(model_, work_, device, i, plan.slots, plan.keep));
    plan.devices[i].memory = device_memory(model_, work_, device, i, plan.slots, plan.keep, plan.resident[i]);
    plan.devices[i].peak_bytes = total_of(plan.devices[i].memory);
  }
}

absl::Status PlanMemory::refuse_host() const {
  const MemoryTable least = least_host_memory(model_, work_, machine_, machine_.disk_budget_bytes);
  if (total_of(least) <= machine_.host_budget_bytes) return absl::OkStatus();
  const MemoryTable with_any_disk = least_host_memory(model_, work_, machine_, std::numeric_limits<Bytes>::max());
  std::string disk;
  if (total_of(with_any_disk) <= machine_.host_budget_bytes) {
    disk = machine_.disk_budget_bytes == 0
               ? ", or name a folder on a disk with nvme_path"
               : fmt::format(", or free space in nvme_path, where the state takes {} and {} may be used",
                             format_bytes(disk_bytes_from(model_, 0)), format_bytes(machine_.disk_budget_bytes));
  }
  const auto most = std::ranges::max_element(least, {}, &MemoryTable::value_type::second);
  return resource_exhausted(
      "host memory: the plan needs {} at least, {} of it for {}, and {} may be used: give it more (host_memory_limit, "
      "where that is set) or take a smaller model{}",
      format_bytes(total_of(least)), format_bytes(most->second), most->first, format_bytes(machine_.host_budget_bytes),
      disk);
}

absl::Status PlanMemory::refuse_largest_layer(Keep keep) const {
  const auto roomiest =
      std::ranges::max_element(machine_.devices, {}, [](const DeviceShape& device) { return device.budget_bytes; });
  Bytes most = 0;
  LayerIndex largest = 0;
  const auto last = static_cast<LayerIndex>(model_.layers.size() - 1);
  for (LayerIndex i = 0; i <= last; ++i) {
    const bool back = model_.layers[i].has_backward && i > 0;
    const SlotPhase phase = i == last ? SlotPhase::kFused : back ? SlotPhase::kBackward : SlotPhase::kForward;
    const DeviceLayout layout = layout_device(model_, work_, *roomiest, 0, {{phase, i, i, 0, 0, 0}}, keep);
    const Bytes need = total_of(device_memory(layout, *roomiest));
    if (need <= roomiest->budget_bytes && !blocks_fit(layout, *roomiest)) {
      return resource_exhausted(
          "{}: {} alone needs more in one block than the {} that the driver gives at once: lower cutoff_len or "
          "per_device_train_batch_size",
          roomiest->name, model_.layers[i].name, format_bytes(roomiest->most_block_bytes));
    }
    if (need > most) largest = i;
    most = std::max(most, need);
  }
  if (most <= roomiest->budget_bytes) return absl::OkStatus();
  return resource_exhausted(
      "{}: {} alone needs {} and {} may be used: lower cutoff_len or per_device_train_batch_size, or take a device "
      "with more memory",
      roomiest->name, model_.layers[largest].name, format_bytes(most), format_bytes(roomiest->budget_bytes));
}

}  // namespace rondo::partition
