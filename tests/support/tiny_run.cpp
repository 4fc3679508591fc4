#include "tiny_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "patience.h"
#include "rondo/base/status.h"
#include "rondo/partition/layout.h"
#include "rondo/schedule/shape.h"
#include "rondo/train/checkpoint.h"
#include "tiny_model.h"

namespace rondo::tiny {
namespace {

constexpr schedule::UpdateSettings kUpdate{1e-2, 1.0};

using partition::Slot;
using partition::SlotPhase;

std::vector<Slot> slots_of(const Stages& stages, partition::LayerIndex layers) {
  std::vector<Slot> slots;
  const auto add = [&slots](SlotPhase phase, partition::LayerIndex first, partition::LayerIndex end) {
    Slot slot;
    slot.phase = phase;
    slot.first_layer = first;
    slot.last_layer = end - 1;
    slots.push_back(slot);
  };
  for (std::size_t i = 0; i < stages.forward.size(); ++i) {
    add(SlotPhase::kForward, stages.forward[i], i + 1 < stages.forward.size() ? stages.forward[i + 1] : stages.fused);
  }
  add(SlotPhase::kFused, stages.fused, layers);
  partition::LayerIndex end = stages.fused;
  for (const partition::LayerIndex first : stages.backward) {
    add(SlotPhase::kBackward, first, end);
    end = first;
  }
  return slots;
}

}  // namespace

std::filesystem::path disk_folder() {
  return std::filesystem::path(testing::TempDir()) / fmt::format("rondo_disk_{}", ::getpid());
}

Stages one_layer_each(const model::Architecture& model) {
  Stages stages;
  const auto head = static_cast<partition::LayerIndex>(model.layers().size() - 1);
  for (partition::LayerIndex layer = 0; layer < head; ++layer) stages.forward.push_back(layer);
  stages.fused = head;
  for (partition::LayerIndex layer = head - 1; layer >= std::max(1U, model.first_backward_layer()); --layer) {
    stages.backward.push_back(layer);
  }
  return stages;
}

double hang_seconds_for(std::string_view fail_at) {
  return fail_at.find("hang") == std::string_view::npos ? 60 : test::kSlowdown;
}

absl::StatusOr<std::unique_ptr<TinyRun>> TinyRun::make(const model::Architecture& model, const Job& job,
                                                       const Placement& placement) {
  auto run = std::unique_ptr<TinyRun>(new TinyRun(model, job));
  RONDO_RETURN_IF_ERROR(run->prepare(placement));
  return run;
}

absl::Status TinyRun::prepare(const Placement& placement) {
  std::uint32_t longest = 0;
  std::uint32_t most = 0;
  std::set<std::uint32_t> buckets;
  for (const auto& step : job_.steps) {
    most = std::max(most, static_cast<std::uint32_t>(step.size()));
    for (const schedule::Microbatch& batch : step) {
      const auto tokens = static_cast<std::uint32_t>(batch.ids.size());
      longest = std::max(longest, tokens);
      buckets.insert(devices::token_bucket(tokens));
    }
  }
  threads_ = std::make_unique<devices::ThreadPool>(placement.threads);
  // RONDO_TEST_DEVICES: the pool that takes the CPU's place, to run the same cases on a real card.
  const char* instead = std::getenv("RONDO_TEST_DEVICES");
  const std::string pool = instead != nullptr && placement.devices == "cpu" ? instead : placement.devices;
  RONDO_ASSIGN_OR_RETURN(pool_, devices::open_pool({pool, placement.memory_limit}, *threads_));
  if (placement.change_pool) placement.change_pool(pool_);
  partition::MachineShape machine;
  machine.host = {8_GiB, 1e10, 1e9, 0};
  machine.host_budget_bytes = 1_GiB;
  schedule::ExecutorParts parts;
  for (const devices::PoolMember& member : pool_) {
    const devices::DeviceCaps& caps = member.device->caps();
    machine.devices.push_back(
        {caps.name, member.profile, caps.memory_bytes, caps.unified_memory, caps.weights_in_place, false});
    parts.devices.push_back({member.device.get(), member.profile});
  }
  shape_ = schedule::describe_model(model_, longest, longest, job_.staleness, job_.optimizer,
                                    {buckets.begin(), buckets.end()});
  work_ = schedule::describe_workload(model_, longest, longest, most, std::min(job_.reduction_group, most));
  work_.staleness = job_.staleness;
  if (placement.holds_state) shape_ = partition::hold_state(std::move(shape_));
  RONDO_RETURN_IF_ERROR(make_plan(placement, machine));
  if (placement.disk_from || placement.boundaries_on_disk) {
    plan_.first_layer_on_disk = placement.disk_from.value_or(partition::kNoLayer);
    if (placement.boundaries_on_disk) {
      plan_.boundary_buffers =
          partition::least_boundary_buffers(machine, shape_, plan_.slots) + *placement.boundaries_on_disk;
    }
    plan_.disk = partition::disk_memory(plan_, shape_, work_);
    plan_.disk_bytes = partition::total_of(plan_.disk);
    plan_.disk_traffic = partition::disk_traffic(plan_, shape_, work_);
    machine.disk_budget_bytes = 1_GiB;
    RONDO_RETURN_IF_ERROR(partition::validate(plan_, shape_, work_, machine));
  }
  RONDO_ASSIGN_OR_RETURN(store_, offload::ParameterStore::make(
                                     schedule::parameter_specs(model_, job_.optimizer), model_.method().dtype, false,
                                     {disk_folder(), schedule::parameters_on_disk(model_, plan_)}, 1 + job_.staleness));
  job_.fill(model_, *store_);
  parts.model = &model_;
  parts.plan = &plan_;
  parts.shape = &shape_;
  parts.work = work_;
  parts.parameters = &*store_;
  parts.threads = threads_.get();
  parts.optimizer = job_.optimizer;
  parts.host = machine.host;
  parts.disk_folder = disk_folder();
  parts.buckets.assign(buckets.begin(), buckets.end());
  parts.trace_spans = placement.trace_spans;
  if (placement.recover) {
    parts.recovery.machine = machine;
    // What is planned without lost devices must not find room for all boundaries either.
    const Bytes needed =
        partition::total_of(partition::host_memory(shape_, work_, machine, plan_.slots, plan_.rounds, plan_.keep,
                                                   plan_.first_layer_on_disk, plan_.boundary_buffers));
    if (placement.boundaries_on_disk) parts.recovery.machine.host_budget_bytes = needed;
  }
  parts.recovery.request.keep = placement.keep;
  parts.recovery.request.schedule = placement.schedule;
  parts.recovery.request.microbatches_per_round = placement.microbatches_per_round;
  parts.recovery.hang_seconds = placement.hang_seconds;
  parts.recovery.verify_transfers = placement.verify_transfers;
  RONDO_ASSIGN_OR_RETURN(executor_, schedule::StepExecutor::make(parts));
  schedule::Course start;
  start.loss_scale = job_.loss_scale;
  executor_->set_course({start, start});
  return absl::OkStatus();
}

absl::Status TinyRun::make_plan(const Placement& placement, const partition::MachineShape& machine) {
  if (!placement.stages) {
    partition::PlanRequest request;
    request.keep = placement.keep;
    request.microbatches_per_round = placement.microbatches_per_round;
    request.schedule = placement.schedule;
    RONDO_ASSIGN_OR_RETURN(plan_, partition::make_plan(shape_, work_, machine, request));
    return absl::OkStatus();
  }
  plan_.keep = placement.keep.value_or(partition::Keep::kSelective);
  plan_.reduction_group = work_.reduction_group;
  const std::uint32_t size =
      placement.microbatches_per_round != 0 ? placement.microbatches_per_round : work_.microbatches;
  for (std::uint32_t first = 0; first < work_.microbatches; first += size) {
    const auto round = static_cast<std::uint32_t>(plan_.rounds.size());
    plan_.rounds.push_back({first, std::min(size, work_.microbatches - first)});
    for (Slot slot : slots_of(*placement.stages, static_cast<partition::LayerIndex>(shape_.layers.size()))) {
      slot.device = static_cast<partition::DeviceIndex>(plan_.slots.size() % machine.devices.size());
      slot.round = round;
      plan_.slots.push_back(slot);
    }
  }
  for (partition::DeviceIndex i = 0; placement.stays != 0 && i < machine.devices.size(); ++i) {
    std::vector<partition::LayerIndex>& layers = plan_.resident.emplace_back();
    for (partition::LayerIndex layer = 0; layer < shape_.layers.size(); ++layer) {
      const bool visits = std::ranges::any_of(plan_.slots, [&](const Slot& slot) {
        return slot.device == i && slot.first_layer <= layer && layer <= slot.last_layer;
      });
      if (visits && layer % placement.stays == 0 && machine.devices[i].fetches_weights()) layers.push_back(layer);
    }
  }
  return partition::validate(plan_, shape_, work_, machine);
}

absl::StatusOr<schedule::StepResult> TinyRun::train(std::size_t step, double learning_rate) {
  return executor_->train(job_.steps[step], {learning_rate, kUpdate.max_grad_norm});
}

std::size_t TinyRun::used_devices() const {
  std::set<partition::DeviceIndex> used;
  for (const Slot& slot : plan_.slots) used.insert(slot.device);
  return used.size();
}

std::string TinyRun::bytes() {
  executor_->drain_and_wait();
  return bytes_of(model_, *store_);
}

Trace trace_of(const model::Architecture& model, const Job& job, const Placement& placement) {
  Trace trace;
  auto run = TinyRun::make(model, job, placement);
  if (!run.ok()) {
    ADD_FAILURE() << placement.name << ": " << run.status();
    return trace;
  }
  std::size_t begun = 0;
  for (std::size_t step = 0; step < job.steps.size(); ++step) {
    for (; begun < std::min(step + (placement.ahead ? 2 : 1), job.steps.size()); ++begun) {
      (*run)->executor().begin(job.steps[begun]);
    }
    const auto result = (*run)->executor().finish(kUpdate);
    if (!result.ok()) {
      ADD_FAILURE() << placement.name << ": step " << step << ": " << result.status();
      return trace;
    }
    trace.loss_sums.push_back(result->loss_sum);
    trace.norms.push_back(result->grad_norm);
  }
  trace.boundary_traffic = (*run)->executor().boundary_traffic();
  trace.bytes = (*run)->bytes();
  return trace;
}

void run_to_checkpoint(const model::Architecture& model, const Job& job, const Placement& placement, std::size_t steps,
                       const std::filesystem::path& folder) {
  auto run = TinyRun::make(model, job, placement);
  ASSERT_TRUE(run.ok()) << run.status();
  for (std::size_t step = 0; step < steps; ++step) ASSERT_TRUE((*run)->train(step).ok());
  (*run)->executor().drain_and_wait();
  train::TrainerState state;
  state.global_step = steps;
  state.course = (*run)->executor().course();
  state.scales_loss = model.method().dtype == devices::DType::kFloat16;
  const absl::Status written = train::write_checkpoint(folder, state, model, (*run)->store(), Documents(folder));
  ASSERT_TRUE(written.ok()) << written;
}

Job resumed_from(const Job& job, const std::filesystem::path& checkpoint) {
  Job resumed = job;
  resumed.fill = [fill = job.fill, checkpoint](const model::Architecture& model, offload::ParameterStore& store) {
    fill(model, store);
    const auto state = train::read_checkpoint(checkpoint, model, store);
    ASSERT_TRUE(state.ok()) << state.status();
  };
  return resumed;
}

}  // namespace rondo::tiny
