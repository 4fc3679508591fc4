// Checking schedules and letting them run in simulated time: each device takes its pieces in order, each piece waits
// for what it needs.
#include <algorithm>
#include <array>
#include <limits>

#include "rondo/base/status.h"
#include "rondo/partition/schedules.h"

namespace rondo::partition {
namespace {

constexpr std::size_t kWorks = 5;
constexpr double kNotYet = std::numeric_limits<double>::infinity();

class Runner {
 public:
  Runner(const PipelineSchedule& schedule, double hop_seconds)
      : schedule_(schedule), hop_(hop_seconds), next_(schedule.orders.size(), 0), free_(schedule.orders.size(), 0.0) {
    for (auto& ends : ends_) ends.assign(schedule.device_of_stage.size() * schedule.microbatches, kNotYet);
  }

  /// Calls `took(device, op, begin, end)` for every piece in order of the devices' turns. False: some wait for ever.
  template <typename SecondsOf, typename Took>
  bool run(SecondsOf seconds_of, Took took) {
    bool moved = true;
    std::size_t left = 0;
    for (const auto& order : schedule_.orders) left += order.size();
    while (left > 0 && moved) {
      moved = false;
      for (DeviceIndex device = 0; device < schedule_.orders.size(); ++device) {
        const auto& order = schedule_.orders[device];
        for (; next_[device] < order.size(); ++next_[device]) {
          const PipelineOp& op = order[next_[device]];
          const double ready = ready_at(op);
          if (ready == kNotYet) break;
          const double begin = std::max(ready, free_[device]);
          const double end = begin + seconds_of(op);
          free_[device] = end_of(op.work, op.stage, op.microbatch) = end;
          took(device, op, begin, end);
          moved = true;
          --left;
        }
      }
    }
    return left == 0;
  }
  const std::vector<std::size_t>& next() const { return next_; }

 private:
  double& end_of(Work work, std::uint32_t stage, std::uint32_t microbatch) {
    return ends_[static_cast<std::size_t>(work)][stage * schedule_.microbatches + microbatch];
  }
  double over(Work work, std::uint32_t stage, std::uint32_t microbatch, std::uint32_t at) {
    const double end = end_of(work, stage, microbatch);
    return schedule_.device_of_stage[stage] == schedule_.device_of_stage[at] ? end : end + hop_;
  }
  double ready_at(const PipelineOp& op) {
    const std::uint32_t s = op.stage;
    const std::uint32_t m = op.microbatch;
    const auto last = static_cast<std::uint32_t>(schedule_.device_of_stage.size() - 1);
    switch (op.work) {
      case Work::kForward:
      case Work::kVisit:
        return s == 0 ? 0 : over(op.work, s - 1, m, s);
      case Work::kBackward:
      case Work::kInputGradient:
        return std::max(over(Work::kForward, s, m, s), s == last ? 0 : over(op.work, s + 1, m, s));
      case Work::kWeightGradient:
        return over(Work::kInputGradient, s, m, s);
    }
    return kNotYet;
  }

  const PipelineSchedule& schedule_;
  const double hop_;
  std::vector<std::size_t> next_;
  std::vector<double> free_;
  std::array<std::vector<double>, kWorks> ends_;
};

double seconds_of(const StageSeconds& stage, Work work) {
  switch (work) {
    case Work::kForward:
    case Work::kVisit:
      return stage.forward;
    case Work::kBackward:
      return stage.backward;
    case Work::kInputGradient:
      return stage.input_gradient;
    case Work::kWeightGradient:
      return stage.weight_gradient;
  }
  return 0;
}

const char* name_of(Work work) {
  constexpr const char* kNames[] = {"forward", "backward", "input gradient", "weight gradient", "visit"};
  return kNames[static_cast<std::size_t>(work)];
}

}  // namespace

absl::Status validate(const PipelineSchedule& schedule) {
  const std::size_t stages = schedule.device_of_stage.size();
  std::array<std::vector<int>, kWorks> counts;
  for (auto& count : counts) count.assign(stages * schedule.microbatches, 0);
  for (DeviceIndex device = 0; device < schedule.orders.size(); ++device) {
    for (const PipelineOp& op : schedule.orders[device]) {
      if (op.stage >= stages || op.microbatch >= schedule.microbatches ||
          schedule.device_of_stage[op.stage] != device) {
        return invalid_input("{}: device {} has a {} of stage {} and microbatch {}, which is not its", schedule.name,
                             device, name_of(op.work), op.stage, op.microbatch);
      }
      ++counts[static_cast<std::size_t>(op.work)][op.stage * schedule.microbatches + op.microbatch];
    }
  }
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    for (std::uint32_t m = 0; m < schedule.microbatches; ++m) {
      const auto count = [&](Work work) {
        return counts[static_cast<std::size_t>(work)][stage * schedule.microbatches + m];
      };
      const bool visit =
          count(Work::kVisit) == 1 &&
          count(Work::kForward) + count(Work::kBackward) + count(Work::kInputGradient) + count(Work::kWeightGradient) ==
              0;
      const bool whole = count(Work::kForward) == 1 && count(Work::kBackward) == 1 &&
                         count(Work::kInputGradient) + count(Work::kWeightGradient) + count(Work::kVisit) == 0;
      const bool halves = count(Work::kForward) == 1 && count(Work::kInputGradient) == 1 &&
                          count(Work::kWeightGradient) == 1 && count(Work::kBackward) + count(Work::kVisit) == 0;
      if (visit || whole || halves) continue;
      return invalid_input("{}: stage {} does not go through microbatch {} forward and backward once", schedule.name,
                           stage, m);
    }
  }
  Runner runner(schedule, 0);
  const bool ends =
      runner.run([](const PipelineOp&) { return 1.0; }, [](DeviceIndex, const PipelineOp&, double, double) {});
  for (DeviceIndex device = 0; !ends && device < schedule.orders.size(); ++device) {
    if (runner.next()[device] == schedule.orders[device].size()) continue;
    const PipelineOp& op = schedule.orders[device][runner.next()[device]];
    return invalid_input("{}: device {} waits for ever with the {} of stage {} and microbatch {}", schedule.name,
                         device, name_of(op.work), op.stage, op.microbatch);
  }
  return absl::OkStatus();
}

std::vector<PipelineOp> in_order(const PipelineSchedule& schedule, const std::vector<StageSeconds>& seconds) {
  std::vector<std::pair<double, PipelineOp>> pieces;
  Runner(schedule, 0)
      .run([&](const PipelineOp& op) { return seconds_of(seconds[op.stage], op.work); },
           [&](DeviceIndex, const PipelineOp& op, double begin, double) { pieces.emplace_back(begin, op); });
  // Those that begin together keep the order in which they were taken: nothing before what it waits for.
  std::ranges::stable_sort(pieces, {}, &std::pair<double, PipelineOp>::first);
  std::vector<PipelineOp> order;
  for (const auto& [begin, op] : pieces) order.push_back(op);
  return order;
}

PipelineRun run(const PipelineSchedule& schedule, const std::vector<StageSeconds>& seconds, double hop_seconds,
                const std::vector<double>& weights) {
  PipelineRun result;
  const std::size_t stages = schedule.device_of_stage.size();
  result.busy.assign(schedule.orders.size(), 0);
  result.first_forward.assign(stages, kNotYet);
  result.most_held.assign(stages, 0);
  result.most_weighed.assign(schedule.orders.size(), 0);
  std::vector<std::uint32_t> held(stages, 0);
  std::vector<double> weighed(schedule.orders.size(), 0);
  const auto takes = [&](const PipelineOp& op) { return seconds_of(seconds[op.stage], op.work); };
  Runner runner(schedule, hop_seconds);
  runner.run(takes, [&](DeviceIndex device, const PipelineOp& op, double begin, double end) {
    result.busy[device] += end - begin;
    result.seconds = std::max(result.seconds, end);
    if (op.work == Work::kForward || op.work == Work::kVisit) {
      result.first_forward[op.stage] = std::min(result.first_forward[op.stage], begin);
    }
    if (op.work == Work::kForward) {
      result.most_held[op.stage] = std::max(result.most_held[op.stage], ++held[op.stage]);
      weighed[device] += weights[op.stage];
      result.most_weighed[device] = std::max(result.most_weighed[device], weighed[device]);
    } else if (op.work == Work::kBackward || op.work == Work::kWeightGradient) {
      --held[op.stage];
      weighed[device] -= weights[op.stage];
    }
  });
  double busy = 0;
  for (const double of_device : result.busy) busy += of_device;
  if (result.seconds > 0) result.bubble = 1 - busy / (result.seconds * static_cast<double>(schedule.orders.size()));
  return result;
}

}  // namespace rondo::partition
