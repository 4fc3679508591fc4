// What an optimizer does: rows added to a table, sums of squares, AdamW. The bits are those of update.h.
#pragma once

#include "elementwise.h"
#include "rondo/devices/moment_tables.h"
#include "rondo/devices/update_block.h"

namespace rondo::devices::cuda {

/// A block a row: of a list of as many as there may be.
struct AddRows {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AddRowsParams& p) {
    if (block.x() >= p.ids[0]) return;
    const std::int32_t row = p.ids[1 + block.x()];
    if (row < 0 || row >= p.height) {
      block.each([&](int thread) {
        if (thread == 0) *p.fault = {Fault::Code::kIdPastTable, static_cast<std::int32_t>(block.x()), row, p.height};
      });
      return;
    }
    if (row == p.padding_row) return;
    float* to = p.table + row * p.width;
    const float* from = p.rows + block.x() * p.width;
    block.each([&](int thread) {
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto sum = load_vector<kCount>(to + d);
        add_vector(sum, load_vector<kCount>(from + d));
        store_vector<kCount>(to + d, sum);
      });
    });
  }
};

/// Threads that share a block of kUpdateBlock: a partial sum each.
inline constexpr int kPartialSums = 8;
inline constexpr int kSquaresOfBlock = kMostThreads / kPartialSums;

/// Products in fp64 of numbers of fp32 are exact: whether they are fused makes no difference.
struct SumOfSquares {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const SumOfSquaresParams& p) {
    auto* partial = reinterpret_cast<double*>(block.shared());
    block.each([&](int thread) {
      const std::int64_t place = block.x() * kSquaresOfBlock + thread / kPartialSums;
      if (place >= p.blocks) return;
      const float* x = p.x + place * static_cast<std::int64_t>(kUpdateBlock) + thread % kPartialSums;
      double sum = 0;
      constexpr int kAtOnce = 16;  // reads under way
      for (std::size_t i = 0; i < kUpdateBlock; i += kPartialSums * kAtOnce) {
        Numbers<kAtOnce> some;
        RONDO_UNROLL
        for (int k = 0; k < kAtOnce; ++k) some[k] = x[i + static_cast<std::size_t>(k * kPartialSums)];
        RONDO_UNROLL
        for (int k = 0; k < kAtOnce; ++k) sum += static_cast<double>(some[k]) * static_cast<double>(some[k]);
      }
      partial[thread] = sum;
    });
    block.each([&](int thread) {
      const std::int64_t place = block.x() * kSquaresOfBlock + thread;
      if (thread >= kSquaresOfBlock || place >= p.blocks) return;
      const double* s = partial + thread * kPartialSums;
      p.sums[place] = ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
    });
  }
};

/// Of the element behind the block's key by `index`.
RONDO_KERNEL std::uint32_t dither(std::uint32_t key, std::uint32_t index) {
  std::uint32_t r = key + index;
  r = (r ^ (r >> 16U)) * 0x7FEB352DU;
  return (r ^ (r >> 15U)) * 0x846CA68BU;
}

template <typename T>
RONDO_KERNEL std::uint16_t rounded_stochastically(float x, std::uint32_t random) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if constexpr (T::kIsBfloat) {
    const std::uint32_t narrow = magnitude > 0x7F800000U ? (bits >> 16U) | 0x40U : (bits + (random >> 16U)) >> 16U;
    return static_cast<std::uint16_t>(narrow);
  }
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00U;
  } else if (magnitude > 0x477FEFFFU) {
    half = 0x7C00U;
  } else {
    const std::uint32_t dithering = random >> 19U;
    if (magnitude < 0x38800000U) {
      half = (static_cast<std::uint32_t>(float_of(magnitude) * 0x1p37F) + dithering) >> 13U;
    } else {
      half = (magnitude - 0x38000000U + dithering) >> 13U;
    }
    if (half > 0x7BFFU) half = 0x7BFFU;
  }
  return static_cast<std::uint16_t>(half | ((bits >> 31U) << 15U));
}

struct UpdateFactors {
  float gradient_factor, kept, rest1, beta2, rest2, epsilon, step_size, inverse_correction2;
};
static_assert(sizeof(UpdateFactors) == kUpdateFactors * sizeof(float));

/// One update of a thread's kVector numbers from a place of the flat arrays on, see adamw(). T: what is published in;
/// float where the masters are.
template <typename T>
struct UpdateVector {
  template <typename Params>
  RONDO_KERNEL static void run(const Params& p, const UpdateFactors& f, std::uint32_t key, std::uint32_t within,
                               std::int64_t first, Numbers<kVector>& m, Numbers<kVector>& v) {
    auto gradient = load_vector<kVector>(p.gradient + first);
    auto master = load_vector<kVector>(p.master + first);
    RONDO_UNROLL
    for (int i = 0; i < kVector; ++i) {
      const float g = rounded_product(gradient[i], f.gradient_factor);
      m[i] = rounded_product(g - m[i], f.rest1) + m[i];
      v[i] = rounded_product(rounded_product(g, g), f.rest2) + rounded_product(v[i], f.beta2);
      const float denominator = rounded_product(sqrtf(v[i]), f.inverse_correction2) + f.epsilon;
      master[i] = rounded_product(master[i], f.kept) - rounded_product(f.step_size, m[i] / denominator);
    }
    store_vector<kVector>(p.master + first, master);
    if constexpr (sizeof(T) == 2) {
      Vector16 narrow;
      RONDO_UNROLL
      for (int i = 0; i < kVector; ++i) {
        narrow.bits[i] = rounded_stochastically<T>(master[i], dither(key, within + static_cast<std::uint32_t>(i)));
      }
      *reinterpret_cast<Vector16*>(static_cast<T*>(p.published) + first) = narrow;
    }
  }

 private:
  struct alignas(16) Vector16 {
    std::uint16_t bits[kVector];
  };
};

template <typename T>
struct AdamW {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AdamWParams& p) {
    constexpr std::int64_t kOfBlock = static_cast<std::int64_t>(kUpdateBlock) / kElementsOfBlock;
    const std::int32_t* owner = p.owners + 2 * (block.x() / kOfBlock);
    const UpdateFactors f = reinterpret_cast<const UpdateFactors*>(p.factors)[owner[0]];
    const std::uint32_t key = rounding_key(p.keys[owner[0]], static_cast<std::size_t>(owner[1]));
    const auto begin = static_cast<std::uint32_t>(block.x() % kOfBlock * kElementsOfBlock);
    block.each([&](int thread) {
      const std::uint32_t within = begin + static_cast<std::uint32_t>(thread * kVector);
      const std::int64_t first = block.x() * kElementsOfBlock + static_cast<std::int64_t>(thread) * kVector;
      auto m = load_vector<kVector>(p.first + first);
      auto v = load_vector<kVector>(p.second + first);
      UpdateVector<T>::run(p, f, key, within, first, m, v);
      store_vector<kVector>(p.first + first, m);
      store_vector<kVector>(p.second + first, v);
    });
  }
};

static_assert(kWarp * kVector == kMomentBlock);

/// The same with moments in codes: a block kUpdateBlock elements, a warp kMomentBlock of them at a time.
template <typename T>
struct AdamW8 {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const AdamW8Params& p) {
    auto* const words = reinterpret_cast<std::int32_t*>(block.shared());
    const auto& tables = *reinterpret_cast<const MomentTables*>(block.shared());
    const std::int32_t* owner = p.owners + 2 * block.x();
    const UpdateFactors f = reinterpret_cast<const UpdateFactors*>(p.factors)[owner[0]];
    const std::uint32_t key = rounding_key(p.keys[owner[0]], static_cast<std::size_t>(owner[1]));
    typename Block::template Own<Numbers<kVector>> m;
    typename Block::template Own<Numbers<kVector>> v;
    typename Block::template Own<float> first_scale;
    typename Block::template Own<float> second_scale;
    block.each([&](int thread) {
      for (int i = thread; i < kMomentTableWords; i += block.threads()) words[i] = p.tables[i];
    });
    constexpr auto kAll = static_cast<int>(kUpdateBlock);
    for (int begin = 0; begin < kAll; begin += kElementsOfBlock) {
      const auto place_of = [&](int thread) { return block.x() * kAll + begin + thread * kVector; };
      block.local([&](int thread) {
        const std::int64_t place = place_of(thread);
        const auto of_scale = place / static_cast<std::int64_t>(kMomentBlock);
        m[thread] = decoded(p.first_codes + place / 4, tables.values[0], p.first_scales[of_scale]);
        v[thread] = decoded(p.second_codes + place / 4, tables.values[1], p.second_scales[of_scale]);
        UpdateVector<T>::run(p, f, key, static_cast<std::uint32_t>(begin + thread * kVector), place, m[thread],
                             v[thread]);
        first_scale[thread] = largest(m[thread]);
        second_scale[thread] = largest(v[thread]);
      });
      block.warp_max([&](int thread) -> float& { return first_scale[thread]; });
      block.warp_max([&](int thread) -> float& { return second_scale[thread]; });
      block.local([&](int thread) {
        const std::int64_t place = place_of(thread);
        encode(p.first_codes + place / 4, m[thread], first_scale[thread],
               [&](float x, std::uint32_t bits) { return signed_moment_code(tables, x, bits); });
        encode(p.second_codes + place / 4, v[thread], second_scale[thread],
               [&](float x, std::uint32_t bits) { return unsigned_moment_code(tables, x, bits); });
        if (thread % kWarp != 0) return;
        p.first_scales[place / static_cast<std::int64_t>(kMomentBlock)] = first_scale[thread];
        p.second_scales[place / static_cast<std::int64_t>(kMomentBlock)] = second_scale[thread];
      });
    }
  }

 private:
  struct alignas(8) Codes {
    std::uint8_t codes[kVector];
  };

  RONDO_KERNEL static Numbers<kVector> decoded(const std::int32_t* from, const float* values, float scale) {
    const Codes packed = *reinterpret_cast<const Codes*>(from);
    Numbers<kVector> x;
    RONDO_UNROLL
    for (int i = 0; i < kVector; ++i) x[i] = rounded_product(values[packed.codes[i]], scale);
    return x;
  }
  RONDO_KERNEL static float largest(Numbers<kVector>& x) {
    float found = 0;
    RONDO_UNROLL
    for (int i = 0; i < kVector; ++i) found = fmaxf(found, fabsf(x[i]));
    return found;
  }
  template <typename CodeOf>
  RONDO_KERNEL static void encode(std::int32_t* to, Numbers<kVector>& x, float scale, CodeOf code_of) {
    const float divisor = scale > 0 ? scale : 1.0F;
    Codes packed;
    RONDO_UNROLL
    for (int i = 0; i < kVector; ++i) {
      const float part = x[i] / divisor;
      packed.codes[i] = static_cast<std::uint8_t>(code_of(part, bits_of(part) & 0x7FFFFFFFU));
    }
    *reinterpret_cast<Codes*>(to) = packed;
  }
};

}  // namespace rondo::devices::cuda
