// From what frequencies are divided by to the rotary scaling that divides so.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "import_config.h"
#include "names.h"

namespace rondo::gguf {
namespace {

using model::RopeKind;

constexpr std::uint32_t kMostPositions = 0x7fffffffU;

bool gives(const model::RopeConfig& rope, const std::vector<float>& divisors) {
  model::ModelConfig config;
  config.rope = rope;
  config.head_dim = static_cast<std::uint32_t>(2 * divisors.size());
  const std::vector<float> made = frequency_divisors(config);
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    if (!(std::abs(made[i] - divisors[i]) <= 1e-5F * divisors[i])) return false;
  }
  return true;
}

/// Where a share of a frequency is kept, neither all nor none: between the clamped ends.
struct Blended {
  double frequency = 0.0;
  double share = 0.0;
};

double frequency_of(std::size_t pair, double theta, std::size_t pairs) {
  return std::pow(theta, -static_cast<double>(pair) / static_cast<double>(pairs));
}

std::vector<Blended> blended_of(const model::RopeConfig& rope, const std::vector<float>& divisors) {
  std::vector<Blended> points;
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double divisor = divisors[i];
    if (divisor <= 1.0 || divisor >= rope.factor) continue;
    points.push_back({frequency_of(i, rope.theta, divisors.size()),
                      (1.0 / divisor - 1.0 / rope.factor) / (1.0 - 1.0 / rope.factor)});
  }
  return points;
}

/// Between the clamped ends the share that is kept is a line over the frequency: original / (2 pi (high - low)) times
/// it, less low / (high - low). Two points give both, up to a common factor of all three, for which `low` is taken 1.
std::optional<model::RopeConfig> solve(model::RopeConfig rope, const Blended& first, const Blended& last) {
  const double slope = (last.share - first.share) / (last.frequency - first.frequency);
  const double below = slope * first.frequency - first.share;  // low / (high - low)
  if (!(slope > 0.0 && below > 0.0)) return std::nullopt;
  const double original = std::round(slope * 2.0 * std::numbers::pi / below);
  if (!(original >= 1.0 && original <= kMostPositions)) return std::nullopt;
  rope.original_max_positions = static_cast<std::uint32_t>(original);
  rope.low_frequency_factor = 1.0;
  rope.high_frequency_factor = std::round((1.0 + 1.0 / below) * 1e4) / 1e4;
  return rope;
}

/// From one blended frequency, or none, many settings follow, which all divide alike: the first of some high ends that
/// gives these divisors is as good as the one they were made with. `low` is taken 1.
std::optional<model::RopeConfig> guess(model::RopeConfig rope, const std::vector<Blended>& points,
                                       const std::vector<float>& divisors) {
  constexpr double kTurn = 2.0 * std::numbers::pi;
  rope.low_frequency_factor = 1.0;
  const auto try_setting = [&](double original, double high) {
    if (!(original >= 1.0 && original <= kMostPositions && high > 1.0)) return false;
    rope.original_max_positions = static_cast<std::uint32_t>(original);
    rope.high_frequency_factor = high;
    return gives(rope, divisors);
  };
  const auto divided = std::ranges::find_if(divisors, [](float divisor) { return divisor > 1.0F; });
  const auto first_divided = static_cast<std::size_t>(divided - divisors.begin());
  for (const double high : {4.0, 3.0, 2.0, 1.5, 1.25, 1.1, 1.05, 1.02, 1.01}) {
    if (points.empty()) {
      // The first divided frequency lies just below the low end.
      const double original = std::floor(kTurn / frequency_of(first_divided, rope.theta, divisors.size()));
      if (try_setting(std::min<double>(original, kMostPositions), high)) return rope;
      continue;
    }
    const auto [frequency, share] = points.front();
    const double original = std::round(kTurn * (1.0 + share * (high - 1.0)) / frequency);
    if (try_setting(original, high)) return rope;
    // Of a high end between these the length is known to a whole number only; the high end makes up for the rest.
    if (try_setting(original, 1.0 + (original * frequency / kTurn - 1.0) / share)) return rope;
  }
  return std::nullopt;
}

}  // namespace

std::optional<model::RopeConfig> rope_of_divisors(const std::vector<float>& divisors, double theta,
                                                  std::uint32_t max_positions) {
  model::RopeConfig rope;
  rope.theta = theta;
  const bool finite = std::ranges::all_of(divisors, [](float d) { return d >= 1.0F && d <= 1e6F; });
  if (!finite || divisors.empty()) return std::nullopt;
  rope.factor = *std::ranges::max_element(divisors);
  if (rope.factor == 1.0) return rope;
  rope.kind = RopeKind::kLlama3;
  // The published settings first: from few frequencies several would follow.
  rope.low_frequency_factor = 1.0;
  rope.high_frequency_factor = 4.0;
  for (const std::uint32_t original : std::array<std::uint32_t, 2>{8192, max_positions}) {
    rope.original_max_positions = original;
    if (gives(rope, divisors)) return rope;
  }
  const std::vector<Blended> points = blended_of(rope, divisors);
  if (points.size() < 2) return guess(rope, points, divisors);
  const auto solved = solve(rope, points.front(), points.back());
  return solved && gives(*solved, divisors) ? solved : std::nullopt;
}

}  // namespace rondo::gguf
