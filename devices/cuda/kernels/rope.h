// Rotary position embedding: a block a token. The angles of its pairs are computed once, for all heads.
#pragma once

#include "params.h"
#include "sequences.h"

namespace rondo::devices::cuda {

/// transformers' dynamic NTK frequency for a sequence of `length` tokens: theta grows with the length.
RONDO_KERNEL float dynamic_frequency(const RopeParams& p, std::int32_t length, int pair) {
  const double width = 2.0 * p.half;
  const double stretch = p.factor * static_cast<double>(length) / static_cast<double>(p.dynamic_from);
  const double base = p.theta * pow(stretch - (p.factor - 1.0), width / (width - 2.0));
  const float exponent = static_cast<float>(2 * pair) / static_cast<float>(width);
  return 1.0F / static_cast<float>(pow(static_cast<double>(static_cast<float>(base)), static_cast<double>(exponent)));
}

template <typename T>
struct Rope {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const RopeParams& p) {
    auto* cosines = reinterpret_cast<float*>(block.shared());  // [half]
    float* sines = cosines + p.half;                           // [half]
    const auto token = static_cast<std::int32_t>(block.x());
    block.each([&](int thread) {
      if (thread >= p.half) return;
      const Span sequence = p.dynamic_from == 0 ? Span{0, 0} : sequence_at(p.bounds, token);
      const std::int32_t length = sequence.end - sequence.begin;
      for (int pair = thread; pair < p.half; pair += block.threads()) {
        const bool dynamic = p.dynamic_from > 0 && static_cast<std::uint32_t>(length) > p.dynamic_from;
        const float frequency = dynamic ? dynamic_frequency(p, length, pair) : p.frequencies[pair];
        const float angle = static_cast<float>(p.positions[token]) * frequency;
        cosines[pair] = cosf(angle) * p.amplitude;
        sines[pair] = sinf(angle) * p.amplitude * p.direction;
      }
    });
    const std::int64_t from = block.x() * p.heads * 2 * p.half;
    block.each([&](int thread) {
      for (std::int64_t i = thread; i < p.heads * p.half; i += block.threads()) {
        const std::int64_t left = from + i / p.half * 2 * p.half + i % p.half;
        const std::int64_t right = left + p.half;
        const float a = load(static_cast<const T*>(p.x) + left);
        const float b = load(static_cast<const T*>(p.x) + right);
        const auto pair = static_cast<int>(i % p.half);
        store(static_cast<T*>(p.y) + left, a * cosines[pair] - b * sines[pair]);
        store(static_cast<T*>(p.y) + right, b * cosines[pair] + a * sines[pair]);
      }
    });
  }
};

}  // namespace rondo::devices::cuda
