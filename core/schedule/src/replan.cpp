#include "replan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "rondo/base/status.h"

namespace rondo::schedule {

using partition::DeviceIndex;

partition::MachineShape at_pace(const ExecutorParts& parts, const std::vector<double>& factors) {
  partition::MachineShape machine = parts.recovery.machine;
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    machine.devices[i].profile.slow_down(factors[i]);
    auto& rates = machine.devices[i].rates;
    if (rates != nullptr) rates = std::make_shared<partition::OpRates>(rates->slower(factors[i]));
  }
  return machine;
}

void predict_anew(const ExecutorParts& parts, const partition::MachineShape& machine, partition::Plan& plan) {
  for (partition::Slot& slot : plan.slots) {
    slot.seconds = partition::slot_seconds(*parts.shape, parts.work, machine.devices[slot.device], slot, plan.keep);
  }
  constexpr std::uint32_t kSteps = 6;  // the steady state, at staleness 1 too
  const partition::Prediction predicted =
      partition::simulate(plan, *parts.shape, parts.work, machine, kSteps).prediction;
  plan.predicted.step_seconds = predicted.step_seconds;
  plan.predicted.tokens_per_second = predicted.tokens_per_second;
  plan.predicted.bubble = predicted.bubble;
}

absl::StatusOr<partition::Plan> plan_over_rest(const ExecutorParts& parts, const partition::MachineShape& machine,
                                               const std::vector<bool>& lost, Bytes host) {
  partition::MachineShape rest = machine;
  rest.host_budget_bytes = std::min(machine.host_budget_bytes, host);
  std::vector<DeviceIndex> left;
  rest.devices.clear();
  for (DeviceIndex i = 0; i < machine.devices.size(); ++i) {
    if (lost[i]) continue;
    left.push_back(i);
    rest.devices.push_back(machine.devices[i]);
  }
  if (left.empty()) return absl::UnavailableError("no device is left");
  absl::StatusOr<partition::Plan> plan = partition::make_plan(*parts.shape, parts.work, rest, parts.recovery.request);
  if (!plan.ok()) return with_context(plan.status(), "without the lost devices");
  for (partition::Slot& slot : plan->slots) slot.device = left[slot.device];
  std::vector<partition::DevicePlan> devices(lost.size());
  for (std::size_t i = 0; i < lost.size(); ++i) {
    devices[i].name = machine.devices[i].name;
    devices[i].unused_because = "it is lost";
  }
  for (std::size_t i = 0; i < left.size(); ++i) devices[left[i]] = std::move(plan->devices[i]);
  plan->devices = std::move(devices);
  std::vector<std::vector<partition::LayerIndex>> resident(lost.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    resident[left[i]] = partition::residents_of(*plan, static_cast<DeviceIndex>(i));
  }
  plan->resident = std::move(resident);
  return plan;
}

Bytes promised_host(const ExecutorParts& parts) {
  const Bytes announced = parts.plan->host_peak_bytes;
  return announced > 0 ? announced : parts.recovery.machine.host_budget_bytes;
}

absl::StatusOr<partition::Plan> plan_after_loss(const ExecutorParts& parts, const partition::MachineShape& machine,
                                                const std::vector<bool>& lost, std::string& note) {
  note.clear();
  const Bytes promised = promised_host(parts);
  absl::StatusOr<partition::Plan> plan = plan_over_rest(parts, machine, lost, promised);
  if (plan.status().code() != absl::StatusCode::kResourceExhausted || promised >= machine.host_budget_bytes)
    return plan;
  plan = plan_over_rest(parts, machine, lost, machine.host_budget_bytes);
  if (plan.ok() && plan->host_peak_bytes > promised) {
    note = fmt::format("the plan without the lost devices takes {} of main memory, {} were announced",
                       format_bytes(plan->host_peak_bytes), format_bytes(promised));
  }
  return plan;
}

partition::Plan plan_elsewhere(const ExecutorParts& parts, const partition::Plan& plan) {
  std::set<DeviceIndex> used;
  for (const partition::Slot& slot : plan.slots) used.insert(slot.device);
  partition::Plan moved = plan;
  moved.resident.clear();  // for one step it does not pay
  for (partition::Slot& slot : moved.slots) {
    const auto next = used.upper_bound(slot.device);
    slot.device = next == used.end() ? *used.begin() : *next;
  }
  const absl::Status fits = partition::validate(moved, *parts.shape, parts.work, parts.recovery.machine);
  return fits.ok() ? moved : plan;
}

void seconds_by_profile(const partition::Workload& work, const partition::Plan& plan, const PaceWatch& pace,
                        std::span<const std::uint32_t> buckets, std::vector<double>& seconds) {
  double tokens = 0;
  for (const std::uint32_t bucket : buckets) tokens += bucket;
  const double share = tokens / std::max(work.mean_tokens * work.microbatches, 1.0);
  std::ranges::fill(seconds, 0.0);
  for (const partition::Slot& slot : plan.slots) {
    const double planned = slot.seconds * plan.rounds[slot.round].microbatches * share;
    seconds[slot.device] += planned / pace.factors()[slot.device];
  }
}

std::string describe_pace(std::uint64_t step, const PaceWatch& pace, const partition::MachineShape& machine) {
  std::string note = fmt::format("step {}:", step);
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const double change = pace.factors()[i] / pace.factors_before()[i];
    if (change < PaceWatch::kOff && change > 1 / PaceWatch::kOff) continue;
    note +=
        fmt::format(" {} takes {:.2f} times as long as its profile says,", machine.devices[i].name, pace.factors()[i]);
  }
  note.back() = ';';
  return note;
}

std::string describe_overflow(const absl::Status& finite, const Course& course) {
  return fmt::format("{}: the step is skipped, the loss scale is now {}", message_of(finite), course.loss_scale);
}

}  // namespace rondo::schedule
