// Rotary embedding: frequencies by kind. Sources: RoFormer (arXiv 2104.09864), YaRN (arXiv 2309.00071), the release
// notes of Llama 3.1; conventions as transformers' modeling_rope_utils.
#include "rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "rondo/devices/rope.h"

namespace rondo::model {
namespace {

/// theta^(2 i / channels), in fp32.
std::vector<float> wavelengths(double theta, std::uint32_t channels) {
  std::vector<float> lengths(channels / 2);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(channels);
    lengths[i] = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
  }
  return lengths;
}

std::vector<double> plain_frequencies(double theta, std::uint32_t channels) {
  std::vector<double> frequencies;
  for (const float length : wavelengths(theta, channels)) frequencies.push_back(static_cast<double>(1.0F / length));
  return frequencies;
}

/// LongRoPE (arXiv 2402.13753): each wavelength has a factor of its own.
std::vector<float> lengthened(double theta, const std::vector<double>& factors) {
  std::vector<float> frequencies = wavelengths(theta, static_cast<std::uint32_t>(2 * factors.size()));
  for (std::size_t i = 0; i < factors.size(); ++i) {
    frequencies[i] = 1.0F / (static_cast<float>(factors[i]) * frequencies[i]);
  }
  return frequencies;
}

/// Long waves are slowed by `factor`, short ones are left, those between are blended (Llama 3.1).
void scale_llama3(std::vector<double>& frequencies, const RopeConfig& rope) {
  const double original = rope.original_max_positions;
  const double longest = original / rope.low_frequency_factor;
  const double shortest = original / rope.high_frequency_factor;
  for (double& frequency : frequencies) {
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    if (wavelength > longest) {
      frequency /= rope.factor;
    } else if (wavelength >= shortest) {
      const double smooth = (original / wavelength - rope.low_frequency_factor) /
                            (rope.high_frequency_factor - rope.low_frequency_factor);
      frequency = (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
    }
  }
}

/// YaRN's "NTK by parts": a ramp over the dimensions between interpolation and extrapolation.
void scale_yarn(std::vector<double>& frequencies, const RopeConfig& rope, std::uint32_t channels) {
  const auto dimension_of = [&](double rotations) {
    return channels * std::log(rope.original_max_positions / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast);
  double high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(channels) - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / rope.factor * ramp + frequencies[i] * (1.0 - ramp);
  }
}

double yarn_amplitude(const RopeConfig& rope) {
  const auto scale = [&](double mscale) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(rope.factor) + 1.0;
  };
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale && rope.mscale_all_dim) return scale(*rope.mscale) / scale(*rope.mscale_all_dim);
  return scale(1.0);
}

/// Gemma 4: of the frequencies of a whole head the slower ones are 0.
void stop_slow_ones(std::vector<double>& frequencies, const RopeConfig& rope) {
  const auto turned = static_cast<std::size_t>(rope.turned_share * static_cast<double>(frequencies.size()));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = i < turned ? frequencies[i] / rope.factor : 0.0;
  }
}

}  // namespace

devices::RopeAttributes rope_attributes(const ModelConfig& config, const RopeConfig& rope, std::uint32_t size) {
  devices::RopeAttributes attributes;
  attributes.theta = rope.theta;
  attributes.factor = rope.factor;
  if (config.turns_backwards) attributes.direction = -1.0F;
  if (rope.query_growth) {
    attributes.growth = static_cast<float>(rope.query_growth->rate);
    attributes.grows_from = rope.query_growth->from;
  }
  const bool whole = config.global_heads.has_value();
  const std::uint32_t channels = whole ? size : turned_channels(config, rope);
  std::vector<double> frequencies = plain_frequencies(stretched_theta(config, rope), channels);
  switch (rope.kind) {
    case RopeKind::kDefault:
      break;
    case RopeKind::kLinear:
      for (double& frequency : frequencies) frequency /= rope.factor;
      break;
    case RopeKind::kDynamic:
      if (rope.alpha) break;
      attributes.dynamic_from = rope.original_max_positions != 0 ? rope.original_max_positions : config.max_positions;
      break;
    case RopeKind::kYarn:
      scale_yarn(frequencies, rope, channels);
      attributes.amplitude = static_cast<float>(yarn_amplitude(rope));
      break;
    case RopeKind::kProportional:
      stop_slow_ones(frequencies, rope);
      break;
    case RopeKind::kLlama3:
      scale_llama3(frequencies, rope);
      break;
    case RopeKind::kLongRope:
      attributes.dynamic_from = rope.original_max_positions;
      attributes.amplitude = static_cast<float>(long_rope_amplitude(rope));
      attributes.frequencies = lengthened(rope.theta, rope.short_factors);
      attributes.long_frequencies = lengthened(rope.theta, rope.long_factors);
      return attributes;
  }
  attributes.frequencies.assign(frequencies.begin(), frequencies.end());
  return attributes;
}

devices::RopeAttributes settled_rope(devices::RopeAttributes rope, std::uint32_t capacity) {
  if (rope.dynamic_from == 0) return rope;
  std::vector<float> settled;
  for (std::size_t pair = 0; pair < rope.frequencies.size(); ++pair) {
    settled.push_back(devices::rope_frequency(rope, capacity, static_cast<std::int64_t>(pair)));
  }
  rope.frequencies = std::move(settled);
  rope.long_frequencies.clear();
  rope.dynamic_from = 0;
  return rope;
}

}  // namespace rondo::model
