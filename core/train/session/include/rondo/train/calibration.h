// The plan's times against the truth: what is not known of the pool's real devices is measured before the plan is made,
// and what a run has seen is folded back when it ends.
//
// Only plans depend on it, never results. Whatever goes wrong here leaves the estimates that the pool came with. Thread
// rule: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "rondo/devices/calibration_store.h"
#include "rondo/model/architecture.h"
#include "rondo/schedule/program_times.h"
#include "rondo/train/session.h"
#include "rondo/train/spread_sample.h"

namespace rondo::train {

/// Programs of a step whose times are seen: enough of a long step says what its programs take.
inline constexpr std::size_t kWatchedPrograms = 8192;

/// What looking at a step's programs takes of main memory, for a moment after each step. 0 where nobody looks: pools
/// without real devices.
Bytes watching_bytes(const model::Architecture& model, std::uint32_t microbatches, const Machine& machine);

using TellUser = std::function<void(const std::string&)>;

/// Gives the real devices of `machine` the speeds that `store` knows of the ops of `model`, in microbatches of
/// `lengths`, and a pool's only device, where it has updates, that of `optimizer`'s. What it does not know is measured
/// first, on a device of its own, for a second and a half a device at most: `tell` says so. Described cards are left as
/// they are. True when something was measured.
bool calibrate(const model::Architecture& model, const Loader::Lengths& lengths,
               const offload::OptimizerSettings& optimizer, Machine& machine, devices::CalibrationStore& store,
               const TellUser& tell);

/// Seconds of programs, collected while a run goes on.
class ProgramWatch {
 public:
  /// `run` and `machine` outlive it.
  ProgramWatch(const model::Architecture& model, const PlannedRun& run, const Machine& machine);

  /// False when there is nothing to learn, or enough was seen.
  bool watches() const;
  /// `spans`: of device `name` in step `step` (from 1); `buckets`: tokens of the step's microbatches, padding included.
  /// The first step is not counted: it fetches pages and code.
  void step(const partition::Plan& plan, const std::string& name, const std::vector<schedule::TraceSpan>& spans,
            const std::vector<std::uint32_t>& buckets, std::uint32_t step);
  /// Rates that explain what was seen of a pool member; none when that was too little.
  devices::MeasuredSpeeds rates(std::size_t member) const;
  /// Into the store.
  void fold_back(devices::CalibrationStore& store) const;

 private:
  static constexpr std::size_t kSteps = 64;
  using Program = std::tuple<std::uint32_t, model::Phase, model::Keep>;  // class of the layer
  struct Seen {
    partition::PhaseCost cost;
    SpreadSample seconds;  // of as many tokens as the plan's microbatches have
  };
  struct Member {
    std::size_t index = 0;  // in the pool
    std::string name;
    std::size_t steps = 0;
    std::map<Program, Seen> seen;
  };

  const model::Architecture& model_;
  const PlannedRun& run_;
  const Machine& machine_;
  std::vector<Member> members_;  // that are watched
};

}  // namespace rondo::train
