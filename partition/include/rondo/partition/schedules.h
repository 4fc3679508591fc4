// Pipeline schedules as data: who does which piece of work of which stage and microbatch in which order. Published
// schedules keep a stage's weights on one device; Rondo's own deals stages as visits to stateless devices.
//
// Pure functions: a schedule is made for a number of devices and microbatches, checked, and run in simulated time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rondo/partition/plan.h"

namespace rondo::partition {

/// kForward and kBackward of a stage; kInputGradient and kWeightGradient are the two halves of kBackward; kVisit is a
/// stage of its own in a chain of visits (forward, fused or backward, it makes no difference to the order).
enum class Work : std::uint8_t { kForward, kBackward, kInputGradient, kWeightGradient, kVisit };

struct PipelineOp {
  Work work = Work::kForward;
  std::uint32_t stage = 0;
  std::uint32_t microbatch = 0;
};

struct PipelineSchedule {
  std::string name;
  std::uint32_t microbatches = 0;
  std::vector<DeviceIndex> device_of_stage;
  std::vector<std::vector<PipelineOp>> orders;  // by device
  bool recompute = false;                       // stages keep their inputs alone
};

/// Seconds of a stage for one microbatch. kVisit takes `forward`.
struct StageSeconds {
  double forward = 0;
  double backward = 0;  // both halves
  double input_gradient = 0;
  double weight_gradient = 0;
};

/// All forwards, then all backwards. One stage a device.
PipelineSchedule gpipe(std::uint32_t devices, std::uint32_t microbatches);
/// One forward, one backward in turn after a warm-up of devices - d forwards.
PipelineSchedule one_f_one_b(std::uint32_t devices, std::uint32_t microbatches);
/// The same with `chunks` stages a device, microbatches in groups of `devices`. REQUIRES: microbatches is a multiple of
/// devices.
PipelineSchedule interleaved(std::uint32_t devices, std::uint32_t microbatches, std::uint32_t chunks);
/// `chunks` stages a device, each over all microbatches before the next.
PipelineSchedule looped_breadth_first(std::uint32_t devices, std::uint32_t microbatches, std::uint32_t chunks);
/// 1F1B's memory; weight gradients fill the gaps. `seconds`: by stage, what the order is made for; empty: every piece
/// takes the same (Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241).
PipelineSchedule zb_h1(std::uint32_t devices, std::uint32_t microbatches,
                       const std::vector<StageSeconds>& seconds = {});
/// Two stages a device in the shape of a V, 1F1B's memory. `seconds` as above (Qi et al., Pipeline Parallelism with
/// Controllable Memory, arXiv 2405.15362).
PipelineSchedule zb_v(std::uint32_t devices, std::uint32_t microbatches, const std::vector<StageSeconds>& seconds = {});
/// Visits in rotation: `forward` and `backward` stages, between them a fused one or, without, a forward and a backward
/// of the deepest.
PipelineSchedule roundpipe(std::uint32_t devices, std::uint32_t microbatches, std::uint32_t forward,
                           std::uint32_t backward, bool fused);

/// Every piece of work is done once, on its stage's device, and no device waits for ever. Errors: InvalidArgument
/// naming the schedule, device and piece.
absl::Status validate(const PipelineSchedule& schedule);

struct PipelineRun {
  double seconds = 0;                    // from the first begin to the last end
  double bubble = 0;                     // share of it in which the devices are idle, on average
  std::vector<double> busy;              // seconds, by device
  std::vector<double> first_forward;     // by stage
  std::vector<std::uint32_t> most_held;  // by stage: microbatches whose activations are held at a time, at most
  std::vector<double> most_weighed;      // by device: the same over its stages, each weighed
};

/// REQUIRES: validate(schedule). `hop_seconds`: what passes between two devices. `weights`: of a held microbatch, by
/// stage.
PipelineRun run(const PipelineSchedule& schedule, const std::vector<StageSeconds>& seconds, double hop_seconds,
                const std::vector<double>& weights);

/// The pieces of all devices in the order in which they begin when nothing has to travel; each comes after those that
/// it waits for, and a device's in its own order. REQUIRES: validate(schedule).
std::vector<PipelineOp> in_order(const PipelineSchedule& schedule, const std::vector<StageSeconds>& seconds);

/// Layers of `count` stages: blocks are shared out as evenly as they go; the lookup table belongs to the first stage,
/// the head to the last. Empty when there are fewer layers than stages.
struct StageLayers {
  LayerIndex first = 0;
  LayerIndex last = 0;  // inclusive
};
std::vector<StageLayers> even_stages(const ModelShape& model, std::size_t count);

/// One row of plan --compare.
struct ComparedSchedule {
  std::string name;  // of INTERFACE's list
  double bubble = 0;
  double tokens_per_second = 0;
  Bytes peak_bytes = 0;  // of the device that needs most
  std::uint32_t stages_per_device = 1;
  bool recompute = false;
  bool fits = false;
};

/// Every schedule on this machine, `plan` itself first. Published ones keep weights and gradients on their devices, the
/// optimizer on the host, and get the number of stages and the recomputation that are quickest among those that fit;
/// their transfers of weights and gradients are taken to be hidden.
std::vector<ComparedSchedule> compare(const Plan& plan, const ModelShape& model, const Workload& work,
                                      const MachineShape& machine);

}  // namespace rondo::partition
