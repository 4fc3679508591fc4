// A plan: who runs which layers of which microbatches when, what it takes, and the functions that make, check and
// predict it.
//
// Everything here is a pure function of its arguments: no threads, no I/O, no clocks, no randomness.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/partition/shape.h"

namespace rondo::partition {

/// kWeightGradient: what a fused or backward slot of the same layers and round has left for later.
enum class SlotPhase : std::uint8_t { kForward, kFused, kBackward, kWeightGradient };
constexpr std::size_t kSlotPhases = 4;
const char* name_of(SlotPhase phase);

/// One visit: contiguous layers, run for every microbatch of a round.
struct Slot {
  SlotPhase phase = SlotPhase::kForward;
  LayerIndex first_layer = 0;  // inclusive
  LayerIndex last_layer = 0;   // inclusive; a fused slot's is the model's last
  DeviceIndex device = 0;
  std::uint32_t round = 0;
  double seconds = 0;  // compute time of one microbatch on its device
  /// Its sums of gradients stay on the device: their reduction group goes on with the next round. Never of forward
  /// slots.
  bool group_goes_on = false;
  /// Of a fused or backward slot: gradients of matrices and biases wait for a kWeightGradient slot on the same device.
  /// Of the head they never do. Such slots run one microbatch.
  bool defers_weights = false;
};

/// Consecutive microbatches that a slot runs in one visit: whole reduction groups, or a part of one.
struct Round {
  std::uint32_t first_microbatch = 0;
  std::uint32_t microbatches = 0;
};

/// What make_plan() can deal and the executor carry out. Others exist as data (schedules.h), to compare with.
enum class Schedule : std::uint8_t {
  kRoundPipe,           // slots of unlike sizes, dealt to whoever is best
  kGPipe,               // one stage a device, all forwards of a round, then all backwards; the last stage is fused
  kLoopedBreadthFirst,  // likewise with several stages a device, dealt in loops
  kOneFOneB,            // one stage a device, forward and backward in turn after a warm-up; rounds are short
  kInterleaved,         // likewise with several stages a device, in groups of as many rounds as devices
  kZeroBubbleH1,        // as kOneFOneB, gradients of weights fill the gaps; rounds of one microbatch
  kZeroBubbleV,         // likewise with two stages a device, in the shape of a V
};
/// "roundpipe", "gpipe", "looped_bfs", "1f1b", "interleaved", "zb_h1", "zb_v".
const char* name_of(Schedule schedule);
std::optional<Schedule> executable_schedule(std::string_view name);

/// Bytes by purpose ("weights", "activations", ...); the sum is the total.
using MemoryTable = std::vector<std::pair<std::string, Bytes>>;
Bytes total_of(const MemoryTable& table);

struct DevicePlan {
  std::string name;
  MemoryTable memory;
  Bytes peak_bytes = 0;  // sum of `memory`
  Bytes budget_bytes = 0;
  double busy = 0;             // share of the step in which its compute queue works
  std::string unused_because;  // empty when it has slots
};

struct Prediction {
  double step_seconds = 0;  // between the ends of consecutive steps, in the steady state
  double tokens_per_second = 0;
  double bubble = 0;
  /// That no plan over this pool can beat, were memory, links and the host no limit; filled in by make_plan.
  double least_step_seconds = 0;
  double commit_seconds = 0;  // of step_seconds: from the last gradient's arrival to the next step's first op
  std::string limited_by;     // compute, link, host_memory, optimizer, disk; filled in by make_plan
  /// What keeps the step from being shorter and what to change, a sentence each; filled in by make_plan.
  std::vector<std::string> advice;
};

inline constexpr LayerIndex kNoLayer = ~LayerIndex{0};

/// Bytes that a step moves between memory and disk. State is read and written whole, boundaries as far as their
/// buffers do not suffice.
struct DiskTraffic {
  Bytes state_bytes = 0;  // each way
  Bytes boundaries_written = 0;
  Bytes boundaries_read = 0;
  Bytes total() const { return 2 * state_bytes + boundaries_written + boundaries_read; }
};

struct Plan {
  Schedule schedule = Schedule::kRoundPipe;
  Keep keep = Keep::kSelective;
  std::uint32_t reduction_group = 1;
  std::vector<Round> rounds;
  std::vector<Slot> slots;  // of one step, in dealing order
  /// By device: layers whose weights stay there from visit to visit, rising. The weights of all others arrive anew for
  /// every visit. Devices past the end keep none.
  std::vector<std::vector<LayerIndex>> resident;
  std::vector<DevicePlan> devices;
  MemoryTable host;
  Bytes host_peak_bytes = 0;
  /// Masters and moments of this layer and all deeper ones lie on disk: updates begin with the others, while those are
  /// read.
  LayerIndex first_layer_on_disk = kNoLayer;
  /// Boundaries lie on disk behind so many working buffers in memory; 0: all of them are in memory.
  std::uint32_t boundary_buffers = 0;
  MemoryTable disk;      // what lies there, by purpose
  Bytes disk_bytes = 0;  // sum of `disk`
  DiskTraffic disk_traffic;
  Prediction predicted;
};

/// What stays on a device.
std::vector<LayerIndex> residents_of(const Plan& plan, DeviceIndex device);

/// What the user may ask for; the rest is decided.
struct PlanRequest {
  std::optional<Keep> keep;  // `recompute`
  Schedule schedule = Schedule::kRoundPipe;
  std::uint32_t microbatches_per_round = 0;  // 0: decided; zero-bubble schedules always have one
};

/// The best plan that fits. Errors: ResourceExhausted naming device or host, what it would need, what there is and what
/// to change (a smaller cutoff_len, the largest reduction group that fits, another recompute).
absl::StatusOr<Plan> make_plan(const ModelShape& model, const Workload& work, const MachineShape& machine,
                               const PlanRequest& request);

/// The plan finishes (every slot waits only for slots before it), fits every budget, visits every layer once a round in
/// each direction, comes back to what it defers, and adds gradients in order, each reduction group's on one device.
/// Errors: InvalidArgument naming the slot.
absl::Status validate(const Plan& plan, const ModelShape& model, const Workload& work, const MachineShape& machine);

/// Seconds of one microbatch of a slot on `device`, whichever its own (roofline: the larger of arithmetic and memory,
/// op class by layer).
double slot_seconds(const ModelShape& model, const Workload& work, const DeviceShape& device, const Slot& slot,
                    Keep keep);

/// Device memory that its slots take, by purpose, exactly as the executor lays it out (layout.h), and what the backend
/// holds. `resident`: layers whose weights stay there.
MemoryTable device_memory(const ModelShape& model, const Workload& work, const DeviceShape& device, DeviceIndex index,
                          const std::vector<Slot>& slots, Keep keep, const std::vector<LayerIndex>& resident = {});
/// Of host memory, by purpose: what is held of it whatever the plan, and what devices with slots take beside their own.
MemoryTable host_taken(const MachineShape& machine, const std::vector<Slot>& slots);
/// Host memory of the whole plan: the model's own, boundaries, batches, staging, host_taken().
MemoryTable host_memory(const ModelShape& model, const Workload& work, const MachineShape& machine,
                        const std::vector<Slot>& slots, const std::vector<Round>& rounds, Keep keep,
                        LayerIndex first_layer_on_disk = kNoLayer, std::uint32_t boundary_buffers = 0);
/// Of a layer's update; where its state lies on disk, at least of reading and writing that.
double update_seconds(const ModelShape& model, const devices::HostProfile& host, LayerIndex layer,
                      LayerIndex first_layer_on_disk);
/// Bytes on disk of the state of a layer and all deeper ones.
Bytes disk_bytes_from(const ModelShape& model, LayerIndex first);
/// Host memory that no plan does without, by purpose: neither boundaries nor what devices take is among it. As much
/// state as helps lies on a disk of so many bytes; 0: there is none.
MemoryTable least_host_memory(const ModelShape& model, const Workload& work, const MachineShape& machine,
                              Bytes disk_budget_bytes);
/// The deepest layers, as few as may be, whose state must go to disk so that the rest is within the host's budget;
/// kNoLayer when none need, 0 when all are not enough or the disk is too small.
LayerIndex choose_disk_layers(const ModelShape& model, const MachineShape& machine, const MemoryTable& host);

/// What of a plan goes to disk so that the rest is within the host's budget: state of the deepest layers, as few as may
/// be, and only when all state that the disk can hold is not enough, the boundaries, behind as many buffers as memory
/// then holds. State moves twice a step for each byte that it leaves free, a boundary's buffer would have been used
/// rounds / 2 times a step: so state costs no more traffic, and less with several rounds. `host`: with everything in
/// memory. Nothing goes where nothing need or where all of it would not help. Buffers leave a thirty-second of the
/// budget free, and 1.5 MiB at least, where that leaves enough of them.
struct DiskChoice {
  LayerIndex first_layer = kNoLayer;
  std::uint32_t boundary_buffers = 0;
};
DiskChoice choose_disk(const ModelShape& model, const Workload& work, const MachineShape& machine,
                       const std::vector<Slot>& slots, const std::vector<Round>& rounds, const MemoryTable& host);
/// What the plan's choice puts there, by purpose.
MemoryTable disk_memory(const Plan& plan, const ModelShape& model, const Workload& work);
/// Its traffic, if slots ran one after another and buffers were always taken from what is read last.
DiskTraffic disk_traffic(const Plan& plan, const ModelShape& model, const Workload& work);

/// One piece of simulated or measured work, for timelines.
struct Span {
  DeviceIndex device = 0;
  std::uint32_t step = 0;
  std::uint32_t slot = 0;  // index into Plan::slots
  std::uint32_t microbatch = 0;
  double begin = 0;  // seconds
  double end = 0;
};

struct Simulation {
  std::vector<Span> compute;
  Prediction prediction;
  std::vector<double> busy;  // by device
  std::uint64_t events = 0;
};

/// Discrete-event simulation of `steps` consecutive steps in the steady state: compute queues, both directions of every
/// link (latency, bandwidth, activations before weights and gradients, roots shared fairly), buffers of microbatches,
/// weights and gradients, host optimizer by layer with its bandwidth. At staleness 1 a step computes on the weights of
/// the step before last and nothing drains. Deterministic.
Simulation simulate(const Plan& plan, const ModelShape& model, const Workload& work, const MachineShape& machine,
                    std::uint32_t steps);

/// What the plan predicts of steps that have only their first `microbatches`, as those of few data do. As planned where
/// there are no fewer, and where a reduction group would not end for the slots that are left.
Prediction predict_short_steps(const Plan& plan, const ModelShape& model, const Workload& work,
                               const MachineShape& machine, std::uint32_t microbatches);

}  // namespace rondo::partition
