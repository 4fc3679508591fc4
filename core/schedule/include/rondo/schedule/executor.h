// Carries out a plan: the one executor for every schedule, pool and method.
//
// A step ends at its commit point: the last gradient is home, complete and finite, the norm known. Until then nothing
// that lasts has changed. The host optimizer then updates layer by layer on its own thread while the next step's
// forward already begins; each layer waits for its own update alone (staleness 0), and what no update changes comes to
// a device's first visit before the step begins. At staleness 1 (Workload::staleness) a step computes on the weights
// that hold all updates but the last one, so that the next step can begin before this one has ended, and nothing
// drains. Thread rule: one caller. Nothing on the step path allocates after the first step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/devices/device.h"
#include "rondo/devices/profile.h"
#include "rondo/devices/thread_pool.h"
#include "rondo/model/architecture.h"
#include "rondo/offload/boundary_tier.h"
#include "rondo/offload/optimizer.h"
#include "rondo/offload/parameter_store.h"
#include "rondo/partition/plan.h"
#include "rondo/schedule/batch.h"
#include "rondo/schedule/loss_scale.h"
#include "rondo/schedule/trace.h"

namespace rondo::schedule {

/// A pool member as the executor needs it.
struct ExecutorDevice {
  devices::Device* device = nullptr;
  devices::DeviceProfile profile;
};

/// What becomes of a device that fails, hangs or sends what it was not sent.
struct RecoverySettings {
  /// In the plan's order. Without devices a lost one ends the run.
  partition::MachineShape machine;
  partition::PlanRequest request;  // for the plan over those that are left
  /// A device hangs when it has work and finishes nothing for max(this, hang_factor x what the work takes); see
  /// hang_bound.h.
  double hang_seconds = 10;
  double hang_factor = 10;
  bool verify_transfers = false;
  /// A device that falls behind the others gets less to do from the next step on (pace.h). Needs traces, and a pool of
  /// one numerics class: in others the answer would depend on when that happens.
  bool keep_pace = false;

  bool enabled() const { return !machine.devices.empty(); }
};

/// Everything outlives the executor. A device that hung must not be destroyed before the program ends, unless its
/// destructor makes it let go: one of its threads may be inside.
struct ExecutorParts {
  const model::Architecture* model = nullptr;
  const partition::Plan* plan = nullptr;
  const partition::ModelShape* shape = nullptr;
  partition::Workload work;
  std::vector<ExecutorDevice> devices;  // in the plan's order
  offload::ParameterStore* parameters = nullptr;
  devices::ThreadPool* threads = nullptr;
  offload::OptimizerSettings optimizer;
  devices::HostProfile host;           // times of the optimizer and the disk on pools without arithmetic
  std::filesystem::path disk_folder;   // for boundaries, where the plan has them on disk
  std::vector<std::uint32_t> buckets;  // that microbatches may have; sorted
  std::size_t trace_spans = 0;         // kept for each device
  Traced traced = Traced::kAll;
  RecoverySettings recovery;
};

/// What one update needs beside the gradients.
struct UpdateSettings {
  double learning_rate = 0;
  double max_grad_norm = 0;  // 0: no clipping
};

struct StepResult {
  double loss_sum = 0;  // over all targets of the step
  std::uint64_t target_tokens = 0;
  double grad_norm = 0;     // of the mean loss' gradient, before clipping
  bool skipped = false;     // nothing was updated: no targets, or
  bool overflowed = false;  // in fp16 a gradient was not finite
  double loss_scale = 1;    // that the step computed with
};

/// What the last step that train() or evaluate() ran has shown, also where it failed.
struct LastStep {
  std::vector<double> losses;  // by microbatch: sums over its targets
  bool finite = true;          // losses and gradients
};

class StepExecutor {
 public:
  /// Allocates all device memory and compiles all programs. Errors: ResourceExhausted, Unimplemented, as the devices
  /// say.
  static absl::StatusOr<std::unique_ptr<StepExecutor>> make(const ExecutorParts& parts);
  ~StepExecutor();

  /// Runs one step over `microbatches` (at most the plan's) up to the commit point and starts the update. When a device
  /// is lost another one takes over what it has not finished, or the step is repeated where none has the memory; the
  /// next step follows a new plan. A number that is not finite has the step repeated elsewhere, once; in fp16 the step
  /// is skipped and the loss scale halves, until that is kLeastLossScale.
  /// Errors: Unavailable when the last device is lost, ResourceExhausted when those left cannot hold the run, Internal
  /// naming the parameter whose gradient is not finite, or (without recovery) what a device said. After an error the
  /// executor is of no further use and the parameters are those of the step before.
  absl::StatusOr<StepResult> train(const std::vector<Microbatch>& microbatches, const UpdateSettings& settings);

  /// The two halves of train(). At staleness 1 a second step may begin before the first is finished; which weights a
  /// step computes on does not depend on it. `last`: no other step is expected, for which devices would bring weights
  /// ahead. REQUIRES: begin(): at most `staleness` steps are begun and not finished; finish(): one is.
  void begin(const std::vector<Microbatch>& microbatches, bool last = false);
  absl::StatusOr<StepResult> finish(const UpdateSettings& settings);

  /// Loss of up to the plan's number of microbatches with the newest weights, nothing else. REQUIRES: no step is begun
  /// and not finished.
  absl::StatusOr<StepResult> evaluate(const std::vector<Microbatch>& microbatches);

  /// Ends a step under way: train() then returns Cancelled, unless the step was committed. From any thread.
  void abandon();

  /// Waits for the last update.
  void wait_for_update();
  /// The same; then the parameters may be read, if update_status() is OK.
  void drain_and_wait();
  /// Not OK when an update could not be finished (the disk failed): the parameters are of no use.
  absl::Status update_status() const;

  /// Optimizer updates made so far; settable for a resumed run, before the first step.
  std::uint64_t updates() const;
  void set_updates(std::uint64_t updates);
  /// What the next step goes on from; settable likewise.
  const RunCourse& course() const;
  void set_course(const RunCourse& course);
  /// Steps of the run before the first of this executor: notes and errors count on from them.
  void set_steps(std::uint64_t steps);

  /// Slots that were run again and transfers that were sent again, since the start.
  std::uint64_t retries() const;
  /// In the order of their loss.
  std::vector<partition::DeviceIndex> lost_devices() const;
  const LastStep& last_step() const;
  /// One line for each thing of which the user should know, since the last call.
  std::vector<std::string> take_notes();
  /// What the next step follows; another one than at the start when a device was lost.
  const partition::Plan& plan() const;

  /// Most bytes in use on each device, in the plan's order.
  std::vector<Bytes> peak_bytes() const;
  /// What boundaries on disk have moved since the workers were made.
  offload::BoundaryTier::Stats boundary_traffic() const;
  /// Seconds that each device has computed since the start, in the plan's order. To be asked between steps.
  std::vector<double> compute_seconds() const;
  /// One for each used device. To be read between steps.
  std::vector<const DeviceTrace*> traces() const;
  void clear_traces();
  /// The same spans, taken out without copying, so that they can be looked at while the next step runs; see
  /// DeviceTrace::take(). Spans past a trace's capacity are lost: `dropped` counts them.
  struct TakenSpans {
    std::string device;
    std::vector<TraceSpan> spans;
    std::size_t count = 0;
  };
  void take_spans(std::vector<TakenSpans>& devices, std::size_t& dropped);

 private:
  class Impl;
  explicit StepExecutor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::schedule
