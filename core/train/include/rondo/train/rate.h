// Learning-rate schedules, with transformers' formulas.
#pragma once

#include <cstdint>
#include <string>

namespace rondo::train {

struct RateSchedule {
  std::string kind = "linear";  // constant, linear, cosine
  double peak = 0;
  std::uint64_t warmup_steps = 0;
  std::uint64_t total_steps = 0;

  /// The rate of the update of 0-based step `step`: peak times the factor of get_{kind}_schedule_with_warmup.
  double at(std::uint64_t step) const;
};

/// `warmup_steps` wins over `warmup_ratio` w, which gives ceil(w N) of N steps.
std::uint64_t resolve_warmup(double warmup_ratio, std::uint64_t warmup_steps, std::uint64_t total_steps);

}  // namespace rondo::train
