// Rotary position embedding: a block a token. The angles of its pairs are computed once, for all heads.
#pragma once

#include "params.h"
#include "sequences.h"
#include "vectors.h"

namespace rondo::devices::cuda {

/// Of a sequence of `length` tokens, more than dynamic_from: see devices/rope.h.
RONDO_KERNEL float dynamic_frequency(const RopeParams& p, std::int32_t length, int pair) {
  if (p.has_long) return p.long_frequencies[pair];
  const double width = 2.0 * p.half;
  const double stretch = p.factor * static_cast<double>(length) / static_cast<double>(p.dynamic_from);
  const double base = p.theta * pow(stretch - (p.factor - 1.0), width / (width - 2.0));
  const float exponent = static_cast<float>(2 * pair) / static_cast<float>(width);
  return 1.0F / static_cast<float>(pow(static_cast<double>(static_cast<float>(base)), static_cast<double>(exponent)));
}

RONDO_KERNEL float amplitude_at(const RopeParams& p, std::int32_t position) {
  if (p.grows_from == 0 || static_cast<std::uint32_t>(position) < p.grows_from) return p.amplitude;
  const std::uint32_t steps = static_cast<std::uint32_t>(position) / p.grows_from;
  return p.amplitude * (1.0F + p.growth * logf(1.0F + static_cast<float>(steps)));
}

RONDO_KERNEL bool rope_by_vectors(const RopeParams& p) { return p.half % kVector == 0 && p.head_dim % kVector == 0; }

template <typename T>
struct Rope {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const RopeParams& p) {
    auto* cosines = reinterpret_cast<float*>(block.shared());  // [half]
    float* sines = cosines + p.half;                           // [half]
    const auto token = static_cast<std::int32_t>(block.x());
    const std::int64_t from = block.x() * p.heads * p.head_dim;
    const bool by_vectors = rope_by_vectors(p);
    const std::int64_t vectors = by_vectors ? p.heads * p.half / kVector : 0;
    typename Block::template Own<Pairs<kVector>> first;  // a thread's, read while the angles are computed
    block.each([&](int thread) {
      if (thread < vectors) first[thread] = read<kVector>(p, from, static_cast<std::int64_t>(thread) * kVector);
      if (thread >= p.half) return;
      const Span sequence = p.dynamic_from == 0 ? Span{0, 0} : sequence_at(p.bounds, token);
      const std::int32_t length = sequence.end - sequence.begin;
      const float amplitude = amplitude_at(p, p.positions[token]);
      for (int pair = thread; pair < p.half; pair += block.threads()) {
        const bool dynamic = p.dynamic_from > 0 && static_cast<std::uint32_t>(length) > p.dynamic_from;
        const float frequency = dynamic ? dynamic_frequency(p, length, pair) : p.frequencies[pair];
        const float angle = static_cast<float>(p.positions[token]) * frequency;
        cosines[pair] = cosf(angle) * amplitude;
        sines[pair] = sinf(angle) * amplitude * p.direction;
      }
    });
    block.local([&](int thread) {
      if (by_vectors) {
        if (thread < vectors) {
          turn<kVector>(p, from, static_cast<std::int64_t>(thread) * kVector, first[thread], cosines, sines);
        }
        for (std::int64_t i = thread + block.threads(); i < vectors; i += block.threads()) {
          Pairs<kVector> pairs = read<kVector>(p, from, i * kVector);
          turn<kVector>(p, from, i * kVector, pairs, cosines, sines);
        }
      } else {
        for (std::int64_t i = thread; i < p.heads * p.half; i += block.threads()) {
          Pairs<1> pairs = read<1>(p, from, i);
          turn<1>(p, from, i, pairs, cosines, sines);
        }
      }
      if (p.head_dim > 2 * p.half) {
        by_vectors ? keep_others<kVector>(p, from, thread, block.threads())
                   : keep_others<1>(p, from, thread, block.threads());
      }
    });
  }

 private:
  /// Pairs next to each other: their left and their right halves.
  template <int kCount>
  struct Pairs {
    Numbers<kCount> left;
    Numbers<kCount> right;
  };
  /// Where the left half of a token's pair lies: the token's numbers begin `from`, pairs count over all heads.
  RONDO_KERNEL static std::int64_t place_of(const RopeParams& p, std::int64_t from, std::int64_t pair) {
    return from + pair / p.half * p.head_dim + pair % p.half;
  }
  /// Channels behind those of the pairs: by vectors these are whole vectors too.
  template <int kCount>
  RONDO_KERNEL static void keep_others(const RopeParams& p, std::int64_t from, int thread, int threads) {
    const std::int64_t pieces = (p.head_dim - 2 * p.half) / kCount;  // of a head
    for (std::int64_t i = thread; i < p.heads * pieces; i += threads) {
      const std::int64_t place = from + i / pieces * p.head_dim + 2 * p.half + i % pieces * kCount;
      store_vector<kCount>(static_cast<T*>(p.y) + place, load_vector<kCount>(static_cast<const T*>(p.x) + place));
    }
  }
  template <int kCount>
  RONDO_KERNEL static Pairs<kCount> read(const RopeParams& p, std::int64_t from, std::int64_t first) {
    const T* const x = static_cast<const T*>(p.x) + place_of(p, from, first);
    return {load_vector<kCount>(x), load_vector<kCount>(x + p.half)};
  }
  template <int kCount>
  RONDO_KERNEL static void turn(const RopeParams& p, std::int64_t from, std::int64_t first, Pairs<kCount>& pairs,
                                const float* cosines, const float* sines) {
    const auto pair = static_cast<int>(first % p.half);
    RONDO_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const float left = pairs.left[i];
      const float right = pairs.right[i];
      pairs.left[i] = left * cosines[pair + i] - right * sines[pair + i];
      pairs.right[i] = right * cosines[pair + i] + left * sines[pair + i];
    }
    T* const y = static_cast<T*>(p.y) + place_of(p, from, first);
    store_vector<kCount>(y, pairs.left);
    store_vector<kCount>(y + p.half, pairs.right);
  }
};

}  // namespace rondo::devices::cuda
