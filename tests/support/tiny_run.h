// Steps of a small model over any pool and plan.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/devices/pool.h"
#include "rondo/model/architecture.h"
#include "rondo/offload/parameter_store.h"
#include "rondo/partition/plan.h"
#include "rondo/schedule/executor.h"

namespace rondo::tiny {

// Relative, fp32: other orders of the same sums.
inline constexpr double kLossTolerance = 1e-6;
inline constexpr double kNormTolerance = 1e-5;

/// What the numbers may depend on.
struct Job {
  std::vector<std::vector<schedule::Microbatch>> steps;
  std::uint32_t reduction_group = 16;
  std::uint32_t staleness = 0;
  double loss_scale = schedule::kFirstLossScale;  // of the first step, in fp16
  offload::OptimizerSettings optimizer{0.9, 0.999, 1e-8, 0.01};
  std::function<void(const model::Architecture&, offload::ParameterStore&)> fill;
};

/// First layers of the slots of a plan written by hand, dealt to the devices in turn.
struct Stages {
  std::vector<partition::LayerIndex> forward;   // rising from 0; empty: the fused slot begins at 0
  partition::LayerIndex fused = 0;              // it ends at the last layer
  std::vector<partition::LayerIndex> backward;  // falling
};
/// Each layer by itself, up and down.
Stages one_layer_each(const model::Architecture& model);

/// For Placement::hang_seconds where devices fail as `fail_at` says. Programs take milliseconds here, a hundred times
/// that with sanitizers on a busy machine: a device that is not told to hang must not be taken for one that does.
double hang_seconds_for(std::string_view fail_at);

/// What they must not depend on.
struct Placement {
  std::string name;
  std::string devices = "cpu";
  std::uint32_t threads = 1;
  std::optional<partition::Keep> keep = std::nullopt;
  std::optional<Stages> stages = std::nullopt;                    // none: the planner decides
  std::uint32_t microbatches_per_round = 0;                       // 0: one round, or as the planner decides
  std::optional<partition::LayerIndex> disk_from = std::nullopt;  // first layer whose state lies on disk
  /// Boundaries on disk, behind so many working buffers more than the fewest possible.
  std::optional<std::uint32_t> boundaries_on_disk = std::nullopt;
  std::string memory_limit = "";  // "NAME=BYTES"
  std::uint32_t stays = 0;  // of stages written by hand: the weights of every n-th layer stay on their devices; 0: none
  std::size_t trace_spans = 0;
  std::function<void(std::vector<devices::PoolMember>&)> change_pool = {};  // once it is open
  bool recover = false;                                                     // go on without devices that are lost
  double hang_seconds = 10;
  bool verify_transfers = false;
  bool ahead = false;  // at staleness 1: trace_of() begins a step before the one before it is finished
  partition::Schedule schedule = partition::Schedule::kRoundPipe;  // of what the planner decides
  bool holds_state = false;                                        // the only device, of all that is trained
};
inline void PrintTo(const Placement& placement, std::ostream* stream) { *stream << placement.name; }

class TinyRun {
 public:
  /// `model` and `job` outlive the run. Errors: those of the rooms.
  static absl::StatusOr<std::unique_ptr<TinyRun>> make(const model::Architecture& model, const Job& job,
                                                       const Placement& placement);

  absl::StatusOr<schedule::StepResult> train(std::size_t step, double learning_rate = 1e-2);
  schedule::StepExecutor& executor() { return *executor_; }
  offload::ParameterStore& store() { return *store_; }
  const partition::Plan& plan() const { return plan_; }
  devices::Device& device(std::size_t i) { return *pool_[i].device; }
  void destroy_executor() { executor_.reset(); }
  /// Devices with slots.
  std::size_t used_devices() const;
  /// Waits for the last update; see bytes_of().
  std::string bytes();

 private:
  TinyRun(const model::Architecture& model, const Job& job) : model_(model), job_(job) {}
  absl::Status prepare(const Placement& placement);
  absl::Status make_plan(const Placement& placement, const partition::MachineShape& machine);

  const model::Architecture& model_;
  const Job& job_;
  std::unique_ptr<devices::ThreadPool> threads_;
  std::vector<devices::PoolMember> pool_;
  partition::ModelShape shape_;
  partition::Workload work_;
  partition::Plan plan_;
  std::optional<offload::ParameterStore> store_;
  std::unique_ptr<schedule::StepExecutor> executor_;
};

/// Where runs with state on disk keep it.
std::filesystem::path disk_folder();

/// Everything that two runs of one job must agree in.
struct Trace {
  std::vector<double> loss_sums;
  std::vector<double> norms;
  std::string bytes;
  offload::BoundaryTier::Stats boundary_traffic;
};
/// All steps of the job; a test fails where one does.
Trace trace_of(const model::Architecture& model, const Job& job, const Placement& placement);

/// Runs the first `steps` steps and leaves their checkpoint in `folder`; a fatal failure where that cannot be done.
void run_to_checkpoint(const model::Architecture& model, const Job& job, const Placement& placement, std::size_t steps,
                       const std::filesystem::path& folder);

/// The job as it goes on from a checkpoint: the state is read before the disk's passes begin, as a run does it.
Job resumed_from(const Job& job, const std::filesystem::path& checkpoint);

}  // namespace rondo::tiny
