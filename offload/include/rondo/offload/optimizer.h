// The host optimizers: one pass over memory a parameter (unscale, divide by the targets, clip, update, cast, publish).
//
// Its arithmetic is devices/update.h's. AdamW with moments of 8 bits: Dettmers et al. (arXiv 2110.02861), see
// moment_codes.h.
#pragma once

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "rondo/devices/profile.h"
#include "rondo/devices/thread_pool.h"
#include "rondo/devices/update.h"
#include "rondo/offload/gradient_home.h"
#include "rondo/offload/optimizer_state.h"
#include "rondo/offload/parameter_store.h"

namespace rondo::offload {

using devices::StepFactors;

/// `update`: t, from 1.
StepFactors make_factors(const OptimizerSettings& settings, double learning_rate, std::uint64_t update,
                         double gradient_factor);

/// The same for one parameter.
StepFactors factors_of(const ParameterSpec& parameter, const OptimizerSettings& settings, const StepFactors& shared);

class HostOptimizer {
 public:
  /// All outlive the optimizer. `timing`: with phantom memory an update takes this machine's time instead of working
  /// (AdamW's, whatever the optimizer).
  HostOptimizer(const OptimizerSettings& settings, ParameterStore& parameters, GradientHome& gradients,
                devices::ThreadPool& threads, const devices::HostProfile& timing);

  const OptimizerSettings& settings() const { return settings_; }
  /// Updates one parameter and publishes it as `version` (ParameterStore::publish_from_master). Single-threaded caller;
  /// the work runs on the pool, in fixed blocks. Parameters on disk are updated in the order of their placement, all of
  /// them in every step. Errors: those of the disk. REQUIRES: the parameter's state is laid out as state_layout() says.
  absl::Status update(ParameterId id, const StepFactors& factors, std::uint64_t version);

 private:
  /// Arrays of consecutive elements of a parameter, the first of which is `first`.
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t elements = 0;
    float* master = nullptr;
    std::byte* first_moment = nullptr;  // in the parameter's format; null: none
    std::byte* second_moment = nullptr;
  };
  void update_range(ParameterId id, const Range& range, const StepFactors& factors, std::uint64_t version);
  absl::Status update_on_disk(ParameterId id, const StepFactors& factors, std::uint64_t version);
  void take_time(ParameterId id);

  const OptimizerSettings settings_;
  ParameterStore& parameters_;
  GradientHome& gradients_;
  devices::ThreadPool& threads_;
  const devices::HostProfile timing_;
  std::chrono::steady_clock::time_point busy_until_;  // of the machine that is not there
};

}  // namespace rondo::offload
