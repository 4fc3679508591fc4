// What a step would gain if something took no time, by simulating it so.
#include "explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "rondo/base/units.h"
#include "rondo/partition/slots.h"
#include "simulate.h"

namespace rondo::partition {
namespace {

constexpr double kOptimizerBytes = 28;                                       // read and written per parameter
constexpr double kWorthSaying = 0.05;                                        // share of the step
constexpr std::uint32_t kTimes[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};  // as many microbatches
constexpr std::uint32_t kMostMicrobatches = 2048;

class Explainer {
 public:
  Explainer(const LayerSeconds& seconds, const ModelShape& model, const Workload& work, const MachineShape& machine,
            Plan& plan)
      : seconds_(seconds), model_(model), work_(work), machine_(machine), plan_(plan) {}

  void run() {
    const double step = plan_.predicted.step_seconds;
    Plan instant = plan_;
    for (Slot& slot : instant.slots) slot.seconds = 0;
    const double compute = step - step_of(instant, work_, machine_);
    link_ = step - step_of(plan_, work_, without_links());
    host_ = step - step_of(plan_, work_, without_host());
    if (compute >= std::max(link_, host_)) {
      plan_.predicted.limited_by = "compute";
    } else if (link_ >= host_) {
      plan_.predicted.limited_by = "link";
    } else if (plan_.disk_bytes > 0 && step - step_of(plan_, work_, without_disk()) > 0.5 * host_) {
      plan_.predicted.limited_by = "disk";
    } else {
      const devices::HostProfile& profile = machine_.host;
      const double memory = profile.memory_bandwidth / kOptimizerBytes;
      const bool starved = memory > 0 && memory < 0.99 * profile.optimizer_parameters_per_second;
      plan_.predicted.limited_by = starved ? "host_memory" : "optimizer";
    }
    if (link_ > kWorthSaying * step) say_links();
    if (host_ > kWorthSaying * step) say_host();
    say_edges();
  }

 private:
  void say(std::string sentence) { plan_.predicted.advice.push_back(std::move(sentence)); }
  double share(double seconds) const { return 100 * seconds / plan_.predicted.step_seconds; }

  MachineShape without_links() const {
    MachineShape machine = machine_;
    for (DeviceShape& device : machine.devices) device.unified_memory = true;
    return machine;
  }
  MachineShape without_host() const {
    MachineShape machine = machine_;
    machine.host.memory_bandwidth = machine.host.optimizer_parameters_per_second = machine.host.disk_bandwidth = 0;
    return machine;
  }
  MachineShape without_disk() const {
    MachineShape machine = machine_;
    machine.host.disk_bandwidth = 0;
    return machine;
  }
  double step_of(const Plan& plan, const Workload& work, const MachineShape& machine) const {
    return simulate_with(seconds_, plan, model_, work, machine, steady_steps(work), false).prediction.step_seconds;
  }

  /// The same slots with `times` as many microbatches in each round. Reduction groups as large as by default, unless
  /// they were set otherwise.
  Workload longer(std::uint32_t times, Plan& plan) const {
    Workload work = work_;
    work.microbatches *= times;
    constexpr std::uint32_t kDefaultGroup = 16;
    if (work_.reduction_group == std::min(work_.microbatches, kDefaultGroup)) {
      work.reduction_group = std::min(work.microbatches, kDefaultGroup);
    }
    plan = plan_;
    plan.reduction_group = work.reduction_group;
    for (Round& round : plan.rounds) {
      round.first_microbatch *= times;
      round.microbatches *= times;
    }
    return work;
  }

  void say_links() {
    for (const std::uint32_t times : kTimes) {
      if (times * work_.microbatches > kMostMicrobatches) break;
      Plan plan;
      const Workload work = longer(times, plan);
      const double with = step_of(plan, work, machine_);
      const double without = step_of(plan, work, without_links());
      if (with - without > kWorthSaying * with) continue;
      const Bytes host = total_of(host_memory(model_, work, machine_, plan.slots, plan.rounds, plan.keep));
      const std::string memory =
          host > machine_.host_budget_bytes
              ? fmt::format(", for which the boundaries in main memory take it to {}", format_bytes(host))
              : std::string();
      return say(
          fmt::format("the links cost {:.0f}% of the step: each visit's weights arrive for few microbatches; with a "
                      "global batch of {} (gradient_accumulation_steps: {}) the links no longer limit{}",
                      share(link_), work.microbatches * work_.microbatch_sequences, work.microbatches, memory));
    }
    const Traffic traffic = traffic_of_step();
    const double most = std::max({traffic.weights, traffic.boundaries, traffic.gradients});
    const std::string change =
        most <= traffic.weights ? "more device memory would let weights stay"
        : most <= traffic.gradients
            ? fmt::format("a reduction_group above {} would bring gradients home less often", work_.reduction_group)
            : "faster links, cards on roots of their own, or boundary_quantization_bit (lossy) would help";
    say(
        fmt::format("the links cost {:.0f}% of the step, with larger batches too; a step carries {} of weights, {} of "
                    "activations and {} of gradients; {}",
                    share(link_), format_bytes(static_cast<Bytes>(traffic.weights)),
                    format_bytes(static_cast<Bytes>(traffic.boundaries)),
                    format_bytes(static_cast<Bytes>(traffic.gradients)), change));
  }

  struct Traffic {
    double weights = 0;  // bytes
    double boundaries = 0;
    double gradients = 0;
  };
  Traffic traffic_of_step() const {
    Traffic traffic;
    for (const Slot& slot : plan_.slots) {
      if (machine_.devices[slot.device].unified_memory) continue;
      const std::vector<LayerIndex> resident = residents_of(plan_, slot.device);
      const std::uint32_t count = plan_.rounds[slot.round].microbatches;
      const std::uint32_t groups = (count + work_.reduction_group - 1) / work_.reduction_group;
      const bool sums_up = slot.phase != SlotPhase::kForward && !slot.defers_weights;
      const bool catching_up = catches_up(slot);
      for (LayerIndex i = slot.first_layer; i <= slot.last_layer; ++i) {
        const LayerShape& layer = model_.layers[i];
        const bool stays = std::ranges::binary_search(resident, i);
        if (!catching_up && machine_.devices[slot.device].fetches_weights()) {
          traffic.weights += static_cast<double>(stays ? layer.trained_weight_bytes : layer.weight_bytes);
        }
        if (sums_up) traffic.gradients += static_cast<double>(layer.gradient_bytes) * groups;
      }
      const bool sends = slot.phase == SlotPhase::kForward || slot.phase == SlotPhase::kBackward;
      const int boundaries =
          (reads_activation(slot) ? 1 : 0) + (reads_gradient(model_, slot) ? 1 : 0) + (sends ? 1 : 0);
      traffic.boundaries += static_cast<double>(work_.boundary_bytes) * boundaries * count;
    }
    return traffic;
  }

  void say_host() {
    const std::string what = plan_.predicted.limited_by == "host_memory"
                                 ? "main memory's bandwidth, which the optimizer waits for,"
                             : plan_.predicted.limited_by == "disk" ? "the disk of nvme_path"
                                                                    : "the optimizer";
    std::string change = "lora trains fewer parameters";
    for (const std::uint32_t times : kTimes) {
      if (times * work_.microbatches > kMostMicrobatches) break;
      Plan plan;
      const Workload work = longer(times, plan);
      const double with = step_of(plan, work, machine_);
      if (with - step_of(plan, work, without_host()) > kWorthSaying * with) continue;
      change = fmt::format("with a global batch of {} (gradient_accumulation_steps: {}) it is less than {:.0f}%",
                           work.microbatches * work_.microbatch_sequences, work.microbatches, 100 * kWorthSaying);
      break;
    }
    say(fmt::format("{} costs {:.0f}% of the step; {}", what, share(host_), change));
  }

  /// Idle though nothing is waited for but other slots.
  void say_edges() {
    MachineShape ideal = without_links();
    ideal.host = {};
    const Prediction now = simulate_with(seconds_, plan_, model_, work_, ideal, steady_steps(work_), false).prediction;
    if (now.bubble < kWorthSaying) return;
    Plan plan;
    const Workload work = longer(2, plan);
    const Prediction later = simulate_with(seconds_, plan, model_, work, ideal, steady_steps(work), false).prediction;
    if (work_.staleness > 0 || later.bubble > 0.8 * now.bubble) {
      return say(
          fmt::format("{:.0f}% of the step is idle because the layers do not share out evenly over these devices; "
                      "more microbatches do not change that",
                      100 * now.bubble));
    }
    say(fmt::format(
        "fill and drain leave the devices idle for {:.0f}% of the step; with a global batch of {} "
        "(gradient_accumulation_steps: {}) it is {:.0f}%",
        100 * now.bubble, work.microbatches * work_.microbatch_sequences, work.microbatches, 100 * later.bubble));
  }

  const LayerSeconds& seconds_;
  const ModelShape& model_;
  const Workload& work_;
  const MachineShape& machine_;
  Plan& plan_;
  double link_ = 0;
  double host_ = 0;
};

}  // namespace

void explain_limits(const LayerSeconds& seconds, const ModelShape& model, const Workload& work,
                    const MachineShape& machine, Plan& plan) {
  Explainer(seconds, model, work, machine, plan).run();
}

}  // namespace rondo::partition
