// RMSNorm and its gradient: a block a row. The kernel of dx leaves each row's scale for the weight's gradient.
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
  Numbers<kCount> gain = load_any_vector<kCount>(p.w, p.weight_storage, d);
  RONDO_UNROLL
  for (int i = 0; i < kCount; ++i) gain[i] = gain[i] * p.weight_factor + p.weight_offset;
  return gain;
}

template <typename T>
struct Norm {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const NormParams& p) {
    over_row<Norm>(block, p);
  }

  template <int kHeld, typename Block>
  RONDO_KERNEL static void of_held(Block& block, const NormParams& p) {
    const T* const x = static_cast<const T*>(p.x) + block.x() * p.width;
    T* const y = static_cast<T*>(p.y) + block.x() * p.width;
    typename Block::template Own<HeldRow<kHeld>> row;
    typename Block::template Own<HeldRow<kHeld>> weights;
    typename Block::template Own<float> squares;
    block.local([&](int thread) {
      for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t d) {
        row[thread][k] = load_vector<kVector>(x + d);
        weights[thread][k] = load_gain<kVector>(p, d);
      });
      float sum = 0;
      for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t) {
        RONDO_UNROLL
        for (int i = 0; i < kVector; ++i) sum += row[thread][k][i] * row[thread][k][i];
      });
      squares[thread] = sum;
    });
    const float scale = 1.0F / sqrtf(block.sum(squares) / static_cast<float>(p.width) + p.epsilon);
    block.local([&](int thread) {
      for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t d) {
        Numbers<kVector> some;
        RONDO_UNROLL
        for (int i = 0; i < kVector; ++i) some[i] = row[thread][k][i] * scale * weights[thread][k][i];
        store_vector<kVector>(y + d, some);
      });
    });
  }

  template <typename Block>
  RONDO_KERNEL static void of_memory(Block& block, const NormParams& p) {
    const T* const x = static_cast<const T*>(p.x) + block.x() * p.width;
    T* const y = static_cast<T*>(p.y) + block.x() * p.width;
    typename Block::template Own<float> squares;
    block.local([&](int thread) {
      float sum = 0;
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto some = load_vector<kCount>(x + d);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) sum += some[i] * some[i];
      });
      squares[thread] = sum;
    });
    const float scale = 1.0F / sqrtf(block.sum(squares) / static_cast<float>(p.width) + p.epsilon);
    block.local([&](int thread) {
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto some = load_vector<kCount>(x + d);
        auto weights = load_gain<kCount>(p, d);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) some[i] = some[i] * scale * weights[i];
        store_vector<kCount>(y + d, some);
      });
    });
  }
};

/// With n = x r and the gain g: dx = r (g dy - n mean(n g dy)) + addend.
template <typename T>
struct NormBackward {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const NormParams& p) {
    over_row<NormBackward>(block, p);
  }

  template <int kHeld, typename Block>
  RONDO_KERNEL static void of_held(Block& block, const NormParams& p) {
    const std::int64_t first = block.x() * p.width;
    const T* const addend = p.addend == nullptr ? nullptr : static_cast<const T*>(p.addend) + first;
    typename Block::template Own<HeldRow<kHeld>> row;
    typename Block::template Own<HeldRow<kHeld>> gradients;  // times the gain
    typename Block::template Own<HeldRow<kHeld>> more;
    typename Block::template Own<float> squares;
    typename Block::template Own<float> products;
    block.local([&](int thread) {
      HeldRow<kHeld> weights;
      for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t d) {
        row[thread][k] = load_vector<kVector>(static_cast<const T*>(p.x) + first + d);
        gradients[thread][k] = load_vector<kVector>(static_cast<const T*>(p.dy) + first + d);
        weights[k] = load_gain<kVector>(p, d);
        if (addend != nullptr) more[thread][k] = load_vector<kVector>(addend + d);
      });
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
      squares[thread] = square;
      products[thread] = product;
    });
    const Sums sums = sums_of(block, p, squares, products);
    block.local([&](int thread) {
      for_held<kHeld>(p.width, thread, block.threads(), [&](int k, std::int64_t d) {
        Numbers<kVector> some;
        RONDO_UNROLL
        for (int i = 0; i < kVector; ++i) {
          some[i] = sums.scale * (gradients[thread][k][i] - row[thread][k][i] * sums.scale * sums.mean);
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
    typename Block::template Own<float> squares;
    typename Block::template Own<float> products;
    block.local([&](int thread) {
      float square = 0;
      float product = 0;
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto some = load_vector<kCount>(x + d);
        auto gradients = load_vector<kCount>(dy + d);
        auto weights = load_gain<kCount>(p, d);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) {
          square += some[i] * some[i];
          product += some[i] * weights[i] * gradients[i];
        }
      });
      squares[thread] = square;
      products[thread] = product;
    });
    const Sums sums = sums_of(block, p, squares, products);
    block.local([&](int thread) {
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t d) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto some = load_vector<kCount>(x + d);
        auto gradients = load_vector<kCount>(dy + d);
        auto weights = load_gain<kCount>(p, d);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) {
          some[i] = sums.scale * (weights[i] * gradients[i] - some[i] * sums.scale * sums.mean);
        }
        if (addend != nullptr) {
          add_vector(some, load_vector<kCount>(addend + d));
        }
        store_vector<kCount>(dx + d, some);
      });
    });
  }

 private:
  /// Of a row, from its sums of squares and of x g dy.
  struct Sums {
    float scale;
    float mean;
  };
  template <typename Block>
  RONDO_KERNEL static Sums sums_of(Block& block, const NormParams& p, typename Block::template Own<float>& squares,
                                   typename Block::template Own<float>& products) {
    const auto width = static_cast<float>(p.width);
    const float scale = 1.0F / sqrtf(block.sum(squares) / width + p.epsilon);
    const float mean = scale * block.sum(products) / width;
    block.local([&](int thread) {
      if (thread == 0 && p.scales != nullptr) p.scales[block.x()] = scale * p.weight_factor;
    });
    return {scale, mean};
  }
};

}  // namespace rondo::devices::cuda
