// Behind timed_pool.h: the scene, the run, and what its trace says.
#include "timed_pool.h"

#include <algorithm>
#include <limits>

#include "rondo/base/status.h"
#include "rondo/devices/emulated/emulated_device.h"
#include "rondo/schedule/executor.h"
#include "rondo/schedule/shape.h"

namespace rondo::timed {
namespace {

constexpr std::uint32_t kTokens = 64;
constexpr std::uint32_t kWidth = 1536;
constexpr std::uint32_t kForwardSlots = 2;
constexpr std::uint32_t kForwardHalves = 6;
constexpr std::uint32_t kBackwardHalves = 2;
constexpr std::uint32_t kBlocks = kForwardSlots * kForwardHalves / 2;
constexpr std::uint32_t kHead = 2 * kBlocks + 1;

/// a = 4 h^2 (q, k, v and o), m = 3 h 3 h = 9 h^2, and the head's vocabulary of 13 h.
model::ModelConfig config() {
  model::ModelConfig config;
  config.family = model::Family::kLlama;
  config.model_type = "llama";
  config.hidden_size = kWidth;
  config.intermediate_size = 3 * kWidth;
  config.num_layers = kBlocks;
  config.num_heads = 12;
  config.num_kv_heads = 12;
  config.head_dim = 128;
  config.vocab_size = 13 * kWidth;
  config.max_positions = kTokens;
  config.sliding_window.assign(kBlocks, 0);
  return config;
}

devices::HostProfile host() {
  devices::HostProfile host;
  host.memory_bytes = Bytes{64} << 30U;
  host.memory_bandwidth = 400e9;
  host.optimizer_parameters_per_second = 1e11;
  return host;
}

devices::DeviceProfile card(double flops, double jitter) {
  devices::DeviceProfile card;
  card.name = "equal";
  card.flops = {{devices::DType::kFloat32, flops}, {devices::DType::kBfloat16, flops}};
  card.memory_bytes = Bytes{24} << 30U;
  card.memory_bandwidth = 1e16;
  card.link_up = 50e9;
  card.link_down = 50e9;
  card.link_latency_seconds = 5e-6;
  card.jitter = jitter;
  return card;
}

std::vector<partition::Slot> stages() {
  using partition::SlotPhase;
  std::vector<partition::Slot> slots;
  for (std::uint32_t i = 0; i < kForwardSlots; ++i) {
    const std::uint32_t first = 1 + i * kForwardHalves;
    slots.push_back({SlotPhase::kForward, i == 0 ? 0 : first, first + kForwardHalves - 1, 0, 0, 0});
  }
  slots.push_back({SlotPhase::kFused, kHead, kHead, 0, 0, 0});
  for (std::uint32_t end = kHead; end > 1; end -= kBackwardHalves) {
    slots.push_back({SlotPhase::kBackward, end - kBackwardHalves, end - 1, 0, 0, 0});
  }
  return slots;
}

void deal(const PoolSetup& setup, Scene& scene) {
  scene.plan.keep = partition::Keep::kNothing;
  scene.plan.reduction_group = scene.work.reduction_group;
  std::uint32_t cursor = 0;
  for (std::uint32_t round = 0; round < setup.rounds; ++round) {
    scene.plan.rounds.push_back({round * setup.microbatches_per_round, setup.microbatches_per_round});
    for (partition::Slot slot : stages()) {
      slot.round = round;
      slot.device = cursor++ % setup.devices;
      slot.seconds =
          partition::slot_seconds(scene.shape, scene.work, scene.machine.devices[slot.device], slot, scene.plan.keep);
      scene.plan.slots.push_back(slot);
    }
  }
  for (const partition::DeviceShape& device : scene.machine.devices) {
    partition::DevicePlan entry;
    entry.name = device.name;
    entry.budget_bytes = device.budget_bytes;
    scene.plan.devices.push_back(entry);
  }
}

std::vector<schedule::Microbatch> batches(std::uint32_t count) {
  schedule::Microbatch batch;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(kTokens); ++i) {
    batch.ids.push_back(i);
    batch.positions.push_back(i);
    batch.targets.push_back(i);
    batch.keys.push_back(0);
  }
  batch.bounds = {0, static_cast<std::int32_t>(kTokens)};
  batch.target_tokens = kTokens;
  return std::vector<schedule::Microbatch>(count, batch);
}

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

/// One device's compute in one step.
struct Work {
  Clock::time_point begin = Clock::time_point::max();
  Clock::time_point end = Clock::time_point::min();
  double busy = 0;
  void take(Clock::time_point from, Clock::time_point to) {
    begin = std::min(begin, from);
    end = std::max(end, to);
    busy += seconds(to - from);
  }
};

/// One step: what each device did in it, and when the step before it had ended on all of them.
Measured measure_step(const std::vector<Work>& devices, const Work& all, Clock::time_point previous_end) {
  Measured result;
  const double period = seconds(all.end - previous_end);
  result.commit = seconds(all.begin - previous_end) / period;
  const double area = period * static_cast<double>(devices.size());
  double busy = 0;
  for (const Work& work : devices) {
    busy += work.busy / area;
    result.edges += seconds((work.begin - all.begin) + (all.end - work.end)) / area;
    result.stalls += (seconds(work.end - work.begin) - work.busy) / area;
  }
  result.bubble = 1 - busy;
  return result;
}

/// Of the steps after the first the one whose bubble is the median (of an even number the larger of the two).
Measured measure(const std::vector<const schedule::DeviceTrace*>& traces, std::uint32_t steps) {
  std::vector<std::vector<Work>> works(steps + 1, std::vector<Work>(traces.size()));
  std::vector<Work> all(steps + 1);
  for (std::size_t device = 0; device < traces.size(); ++device) {
    for (const schedule::TraceSpan& span : traces[device]->spans()) {
      if (span.role != devices::QueueRole::kCompute) continue;
      works[span.tag.step][device].take(span.begin, span.end);
      all[span.tag.step].take(span.begin, span.end);
    }
  }
  std::vector<Measured> measured;
  for (std::uint32_t step = 2; step <= steps; ++step) {
    measured.push_back(measure_step(works[step], all[step], all[step - 1].end));
  }
  const auto median = measured.begin() + static_cast<std::ptrdiff_t>(measured.size() / 2);
  std::nth_element(measured.begin(), median, measured.end(),
                   [](const Measured& a, const Measured& b) { return a.bubble < b.bubble; });
  return *median;
}

}  // namespace

double closed_form(std::uint32_t devices, std::uint32_t slots, std::uint32_t microbatches) {
  const double edges = static_cast<double>(devices) * (devices - 1);
  return edges / (static_cast<double>(microbatches) * slots + edges);
}

absl::StatusOr<Scene> make_scene(const PoolSetup& setup) {
  Scene scene;
  model::MethodSpec method;
  method.train_weights = true;
  RONDO_ASSIGN_OR_RETURN(model::Architecture model, model::Architecture::make(config(), method));
  scene.model = std::make_unique<model::Architecture>(std::move(model));
  scene.shape = schedule::describe_model(*scene.model, kTokens, kTokens);
  scene.work = schedule::describe_workload(*scene.model, kTokens, kTokens, setup.rounds * setup.microbatches_per_round,
                                           setup.microbatches_per_round);
  double flops = 0;
  for (std::uint32_t layer = 1; layer <= kForwardHalves; ++layer) flops += scene.shape.layers[layer].forward.flops();
  for (std::uint32_t i = 0; i < setup.devices; ++i) {
    const devices::DeviceProfile profile = card(flops / setup.slot_seconds, setup.jitter);
    scene.machine.devices.push_back({"timed:equal:" + std::to_string(i), profile, profile.memory_bytes, false, 0});
  }
  scene.machine.host = host();
  scene.machine.host_budget_bytes = scene.machine.host.memory_bytes;
  deal(setup, scene);
  RONDO_RETURN_IF_ERROR(partition::validate(scene.plan, scene.shape, scene.work, scene.machine));
  return scene;
}

absl::StatusOr<Outcome> run(const PoolSetup& setup) {
  RONDO_ASSIGN_OR_RETURN(Scene scene, make_scene(setup));
  Outcome outcome;
  outcome.slots = static_cast<std::uint32_t>(scene.plan.slots.size());
  outcome.predicted = partition::simulate(scene.plan, scene.shape, scene.work, scene.machine, 3).prediction;
  scene.plan.predicted = outcome.predicted;
  outcome.closed_form = closed_form(setup.devices, outcome.slots, setup.microbatches_per_round);
  double work = 0;
  double longest = 0;
  for (const partition::Slot& slot : scene.plan.slots) {
    work += slot.seconds * setup.microbatches_per_round;
    longest = std::max(longest, slot.seconds);
  }
  const double edges = longest * (setup.devices - 1);
  const double period = work / setup.devices + edges + outcome.predicted.commit_seconds;
  outcome.expected = outcome.closed_form + outcome.predicted.commit_seconds / period;

  devices::ThreadPool threads(1);
  RONDO_ASSIGN_OR_RETURN(
      offload::ParameterStore store,
      offload::ParameterStore::make(schedule::parameter_specs(*scene.model), devices::DType::kBfloat16, true));
  std::vector<std::unique_ptr<devices::Device>> cards;
  schedule::ExecutorParts parts;
  for (const partition::DeviceShape& device : scene.machine.devices) {
    devices::emulated::CardOptions options;
    options.name = device.name;
    options.profile = device.profile;
    options.seed = cards.size();
    RONDO_ASSIGN_OR_RETURN(std::unique_ptr<devices::Device> card, devices::emulated::open_timed(options));
    parts.devices.push_back({card.get(), device.profile});
    cards.push_back(std::move(card));
  }
  parts.model = scene.model.get();
  parts.plan = &scene.plan;
  parts.shape = &scene.shape;
  parts.work = scene.work;
  parts.parameters = &store;
  parts.threads = &threads;
  parts.host = scene.machine.host;
  parts.buckets = {devices::token_bucket(kTokens)};
  parts.trace_spans = std::size_t{1} << 17U;
  RONDO_ASSIGN_OR_RETURN(const auto executor, schedule::StepExecutor::make(parts));
  const std::vector<schedule::Microbatch> step = batches(scene.work.microbatches);
  for (std::uint32_t i = 0; i < setup.steps; ++i) RONDO_RETURN_IF_ERROR(executor->train(step, {1e-3, 1.0}).status());
  executor->drain_and_wait();
  outcome.measured = measure(executor->traces(), setup.steps);
  if (!setup.trace.empty()) RONDO_RETURN_IF_ERROR(schedule::write_trace(setup.trace, executor->traces(), scene.plan));
  return outcome;
}

}  // namespace rondo::timed
