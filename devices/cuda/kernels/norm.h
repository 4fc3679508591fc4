// Norms and their gradient: a block a row. The kernel of dx leaves each row's scale, and where the norm is centred its
// mean, for the weight's gradient.
//
// Where a row is a vector or two for each thread, all that is read of it is read at once and kept in registers; else it
// is read again when the sums are known. The order of the sums is the same.
#pragma once

#include "params.h"
#include "vectors.h"

namespace rondo::devices::cuda {

/// A thread's part of a row: kHeld vectors, `threads` vectors apart.
template <int kHeld>
using HeldRow = Array<Numbers<kVector>, static_cast<std::size_t>(kHeld)>;

/// Runs body(k, d) for the vectors k that a thread holds, which begin at column d.
template <int kHeld, typename Body>
RONDO_KERNEL void for_held(std::int64_t width, int thread, int threads, Body body) {
  RONDO_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    const std::int64_t d = (static_cast<std::int64_t>(k) * threads + thread) * kVector;
    if (d < width) body(k, d);
  }
}

/// Runs a kernel on a row by what its threads can hold: of_held<1 or 2>(), or of_memory() where rows are not made of
/// vectors or a thread would have more than two.
template <typename Kernel, typename Block>
RONDO_KERNEL void over_row(Block& block, const NormParams& p) {
  const std::int64_t at_once = static_cast<std::int64_t>(block.threads()) * kVector;
  if (p.width % kVector != 0 || p.width > 2 * at_once) {
    Kernel::of_memory(block, p);
  } else if (p.width > at_once) {
    Kernel::template of_held<2>(block, p);
  } else {
    Kernel::template of_held<1>(block, p);
  }
}

/// What a norm multiplies by: some of a row's weights, times their factor, and the offset.
template <int kCount>
RONDO_KERNEL Numbers<kCount> load_gain(const NormParams& p, std::int64_t d) {
  Numbers<kCount> gain{};
  if (p.w != nullptr) gain = load_any_vector<kCount>(p.w, p.weight_storage, d);
  RONDO_UNROLL
  for (int i = 0; i < kCount; ++i) gain[i] = gain[i] * p.weight_factor + p.weight_offset;
  return gain;
}

/// To what a norm gives, where it has a bias.
template <int kCount>
RONDO_KERNEL void add_bias(Numbers<kCount>& some, const NormParams& p, std::int64_t d) {
  if (p.bias != nullptr) add_vector(some, load_any_vector<kCount>(p.bias, p.weight_storage, d));
}

/// The sum of term(x) over a row that threads hold.
template <int kHeld, typename Block, typename Term>
RONDO_KERNEL float sum_of_held(Block& block, const NormParams& p, typename Block::template Own<HeldRow<kHeld>>& row,
                               Term term) {
  typename Block::template Own<float> sums;
  block.local([&](int thread) {
    float sum = 0;
    for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t) {
      RONDO_UNROLL
      for (int i = 0; i < kVector; ++i) sum += term(row[thread][k][i]);
    });
    sums[thread] = sum;
  });
  return block.sum(sums);
}

/// Over a row in memory.
template <typename T, typename Block, typename Term>
RONDO_KERNEL float sum_of_row(Block& block, const NormParams& p, const T* x, Term term) {
  typename Block::template Own<float> sums;
  block.local([&](int thread) {
    float sum = 0;
    for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t d) {
      constexpr int kCount = decltype(vector)::kNumbers;
      auto some = load_vector<kCount>(x + d);
      RONDO_UNROLL
      for (int i = 0; i < kCount; ++i) sum += term(some[i]);
    });
    sums[thread] = sum;
  });
  return block.sum(sums);
}

template <typename T, typename Block>
RONDO_KERNEL float mean_of_row(Block& block, const NormParams& p, const T* x) {
  return sum_of_row(block, p, x, [](float number) { return number; }) / static_cast<float>(p.width);
}

/// Takes its mean off a row that threads hold, and says what it was.
template <int kHeld, typename Block>
RONDO_KERNEL float centre_held(Block& block, const NormParams& p, typename Block::template Own<HeldRow<kHeld>>& row) {
  const float mean =
      sum_of_held<kHeld>(block, p, row, [](float number) { return number; }) / static_cast<float>(p.width);
  block.local([&](int thread) {
    for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t) {
      RONDO_UNROLL
      for (int i = 0; i < kVector; ++i) row[thread][k][i] -= mean;
    });
  });
  return mean;
}

/// kCentred: as LayerNorm, of which alone there may be a bias. Else nothing of that is compiled, for registers are few.
template <typename T, bool kCentred>
struct NormOf {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const NormParams& p) {
    over_row<NormOf>(block, p);
  }

  template <int kHeld, typename Block>
  RONDO_KERNEL static void of_held(Block& block, const NormParams& p) {
    const T* const x = static_cast<const T*>(p.x) + block.x() * p.width;
    T* const y = static_cast<T*>(p.y) + block.x() * p.width;
    typename Block::template Own<HeldRow<kHeld>> row;
    typename Block::template Own<HeldRow<kHeld>> weights;
    block.local([&](int thread) {
      for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t d) {
        row[thread][k] = load_vector<kVector>(x + d);
        weights[thread][k] = load_gain<kVector>(p, d);
      });
    });
    if constexpr (kCentred) centre_held<kHeld>(block, p, row);
    const float squares = sum_of_held<kHeld>(block, p, row, [](float number) { return number * number; });
    const float scale = 1.0F / sqrtf(squares / static_cast<float>(p.width) + p.epsilon);
    block.local([&](int thread) {
      for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t d) {
        Numbers<kVector> some;
        RONDO_UNROLL
        for (int i = 0; i < kVector; ++i) some[i] = row[thread][k][i] * scale * weights[thread][k][i];
        if constexpr (kCentred) add_bias<kVector>(some, p, d);
        store_vector<kVector>(y + d, some);
      });
    });
  }

  template <typename Block>
  RONDO_KERNEL static void of_memory(Block& block, const NormParams& p) {
    const T* const x = static_cast<const T*>(p.x) + block.x() * p.width;
    T* const y = static_cast<T*>(p.y) + block.x() * p.width;
    float mean = 0;
    if constexpr (kCentred) mean = mean_of_row(block, p, x);
    const float squares = sum_of_row(block, p, x, [mean](float number) { return (number - mean) * (number - mean); });
    const float scale = 1.0F / sqrtf(squares / static_cast<float>(p.width) + p.epsilon);
    block.local([&](int thread) {
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto some = load_vector<kCount>(x + d);
        auto weights = load_gain<kCount>(p, d);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) some[i] = (some[i] - mean) * scale * weights[i];
        if constexpr (kCentred) add_bias<kCount>(some, p, d);
        store_vector<kCount>(y + d, some);
      });
    });
  }
};

/// With n = r c, c = x or x - mean(x), and the gain g: dx = r (g dy - n mean(n g dy)) + addend, where it is centred
/// less r mean(g dy).
template <typename T, bool kCentred>
struct NormBackwardOf {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const NormParams& p) {
    over_row<NormBackwardOf>(block, p);
  }

  template <int kHeld, typename Block>
  RONDO_KERNEL static void of_held(Block& block, const NormParams& p) {
    const std::int64_t first = block.x() * p.width;
    const T* const addend = p.addend == nullptr ? nullptr : static_cast<const T*>(p.addend) + first;
    typename Block::template Own<HeldRow<kHeld>> row;
    typename Block::template Own<HeldRow<kHeld>> gradients;  // times the gain
    typename Block::template Own<HeldRow<kHeld>> more;
    RowSums<Block> own;
    block.local([&](int thread) {
      HeldRow<kHeld> weights;
      for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t d) {
        row[thread][k] = load_vector<kVector>(static_cast<const T*>(p.x) + first + d);
        gradients[thread][k] = load_vector<kVector>(static_cast<const T*>(p.dy) + first + d);
        weights[k] = load_gain<kVector>(p, d);
        if (addend != nullptr) more[thread][k] = load_vector<kVector>(addend + d);
      });
      if constexpr (kCentred) {
        for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t) {
          RONDO_UNROLL
          for (int i = 0; i < kVector; ++i) gradients[thread][k][i] *= weights[k][i];
        });
        return;
      }
      float square = 0;
      float product = 0;
      for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t) {
        RONDO_UNROLL
        for (int i = 0; i < kVector; ++i) {
          const float x = row[thread][k][i];
          square += x * x;
          product += x * weights[k][i] * gradients[thread][k][i];
          gradients[thread][k][i] *= weights[k][i];
        }
      });
      own.squares[thread] = square;
      own.products[thread] = product;
    });
    float mean = 0;
    if constexpr (kCentred) {
      mean = centre_held<kHeld>(block, p, row);
      sum_held<kHeld>(block, p, row, gradients, own);
    }
    const Sums sums = sums_of(block, p, own, mean);
    block.local([&](int thread) {
      for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t d) {
        Numbers<kVector> some;
        RONDO_UNROLL
        for (int i = 0; i < kVector; ++i) {
          some[i] = sums.scale * (gradients[thread][k][i] - sums.slope - row[thread][k][i] * sums.scale * sums.product);
          if (addend != nullptr) some[i] += more[thread][k][i];
        }
        store_vector<kVector>(static_cast<T*>(p.y) + first + d, some);
      });
    });
  }

  template <typename Block>
  RONDO_KERNEL static void of_memory(Block& block, const NormParams& p) {
    const std::int64_t first = block.x() * p.width;
    const T* const x = static_cast<const T*>(p.x) + first;
    const T* const dy = static_cast<const T*>(p.dy) + first;
    const T* const addend = p.addend == nullptr ? nullptr : static_cast<const T*>(p.addend) + first;
    T* const dx = static_cast<T*>(p.y) + first;
    float mean = 0;
    if constexpr (kCentred) mean = mean_of_row(block, p, x);
    RowSums<Block> own;
    block.local([&](int thread) {
      float square = 0;
      float product = 0;
      float slope = 0;
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto some = load_vector<kCount>(x + d);
        auto gradients = load_vector<kCount>(dy + d);
        auto weights = load_gain<kCount>(p, d);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) {
          const float centred = some[i] - mean;
          square += centred * centred;
          product += centred * weights[i] * gradients[i];
          if constexpr (kCentred) slope += weights[i] * gradients[i];
        }
      });
      own.squares[thread] = square;
      own.products[thread] = product;
      if constexpr (kCentred) own.slopes[thread] = slope;
    });
    const Sums sums = sums_of(block, p, own, mean);
    block.local([&](int thread) {
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto some = load_vector<kCount>(x + d);
        auto gradients = load_vector<kCount>(dy + d);
        auto weights = load_gain<kCount>(p, d);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) {
          some[i] =
              sums.scale * (weights[i] * gradients[i] - sums.slope - (some[i] - mean) * sums.scale * sums.product);
        }
        if (addend != nullptr) {
          add_vector(some, load_vector<kCount>(addend + d));
        }
        store_vector<kCount>(dx + d, some);
      });
    });
  }

 private:
  /// A thread's part of a row's sums: of squares, of n g dy / r and of g dy.
  template <typename Block>
  struct RowSums {
    typename Block::template Own<float> squares;
    typename Block::template Own<float> products;
    typename Block::template Own<float> slopes;
  };
  /// Of a row: r, the mean of n g dy and, where the norm is centred, that of g dy.
  struct Sums {
    float scale;
    float product;
    float slope;
  };
  /// Of what a thread holds of a centred row, and of g dy.
  template <int kHeld, typename Block>
  RONDO_KERNEL static void sum_held(Block& block, const NormParams& p,
                                    typename Block::template Own<HeldRow<kHeld>>& row,
                                    typename Block::template Own<HeldRow<kHeld>>& gradients, RowSums<Block>& own) {
    block.local([&](int thread) {
      float square = 0;
      float product = 0;
      float slope = 0;
      for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t) {
        RONDO_UNROLL
        for (int i = 0; i < kVector; ++i) {
          const float x = row[thread][k][i];
          square += x * x;
          product += x * gradients[thread][k][i];
          slope += gradients[thread][k][i];
        }
      });
      own.squares[thread] = square;
      own.products[thread] = product;
      own.slopes[thread] = slope;
    });
  }
  template <typename Block>
  RONDO_KERNEL static Sums sums_of(Block& block, const NormParams& p, RowSums<Block>& own, float mean) {
    const auto width = static_cast<float>(p.width);
    const float scale = 1.0F / sqrtf(block.sum(own.squares) / width + p.epsilon);
    const float product = scale * block.sum(own.products) / width;
    float slope = 0;
    if constexpr (kCentred) slope = block.sum(own.slopes) / width;
    block.local([&](int thread) {
      if (thread != 0) return;
      if (p.scales != nullptr) p.scales[block.x()] = scale * p.weight_factor;
      if constexpr (kCentred) {
        if (p.means != nullptr) p.means[block.x()] = mean;
      }
    });
    return {scale, product, slope};
  }
};

template <typename T>
using Norm = NormOf<T, false>;
template <typename T>
using LayerNorm = NormOf<T, true>;
template <typename T>
using NormBackward = NormBackwardOf<T, false>;
template <typename T>
using LayerNormBackward = NormBackwardOf<T, true>;

}  // namespace rondo::devices::cuda
