// Orders of the published schedules. Those with rules of precedence (zero bubble) are written down by letting time pass
// in units of one piece of work and each device take the best piece that is ready.
#include "rondo/partition/schedules.h"

#include <algorithm>
#include <array>
#include <functional>

namespace rondo::partition {
namespace {

PipelineSchedule looped(const char* name, std::uint32_t devices, std::uint32_t microbatches, std::uint32_t chunks) {
  PipelineSchedule schedule;
  schedule.name = name;
  schedule.microbatches = microbatches;
  schedule.orders.resize(devices);
  for (std::uint32_t stage = 0; stage < devices * chunks; ++stage) schedule.device_of_stage.push_back(stage % devices);
  return schedule;
}

/// A device's stages and what it may take up next.
class UnitTime {
 public:
  struct Rules {
    /// `under_way`: microbatches of the stage whose backward has not begun; `held`: microbatches and stages of the
    /// device whose activations are held.
    std::function<bool(DeviceIndex, std::uint32_t under_way, std::uint32_t held)> may_forward;
    std::function<int(Work, std::uint32_t stage)> rank;  // the smallest is taken
  };
  UnitTime(PipelineSchedule& schedule, const Rules& rules)
      : schedule_(schedule),
        rules_(rules),
        stages_(schedule.device_of_stage.size()),
        done_(schedule.device_of_stage.size()),
        ends_(schedule.device_of_stage.size()) {
    for (auto& ends : ends_) {
      for (auto& of_work : ends) of_work.assign(schedule.microbatches, -1);
    }
  }

  void run() {
    const std::size_t total = 3 * stages_ * schedule_.microbatches;
    std::size_t count = 0;
    for (int time = 0; count < total; ++time) {
      std::vector<PipelineOp> taken;
      for (DeviceIndex device = 0; device < schedule_.orders.size(); ++device) {
        if (const auto op = choose(device, time)) {
          schedule_.orders[device].push_back(*op);
          taken.push_back(*op);
        }
      }
      for (const PipelineOp& op : taken) {
        ends_[op.stage][index(op.work)][op.microbatch] = time + 1;
        ++done_[op.stage][index(op.work)];
      }
      count += taken.size();
    }
  }

 private:
  static std::size_t index(Work work) { return work == Work::kForward ? 0 : work == Work::kInputGradient ? 1 : 2; }
  bool over(std::size_t stage, Work work, std::uint32_t microbatch, int time) const {
    const int end = ends_[stage][index(work)][microbatch];
    return end >= 0 && end <= time;
  }
  std::uint32_t next(std::uint32_t stage, Work work) const { return done_[stage][index(work)]; }

  bool ready(DeviceIndex device, std::uint32_t stage, Work work, int time) const {
    const std::uint32_t m = next(stage, work);
    if (m == schedule_.microbatches) return false;
    switch (work) {
      case Work::kForward:
        return (stage == 0 || over(stage - 1, work, m, time)) &&
               rules_.may_forward(device, next(stage, work) - next(stage, Work::kInputGradient), held_by(device));
      case Work::kInputGradient:
        return over(stage, Work::kForward, m, time) && (stage + 1 == stages_ || over(stage + 1, work, m, time));
      default:
        return over(stage, Work::kInputGradient, m, time);
    }
  }
  std::uint32_t held_by(DeviceIndex device) const {
    std::uint32_t held = 0;
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
      if (schedule_.device_of_stage[stage] != device) continue;
      held += next(stage, Work::kForward) - next(stage, Work::kWeightGradient);
    }
    return held;
  }

  std::optional<PipelineOp> choose(DeviceIndex device, int time) const {
    std::optional<PipelineOp> best;
    int least = 0;
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
      if (schedule_.device_of_stage[stage] != device) continue;
      for (const Work work : {Work::kForward, Work::kInputGradient, Work::kWeightGradient}) {
        if (!ready(device, stage, work, time)) continue;
        const int rank = rules_.rank(work, stage);
        if (best && rank >= least) continue;
        best = PipelineOp{work, stage, next(stage, work)};
        least = rank;
      }
    }
    return best;
  }

  PipelineSchedule& schedule_;
  const Rules& rules_;
  const std::size_t stages_;
  std::vector<std::array<std::uint32_t, 3>> done_;
  std::vector<std::array<std::vector<int>, 3>> ends_;  // by stage, work, microbatch; -1: not yet
};

}  // namespace

PipelineSchedule gpipe(std::uint32_t devices, std::uint32_t microbatches) {
  PipelineSchedule schedule = looped_breadth_first(devices, microbatches, 1);
  schedule.name = "gpipe";
  return schedule;
}

PipelineSchedule looped_breadth_first(std::uint32_t devices, std::uint32_t microbatches, std::uint32_t chunks) {
  PipelineSchedule schedule = looped("looped_bfs", devices, microbatches, chunks);
  for (std::uint32_t device = 0; device < devices; ++device) {
    const auto all = [&](Work work, std::uint32_t chunk) {
      for (std::uint32_t m = 0; m < microbatches; ++m) {
        schedule.orders[device].push_back({work, chunk * devices + device, m});
      }
    };
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) all(Work::kForward, chunk);
    for (std::uint32_t chunk = chunks; chunk-- > 0;) all(Work::kBackward, chunk);
  }
  return schedule;
}

PipelineSchedule one_f_one_b(std::uint32_t devices, std::uint32_t microbatches) {
  PipelineSchedule schedule = looped("1f1b", devices, microbatches, 1);
  for (std::uint32_t device = 0; device < devices; ++device) {
    auto& order = schedule.orders[device];
    const std::uint32_t warm_up = std::min(devices - device - 1, microbatches);
    for (std::uint32_t m = 0; m < warm_up; ++m) order.push_back({Work::kForward, device, m});
    for (std::uint32_t m = warm_up; m < microbatches; ++m) {
      order.push_back({Work::kForward, device, m});
      order.push_back({Work::kBackward, device, m - warm_up});
    }
    for (std::uint32_t m = microbatches - warm_up; m < microbatches; ++m) order.push_back({Work::kBackward, device, m});
  }
  return schedule;
}

PipelineSchedule interleaved(std::uint32_t devices, std::uint32_t microbatches, std::uint32_t chunks) {
  PipelineSchedule schedule = looped("interleaved", devices, microbatches, chunks);
  const std::uint32_t total = microbatches * chunks;
  // Piece k of a device: groups of `devices` microbatches go through all chunks before the next group.
  const auto piece = [&](std::uint32_t device, std::uint32_t k, bool forward) {
    const std::uint32_t in_turn = k / devices % chunks;
    const std::uint32_t chunk = forward ? in_turn : chunks - 1 - in_turn;
    const std::uint32_t microbatch = k / (devices * chunks) * devices + k % devices;
    return PipelineOp{forward ? Work::kForward : Work::kBackward, chunk * devices + device, microbatch};
  };
  for (std::uint32_t device = 0; device < devices; ++device) {
    auto& order = schedule.orders[device];
    const std::uint32_t warm_up = std::min(2 * (devices - device - 1) + (chunks - 1) * devices, total);
    for (std::uint32_t k = 0; k < warm_up; ++k) order.push_back(piece(device, k, true));
    for (std::uint32_t k = warm_up; k < total; ++k) {
      order.push_back(piece(device, k, true));
      order.push_back(piece(device, k - warm_up, false));
    }
    for (std::uint32_t k = total - warm_up; k < total; ++k) order.push_back(piece(device, k, false));
  }
  return schedule;
}

PipelineSchedule zb_h1(std::uint32_t devices, std::uint32_t microbatches) {
  PipelineSchedule schedule = looped("zb_h1", devices, microbatches, 1);
  const UnitTime::Rules rules = {[&](DeviceIndex device, std::uint32_t under_way, std::uint32_t held) {
                                   return under_way < devices - device && held < devices;
                                 },
                                 [](Work work, std::uint32_t) {
                                   return work == Work::kForward ? 0 : work == Work::kInputGradient ? 1 : 2;
                                 }};
  UnitTime(schedule, rules).run();
  return schedule;
}

PipelineSchedule zb_v(std::uint32_t devices, std::uint32_t microbatches) {
  PipelineSchedule schedule;
  schedule.name = "zb_v";
  schedule.microbatches = microbatches;
  schedule.orders.resize(devices);
  for (std::uint32_t stage = 0; stage < 2 * devices; ++stage) {
    schedule.device_of_stage.push_back(stage < devices ? stage : 2 * devices - 1 - stage);
  }
  const UnitTime::Rules rules = {[&](DeviceIndex, std::uint32_t, std::uint32_t held) { return held < 2 * devices; },
                                 [&](Work work, std::uint32_t stage) {
                                   if (work == Work::kInputGradient) return 0;
                                   if (work == Work::kWeightGradient) return 3;
                                   return stage >= devices ? 1 : 2;  // what is nearer to its loss first
                                 }};
  UnitTime(schedule, rules).run();
  return schedule;
}

PipelineSchedule roundpipe(std::uint32_t devices, std::uint32_t microbatches, std::uint32_t forward,
                           std::uint32_t backward, bool fused) {
  PipelineSchedule schedule = looped("roundpipe", devices, microbatches, 0);
  const std::uint32_t stages = forward + backward + (fused ? 1 : 2);
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    schedule.device_of_stage.push_back(stage % devices);
    for (std::uint32_t m = 0; m < microbatches; ++m) {
      schedule.orders[stage % devices].push_back({Work::kVisit, stage, m});
    }
  }
  return schedule;
}

}  // namespace rondo::partition
