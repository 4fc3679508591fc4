// Orders of the published schedules. Those with rules of precedence (zero bubble) are written down by letting time pass
// and each device take the best piece that is ready.
#include "rondo/partition/schedules.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

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

std::size_t index(Work work) { return work == Work::kForward ? 0 : work == Work::kInputGradient ? 1 : 2; }

constexpr double kNotYet = std::numeric_limits<double>::infinity();

/// Lets time pass: a device that is free takes up the best of what is ready.
class PassingTime {
 public:
  struct Rules {
    /// `under_way`: microbatches of the stage whose backward has not begun; `held`: by stage, microbatches whose
    /// activations are held.
    std::function<bool(std::uint32_t stage, std::uint32_t under_way, const std::vector<std::uint32_t>& held)>
        may_forward;
    std::function<int(Work, std::uint32_t stage)> rank;  // the smallest is taken
  };
  /// `seconds`: by stage; empty: every piece takes the same.
  PassingTime(PipelineSchedule& schedule, const std::vector<StageSeconds>& seconds, const Rules& rules)
      : schedule_(schedule),
        seconds_(seconds),
        rules_(rules),
        stages_(static_cast<std::uint32_t>(schedule.device_of_stage.size())),
        free_(schedule.orders.size()),
        held_(stages_),
        done_(stages_),
        ends_(stages_) {
    for (auto& ends : ends_) {
      for (auto& of_work : ends) of_work.assign(schedule.microbatches, kNotYet);
    }
  }

  void run() {
    for (double time = 0; time != kNotYet; time = next_end(time)) {
      // What takes no time lets others begin at once.
      while (take_what_is_ready(time)) {
      }
    }
  }

 private:
  bool take_what_is_ready(double time) {
    bool taken = false;
    for (DeviceIndex device = 0; device < schedule_.orders.size(); ++device) {
      if (free_[device] > time) continue;
      const auto op = choose(device, time);
      if (!op) continue;
      schedule_.orders[device].push_back(*op);
      free_[device] = ends_[op->stage][index(op->work)][op->microbatch] = time + takes(*op);
      ++done_[op->stage][index(op->work)];
      if (op->work == Work::kForward) ++held_[op->stage];
      if (op->work == Work::kWeightGradient) --held_[op->stage];
      taken = true;
    }
    return taken;
  }
  double next_end(double time) const {
    double next = kNotYet;
    for (const double end : free_) {
      if (end > time) next = std::min(next, end);
    }
    return next;
  }
  double takes(const PipelineOp& op) const {
    if (seconds_.empty()) return 1;
    const StageSeconds& stage = seconds_[op.stage];
    return op.work == Work::kForward         ? stage.forward
           : op.work == Work::kInputGradient ? stage.input_gradient
                                             : stage.weight_gradient;
  }

  bool over(std::uint32_t stage, Work work, std::uint32_t microbatch, double time) const {
    return ends_[stage][index(work)][microbatch] <= time;
  }
  std::uint32_t next(std::uint32_t stage, Work work) const { return done_[stage][index(work)]; }

  bool ready(std::uint32_t stage, Work work, double time) const {
    const std::uint32_t m = next(stage, work);
    if (m == schedule_.microbatches) return false;
    switch (work) {
      case Work::kForward:
        return (stage == 0 || over(stage - 1, work, m, time)) &&
               rules_.may_forward(stage, m - next(stage, Work::kInputGradient), held_);
      case Work::kInputGradient:
        return over(stage, Work::kForward, m, time) && (stage + 1 == stages_ || over(stage + 1, work, m, time));
      default:
        return over(stage, Work::kInputGradient, m, time);
    }
  }

  std::optional<PipelineOp> choose(DeviceIndex device, double time) const {
    std::optional<PipelineOp> best;
    int least = 0;
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
      if (schedule_.device_of_stage[stage] != device) continue;
      for (const Work work : {Work::kForward, Work::kInputGradient, Work::kWeightGradient}) {
        if (!ready(stage, work, time)) continue;
        const int rank = rules_.rank(work, stage);
        if (best && rank >= least) continue;
        best = PipelineOp{work, stage, next(stage, work)};
        least = rank;
      }
    }
    return best;
  }

  PipelineSchedule& schedule_;
  const std::vector<StageSeconds>& seconds_;
  const Rules& rules_;
  const std::uint32_t stages_;
  std::vector<double> free_;         // by device: the end of what it has taken up
  std::vector<std::uint32_t> held_;  // by stage: microbatches
  std::vector<std::array<std::uint32_t, 3>> done_;
  std::vector<std::array<std::vector<double>, 3>> ends_;  // by stage, work, microbatch
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

PipelineSchedule zb_h1(std::uint32_t devices, std::uint32_t microbatches, const std::vector<StageSeconds>& seconds) {
  PipelineSchedule schedule = looped("zb_h1", devices, microbatches, 1);
  const PassingTime::Rules rules = {
      [&](std::uint32_t stage, std::uint32_t under_way, const std::vector<std::uint32_t>& held) {
        return under_way < devices - stage && held[stage] < devices;
      },
      [](Work work, std::uint32_t) { return static_cast<int>(index(work)); }};
  PassingTime(schedule, seconds, rules).run();
  return schedule;
}

PipelineSchedule zb_v(std::uint32_t devices, std::uint32_t microbatches, const std::vector<StageSeconds>& seconds) {
  PipelineSchedule schedule;
  schedule.name = "zb_v";
  schedule.microbatches = microbatches;
  schedule.orders.resize(devices);
  for (std::uint32_t stage = 0; stage < 2 * devices; ++stage) {
    schedule.device_of_stage.push_back(stage < devices ? stage : 2 * devices - 1 - stage);
  }
  const PassingTime::Rules rules = {[&](std::uint32_t stage, std::uint32_t, const std::vector<std::uint32_t>& held) {
                                      const std::uint32_t down = std::min(stage, 2 * devices - 1 - stage);
                                      const std::uint32_t back = 2 * devices - 1 - down;
                                      // The last place is for one on its way back, so that there is always one that can
                                      // go on.
                                      const bool keeps_one = stage == down && held[back] == 0;
                                      return held[down] + held[back] + (keeps_one ? 1 : 0) < 2 * devices;
                                    },
                                    [&](Work work, std::uint32_t stage) {
                                      if (work == Work::kInputGradient) return 0;
                                      if (work == Work::kWeightGradient) return 3;
                                      return stage >= devices ? 1 : 2;  // what is nearer to its loss first
                                    }};
  PassingTime(schedule, seconds, rules).run();
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
