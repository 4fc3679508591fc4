// Learning-rate schedules, with transformers' formulas.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace rondo::train {

struct RateSchedule {
  /// constant, linear, cosine, cosine_with_restarts, cosine_with_min_lr, inverse_sqrt, polynomial,
  /// warmup_stable_decay: transformers' names, each with its warmup.
  std::string kind = "linear";
  double peak = 0;
  std::uint64_t warmup_steps = 0;
  std::uint64_t total_steps = 0;
  double num_cycles = 0;   // of the cosine ones; 0: half a wave, with restarts one
  double min_rate = 0;     // share of the peak: cosine_with_min_lr, warmup_stable_decay
  double end = 1e-7;       // polynomial: the last rate
  double power = 1;        // polynomial
  double timescale = 0;    // inverse_sqrt; 0: the warmup's steps, without any 10000
  double decay_steps = 0;  // warmup_stable_decay: the last so many steps
  /// Of warmup_stable_decay: between warmup and decay; none: what the run has left.
  std::optional<double> stable_steps = {};
  std::string warmup_type = "linear";  // warmup_stable_decay: linear, cosine, 1-sqrt
  std::string decay_type = "cosine";   // the same

  /// Takes transformers' lr_scheduler_kwargs, "min_lr=1e-6,num_cycles=2", for the kind and the peak that stand.
  /// Errors: InvalidArgument naming the argument: one that this kind does not have, a value that it cannot have, one
  /// that it needs.
  absl::Status set_arguments(const std::string& arguments);

  /// The rate of the update of 0-based step `step`: peak times the factor of transformers' schedule.
  double at(std::uint64_t step) const;

 private:
  double warmup(double progress) const;
  double factor(double step) const;
  double stable_decay(double step) const;
};

/// A number of steps, or below 1 a share of `total_steps`, rounded up (transformers' save_steps and its like).
std::uint64_t resolve_steps(double given, std::uint64_t total_steps);

/// `warmup_steps`, resolved likewise, wins over `warmup_ratio` w, which gives ceil(w N) of N steps.
std::uint64_t resolve_warmup(double warmup_ratio, double warmup_steps, std::uint64_t total_steps);

}  // namespace rondo::train
