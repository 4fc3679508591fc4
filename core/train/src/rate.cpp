#include "rondo/train/rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rondo::train {

double RateSchedule::at(std::uint64_t step) const {
  if (step < warmup_steps) {
    return peak * (static_cast<double>(step) / static_cast<double>(std::max<std::uint64_t>(1, warmup_steps)));
  }
  if (kind == "constant") return peak;
  const double rest =
      static_cast<double>(std::max<std::uint64_t>(1, total_steps > warmup_steps ? total_steps - warmup_steps : 0));
  if (kind == "linear") {
    const double left = total_steps > step ? static_cast<double>(total_steps - step) : 0.0;
    return peak * std::max(0.0, left / rest);
  }
  const double progress = static_cast<double>(step - warmup_steps) / rest;
  return peak * std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

std::uint64_t resolve_warmup(double warmup_ratio, std::uint64_t warmup_steps, std::uint64_t total_steps) {
  if (warmup_steps > 0) return warmup_steps;
  return static_cast<std::uint64_t>(std::ceil(warmup_ratio * static_cast<double>(total_steps)));
}

}  // namespace rondo::train
