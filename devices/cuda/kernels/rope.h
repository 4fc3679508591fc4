// Rotary position embedding: a block a token. The angles of its pairs are computed once, for all heads.
#pragma once

#include "params.h"
#include "sequences.h"
#include "vectors.h"

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
      if (p.half % kVector == 0) {
        for (std::int64_t i = thread; i < p.heads * p.half / kVector; i += block.threads()) {
          turn<kVector>(p, from, i * kVector, cosines, sines);
        }
      } else {
        for (std::int64_t i = thread; i < p.heads * p.half; i += block.threads()) turn<1>(p, from, i, cosines, sines);
      }
    });
  }

 private:
  /// kCount pairs of the token that begins `from`, the `first` of all heads on; within one head.
  template <int kCount>
  RONDO_KERNEL static void turn(const RopeParams& p, std::int64_t from, std::int64_t first, const float* cosines,
                                const float* sines) {
    const std::int64_t left = from + first / p.half * 2 * p.half + first % p.half;
    const std::int64_t right = left + p.half;
    const auto pair = static_cast<int>(first % p.half);
    auto a = load_vector<kCount>(static_cast<const T*>(p.x) + left);
    auto b = load_vector<kCount>(static_cast<const T*>(p.x) + right);
    RONDO_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const float turned = a[i] * cosines[pair + i] - b[i] * sines[pair + i];
      b[i] = b[i] * cosines[pair + i] + a[i] * sines[pair + i];
      a[i] = turned;
    }
    store_vector<kCount>(static_cast<T*>(p.y) + left, a);
    store_vector<kCount>(static_cast<T*>(p.y) + right, b);
  }
};

}  // namespace rondo::devices::cuda
