// Frequencies and amplitudes of rotary embedding.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "rondo/devices/op.h"

namespace rondo::devices {

/// Of a pair in a sequence of `length` tokens, in fp32 as transformers computes it.
inline float rope_frequency(const RopeAttributes& rope, std::int64_t length, std::int64_t pair) {
  const auto place = static_cast<std::size_t>(pair);
  if (rope.dynamic_from == 0 || length <= rope.dynamic_from) return rope.frequencies[place];
  if (!rope.long_frequencies.empty()) return rope.long_frequencies[place];
  const auto width = static_cast<double>(2 * rope.frequencies.size());
  const double stretch = rope.factor * static_cast<double>(length) / static_cast<double>(rope.dynamic_from);
  const double base = rope.theta * std::pow(stretch - (rope.factor - 1.0), width / (width - 2.0));
  const float exponent = static_cast<float>(2 * pair) / static_cast<float>(width);
  return 1.0F /
         static_cast<float>(std::pow(static_cast<double>(static_cast<float>(base)), static_cast<double>(exponent)));
}

/// At a position, in fp32 as transformers computes it.
inline float rope_amplitude(const RopeAttributes& rope, std::int32_t position) {
  if (rope.grows_from == 0 || static_cast<std::uint32_t>(position) < rope.grows_from) return rope.amplitude;
  const std::uint32_t steps = static_cast<std::uint32_t>(position) / rope.grows_from;
  return rope.amplitude * (1.0F + rope.growth * std::log(1.0F + static_cast<float>(steps)));
}

}  // namespace rondo::devices
