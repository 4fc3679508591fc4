// The schedules of transformers.optimization (5.23), in its order of operations.
#include "rondo/train/rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rondo::train {
namespace {

/// Both counted in steps; at least one, as transformers divides.
double share(double steps, double of) { return steps / std::max(1.0, of); }

/// Down and up `cycles` times over progress 0 to 1.
double wave(double cycles, double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * cycles * 2.0 * progress));
}

double raised(double factor, double floor) { return std::max(0.0, factor * (1.0 - floor) + floor); }

}  // namespace

double RateSchedule::at(std::uint64_t step) const {
  if (step >= warmup_steps) return peak * factor(static_cast<double>(step));
  return peak * warmup(share(static_cast<double>(step), static_cast<double>(warmup_steps)));
}

/// Of transformers' schedules one rises from its least rate, the others from 0.
double RateSchedule::warmup(double progress) const {
  return kind == "warmup_stable_decay" ? raised(progress, min_rate) : progress;
}

double RateSchedule::factor(double step) const {
  const auto first = static_cast<double>(warmup_steps);
  const auto total = static_cast<double>(total_steps);
  const double progress = share(step - first, total - first);
  const double half_wave = num_cycles > 0 ? num_cycles : 0.5;
  if (kind == "linear") return std::max(0.0, share(total - step, total - first));
  if (kind == "cosine") return std::max(0.0, wave(half_wave, progress));
  if (kind == "cosine_with_min_lr") return raised(wave(half_wave, progress), min_rate);
  if (kind == "cosine_with_restarts") {
    if (progress >= 1.0) return 0.0;
    return std::max(0.0, wave(0.5, std::fmod((num_cycles > 0 ? num_cycles : 1.0) * progress, 1.0)));
  }
  if (kind == "polynomial") {
    if (step > total) return end / peak;
    const double left = total > first ? 1.0 - (step - first) / (total - first) : 0.0;
    return ((peak - end) * std::pow(left, power) + end) / peak;
  }
  if (kind == "inverse_sqrt") {
    const double scale = timescale > 0 ? static_cast<double>(timescale) : warmup_steps > 0 ? first : 10'000.0;
    return 1.0 / std::sqrt((step + (scale - first)) / scale);
  }
  if (kind == "warmup_stable_decay") return stable_decay(step);
  return 1.0;
}

double RateSchedule::stable_decay(double step) const {
  const auto decay = static_cast<double>(decay_steps);
  const double begin = static_cast<double>(total_steps) - decay;
  if (step < begin) return 1.0;
  if (step >= begin + decay) return min_rate;
  const double progress = share(step - begin, decay);
  if (decay_type == "linear") return raised(1.0 - progress, min_rate);
  if (decay_type == "1-sqrt") return raised(1.0 - std::sqrt(progress), min_rate);
  return raised(wave(num_cycles > 0 ? num_cycles : 0.5, progress), min_rate);
}

std::uint64_t resolve_warmup(double warmup_ratio, std::uint64_t warmup_steps, std::uint64_t total_steps) {
  if (warmup_steps > 0) return warmup_steps;
  return static_cast<std::uint64_t>(std::ceil(warmup_ratio * static_cast<double>(total_steps)));
}

}  // namespace rondo::train
