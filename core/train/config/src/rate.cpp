// The schedules of transformers.optimization (5.23), in its order of operations.
#include "rondo/train/rate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <set>
#include <string_view>

#include "rondo/base/status.h"
#include "rondo/train/config_text.h"

namespace rondo::train {
namespace {

/// Both counted in steps; at least one, as transformers divides.
double share(double steps, double of) { return steps / std::max(1.0, of); }

/// Down and up `cycles` times over progress 0 to 1.
double wave(double cycles, double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * cycles * 2.0 * progress));
}

double raised(double factor, double floor) { return std::max(0.0, factor * (1.0 - floor) + floor); }

enum class Bound : std::uint8_t { kFromZero, kAboveZero, kShare, kSteps, kSomeSteps };

/// A further argument of one kind: a number, or the name of a form.
struct Argument {
  const char* kind;
  const char* name;
  double RateSchedule::*number;
  Bound bound = Bound::kFromZero;
  std::string RateSchedule::*form = nullptr;
};

const char* text_of(Bound bound) {
  switch (bound) {
    case Bound::kFromZero:
      return "a number of at least 0";
    case Bound::kAboveZero:
      return "a number above 0";
    case Bound::kShare:
      return "a number from 0 to 1";
    case Bound::kSteps:
      return "a whole number of steps";
    case Bound::kSomeSteps:
      return "a whole number of steps, at least 1";
  }
  return "";
}

bool fits(Bound bound, double value) {
  constexpr double kMost = 1e12;
  if (!(value >= 0 && value <= kMost)) return false;
  if (bound == Bound::kShare) return value <= 1;
  if (bound == Bound::kAboveZero || bound == Bound::kSomeSteps) {
    if (value == 0) return false;
  }
  return (bound != Bound::kSteps && bound != Bound::kSomeSteps) || value == std::floor(value);
}

using Rate = RateSchedule;
constexpr const char* kStable = "warmup_stable_decay";
constexpr Argument kArguments[] = {
    {"cosine", "num_cycles", &Rate::num_cycles, Bound::kAboveZero},
    {"cosine_with_restarts", "num_cycles", &Rate::num_cycles, Bound::kAboveZero},
    {"cosine_with_min_lr", "min_lr", &Rate::min_rate},
    {"cosine_with_min_lr", "min_lr_rate", &Rate::min_rate, Bound::kShare},
    {"cosine_with_min_lr", "num_cycles", &Rate::num_cycles, Bound::kAboveZero},
    {"inverse_sqrt", "timescale", &Rate::timescale, Bound::kSomeSteps},
    {"polynomial", "lr_end", &Rate::end},
    {"polynomial", "power", &Rate::power, Bound::kAboveZero},
    {kStable, "num_decay_steps", &Rate::decay_steps, Bound::kSteps},
    {kStable, "num_stable_steps", nullptr, Bound::kSteps},
    {kStable, "min_lr_ratio", &Rate::min_rate, Bound::kShare},
    {kStable, "num_cycles", &Rate::num_cycles, Bound::kAboveZero},
    {kStable, "warmup_type", nullptr, Bound::kFromZero, &Rate::warmup_type},
    {kStable, "decay_type", nullptr, Bound::kFromZero, &Rate::decay_type},
};

const Argument* find_argument(const std::string& kind, std::string_view name) {
  const auto* const found = std::find_if(std::begin(kArguments), std::end(kArguments), [&](const Argument& argument) {
    return argument.kind == kind && argument.name == name;
  });
  return found == std::end(kArguments) ? nullptr : found;
}

absl::Status no_such(const std::string& kind, const std::string& name) {
  std::string known;
  for (const Argument& argument : kArguments) {
    if (argument.kind == kind) known += (known.empty() ? "" : ", ") + std::string(argument.name);
  }
  return invalid_input("{} has no argument {}; expected {}", kind, config::in_quotes(name),
                       known.empty() ? "none: leave them out" : "names out of " + known);
}

absl::Status set_argument(const Argument& argument, const std::string& text, RateSchedule& schedule) {
  if (argument.form != nullptr) {
    if (text != "linear" && text != "cosine" && text != "1-sqrt") {
      return invalid_input("{}: expected linear, cosine or 1-sqrt, found {}", argument.name, config::in_quotes(text));
    }
    schedule.*argument.form = text;
    return absl::OkStatus();
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !fits(argument.bound, value)) {
    return invalid_input("{}: expected {}, found {}", argument.name, text_of(argument.bound), config::in_quotes(text));
  }
  if (argument.number == nullptr) {
    schedule.stable_steps = value;
  } else {
    schedule.*argument.number = value;
  }
  return absl::OkStatus();
}

std::string without_spaces(std::string_view text) {
  std::string rest(text);
  std::erase(rest, ' ');
  return rest;
}

}  // namespace

absl::Status RateSchedule::set_arguments(const std::string& arguments) {
  std::set<std::string> given;
  for (std::size_t begin = 0; begin < arguments.size();) {
    const std::size_t comma = std::min(arguments.find(',', begin), arguments.size());
    const std::string entry = without_spaces(std::string_view(arguments).substr(begin, comma - begin));
    begin = comma + 1;
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos) {
      return invalid_input("expected entries such as num_cycles=2, found {}", config::in_quotes(entry));
    }
    const std::string name = entry.substr(0, equals);
    const Argument* argument = find_argument(kind, name);
    if (argument == nullptr) return no_such(kind, name);
    if (!given.insert(name).second) return invalid_input("{} is given twice; leave one of them", name);
    RONDO_RETURN_IF_ERROR(set_argument(*argument, entry.substr(equals + 1), *this));
  }
  if (kind == "cosine_with_min_lr") {
    if (given.contains("min_lr") == given.contains("min_lr_rate")) {
      return invalid_input("cosine_with_min_lr needs min_lr or min_lr_rate, found {}; give one of them",
                           given.contains("min_lr") ? "both" : "neither");
    }
    if (given.contains("min_lr")) {
      if (min_rate > peak) {
        return invalid_input("min_lr: expected at most the learning_rate of {}, found {}", peak, min_rate);
      }
      if (peak > 0) min_rate /= peak;
    }
  }
  if (kind == "polynomial" && end >= peak) {
    return invalid_input("lr_end: expected less than the learning_rate of {}, found {}", peak, end);
  }
  if (kind == kStable && !given.contains("num_decay_steps")) {
    return invalid_input("{} needs the number of its last steps, found none; give num_decay_steps=N", kind);
  }
  return absl::OkStatus();
}

double RateSchedule::at(std::uint64_t step) const {
  if (step >= warmup_steps) return peak * factor(static_cast<double>(step));
  return peak * warmup(share(static_cast<double>(step), static_cast<double>(warmup_steps)));
}

/// Of transformers' schedules one rises from its least rate, the others from 0.
double RateSchedule::warmup(double progress) const {
  if (kind != kStable) return progress;
  if (warmup_type == "cosine") return raised(0.5 * (1.0 - std::cos(std::numbers::pi * progress)), min_rate);
  if (warmup_type == "1-sqrt") return raised(1.0 - std::sqrt(1.0 - progress), min_rate);
  return raised(progress, min_rate);
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
    const double scale = timescale > 0 ? timescale : warmup_steps > 0 ? first : 10'000.0;
    return 1.0 / std::sqrt((step + (scale - first)) / scale);
  }
  if (kind == kStable) return stable_decay(step);
  return 1.0;
}

double RateSchedule::stable_decay(double step) const {
  const double begin =
      stable_steps ? static_cast<double>(warmup_steps) + *stable_steps : static_cast<double>(total_steps) - decay_steps;
  if (step < begin) return 1.0;
  if (step >= begin + decay_steps) return min_rate;
  const double progress = share(step - begin, decay_steps);
  if (decay_type == "linear") return raised(1.0 - progress, min_rate);
  if (decay_type == "1-sqrt") return raised(1.0 - std::sqrt(progress), min_rate);
  return raised(wave(num_cycles > 0 ? num_cycles : 0.5, progress), min_rate);
}

std::uint64_t resolve_steps(double given, std::uint64_t total_steps) {
  return static_cast<std::uint64_t>(given < 1 ? std::ceil(given * static_cast<double>(total_steps)) : given);
}

std::uint64_t resolve_warmup(double warmup_ratio, double warmup_steps, std::uint64_t total_steps) {
  if (warmup_steps > 0) return resolve_steps(warmup_steps, total_steps);
  return static_cast<std::uint64_t>(std::ceil(warmup_ratio * static_cast<double>(total_steps)));
}

}  // namespace rondo::train
