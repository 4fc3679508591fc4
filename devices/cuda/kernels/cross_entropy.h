// Around the products of the loss over the vocabulary, whole or in parts: which tokens have a target, their rows,
// softmax and its gradient, rows back to their tokens, the sum of the losses.
//
// A chunk always has its full number of rows, zero past the last token with a target: how many there are is known on
// the card alone.
#pragma once

#include "params.h"
#include "vectors.h"

namespace rondo::devices::cuda {

/// Threads that count: kMostThreads consecutive tokens at a time.
inline constexpr int kPlacesShared = 4 * (kMostThreads + 1);

/// Of a row of logits: the largest, and the sum of exponentials over it.
struct LogitSums {
  float maximum = 0;
  float total = 0;
};
/// What a logit counts for.
template <bool kCapped>
RONDO_KERNEL float logit_of(float x, float cap) {
  return kCapped ? cap * tanhf(x / cap) : x;
}
/// Read once: a thread's sum is over the largest that it has met so far.
template <bool kCapped, typename Block>
RONDO_KERNEL LogitSums sums_of_logits(Block& block, const float* logits, std::int64_t count, float cap) {
  typename Block::template Own<float> largest;
  typename Block::template Own<float> sums;
  block.each([&](int thread) {
    float so_far = logit_of<kCapped>(logits[0], cap);
    float sum = 0;
    for_row(count, thread, block.threads(), [&](auto vector, std::int64_t v) {
      constexpr int kCount = decltype(vector)::kNumbers;
      auto some = load_vector<kCount>(logits + v);
      if constexpr (kCapped) {
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) some[i] = logit_of<kCapped>(some[i], cap);
      }
      float now = so_far;
      RONDO_UNROLL
      for (int i = 0; i < kCount; ++i) now = fmaxf(now, some[i]);
      if (now > so_far) {
        sum *= expf(so_far - now);
        so_far = now;
      }
      RONDO_UNROLL
      for (int i = 0; i < kCount; ++i) sum += expf(some[i] - so_far);
    });
    largest[thread] = so_far;
    sums[thread] = sum;
  });
  const float maximum = block.max(largest);
  block.local([&](int thread) { sums[thread] *= expf(largest[thread] - maximum); });
  return {maximum, block.sum(sums)};
}
template <typename Block>
RONDO_KERNEL LogitSums sums_of_logits(Block& block, const float* logits, const CrossEntropyParams& p) {
  return p.cap > 0 ? sums_of_logits<true>(block, logits, p.rows, p.cap)
                   : sums_of_logits<false>(block, logits, p.rows, p.cap);
}
RONDO_KERNEL float logit_of(float x, const CrossEntropyParams& p) { return p.cap > 0 ? logit_of<true>(x, p.cap) : x; }

/// places: the tokens that have a target, in order. One block.
struct EntropyPlaces {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const CrossEntropyParams& p) {
    auto* counts = reinterpret_cast<std::int32_t*>(block.shared());  // [threads] inclusive sums
    typename Block::template Own<std::int32_t> has;
    typename Block::template Own<std::int32_t> addend;
    std::int32_t found = 0;
    for (std::int32_t first = 0; first < p.tokens; first += block.threads()) {
      block.each([&](int thread) {
        const std::int32_t token = first + thread;
        const std::int32_t target = token < p.tokens ? p.targets[token] : -1;
        if (target >= p.vocabulary) *p.fault = {Fault::Code::kTargetPastVocabulary, token, target, p.vocabulary};
        has[thread] = target >= 0 && target < p.vocabulary ? 1 : 0;
        counts[thread] = has[thread];
      });
      for (int step = 1; step < block.threads(); step *= 2) {
        block.each([&](int thread) { addend[thread] = thread >= step ? counts[thread - step] : 0; });
        block.each([&](int thread) { counts[thread] += addend[thread]; });
      }
      block.each([&](int thread) {
        if (has[thread] != 0) p.places[found + counts[thread]] = first + thread;  // places[0] is the number
      });
      found += counts[block.threads() - 1];
      block.each([](int) {});  // `counts` is written again
    }
    block.each([&](int thread) {
      if (thread == 0) p.places[0] = found;
    });
  }
};

/// Rows of x for a chunk; a block a row.
template <typename T>
struct EntropyGather {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const CrossEntropyParams& p) {
    const std::int64_t place = p.begin + block.x();
    const bool real = place < p.places[0];
    const std::int64_t token = real ? p.places[1 + place] : 0;
    const T* from = static_cast<const T*>(p.x) + token * p.width;
    T* to = static_cast<T*>(p.gathered) + block.x() * p.width;
    block.each([&](int thread) {
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t c) {
        constexpr int kCount = decltype(vector)::kNumbers;
        store_vector<kCount>(to + c, real ? load_vector<kCount>(from + c) : Numbers<kCount>{});
      });
    });
  }
};

/// Of the parts that `before` has statistics of, where it is not null, and this one.
RONDO_KERNEL LogitSums joined(const float* before, const LogitSums& part) {
  if (before == nullptr) return part;
  const float maximum = fmaxf(before[0], part.maximum);
  return {maximum, before[1] * expf(before[0] - maximum) + part.total * expf(part.maximum - maximum)};
}

/// A row of the gradient: (softmax - onehot) times the loss scale, with a cap times the slope of a logit before it.
/// `target`: its place in the part, or outside of it.
template <bool kCapped, typename T, typename Block>
RONDO_KERNEL void write_slopes(Block& block, const CrossEntropyParams& p, float maximum, float inverse,
                               std::int32_t target) {
  const float* logits = p.logits + block.x() * p.rows;
  T* gradient = static_cast<T*>(p.gradient) + block.x() * p.rows;
  const float scale = p.loss_scale == nullptr ? 1.0F : *p.loss_scale;
  block.each([&](int thread) {  // it may lie over the logits: each element is read by who writes it
    for_row(p.rows, thread, block.threads(), [&](auto vector, std::int64_t v) {
      constexpr int kCount = decltype(vector)::kNumbers;
      auto some = load_vector<kCount>(logits + v);
      RONDO_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const float logit = logit_of<kCapped>(some[i], p.cap);
        some[i] = (expf(logit - maximum) * inverse - (v + i == target ? 1.0F : 0.0F)) * scale;
        if constexpr (kCapped) some[i] *= 1.0F - logit / p.cap * (logit / p.cap);
      }
      store_vector<kCount>(gradient + v, some);
    });
  });
}
template <typename T, typename Block>
RONDO_KERNEL void write_gradient(Block& block, const CrossEntropyParams& p, float maximum, float inverse,
                                 std::int32_t target) {
  if (p.cap > 0) {
    write_slopes<true, T>(block, p, maximum, inverse, target);
  } else {
    write_slopes<false, T>(block, p, maximum, inverse, target);
  }
}

template <typename T, typename Block>
RONDO_KERNEL void clear_gradient(Block& block, const CrossEntropyParams& p) {
  T* gradient = static_cast<T*>(p.gradient) + block.x() * p.rows;
  block.each([&](int thread) {
    for_row(p.rows, thread, block.threads(), [&](auto vector, std::int64_t v) {
      constexpr int kCount = decltype(vector)::kNumbers;
      store_vector<kCount>(gradient + v, Numbers<kCount>{});
    });
  });
}

/// Adds a part of the vocabulary to the statistics of a token; a block a row.
struct EntropyStatistics {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const CrossEntropyParams& p) {
    const std::int64_t place = p.begin + block.x();
    if (place >= p.places[0]) return;
    const std::int64_t token = p.places[1 + place];
    const float* logits = p.logits + block.x() * p.rows;
    const LogitSums part = sums_of_logits(block, logits, p);
    block.each([&](int thread) {
      if (thread != 0) return;
      const float* before = p.before == nullptr ? nullptr : p.before + token * 3;
      const LogitSums sums = joined(before, part);
      const std::int32_t target = p.targets[token] - p.first_row;
      const float elsewhere = before == nullptr ? 0 : before[2];
      p.statistics[token * 3 + 2] = target >= 0 && target < p.rows ? logit_of(logits[target], p) : elsewhere;
      p.statistics[token * 3] = sums.maximum;
      p.statistics[token * 3 + 1] = sums.total;
    });
  }
};

/// Of the last part: a token's loss and normaliser, and where `gradient` is not null the gradient of its logits; a
/// block a row.
template <typename T>
struct EntropySoftmax {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const CrossEntropyParams& p) {
    const std::int64_t place = p.begin + block.x();
    if (place >= p.places[0]) {
      if (p.gradient != nullptr) clear_gradient<T>(block, p);
      return;
    }
    const std::int64_t token = p.places[1 + place];
    const float* before = p.before == nullptr ? nullptr : p.before + token * 3;
    const float* logits = p.logits + block.x() * p.rows;
    const LogitSums sums = joined(before, sums_of_logits(block, logits, p));
    const float inverse = 1.0F / sums.total;
    const std::int32_t target = p.targets[token] - p.first_row;
    block.each([&](int thread) {
      if (thread != 0) return;
      const float target_logit = target >= 0 ? logit_of(logits[target], p) : before[2];
      p.losses[place] =
          log(static_cast<double>(sums.total)) + static_cast<double>(sums.maximum) - static_cast<double>(target_logit);
      p.normalisers[token * 2] = sums.maximum;
      p.normalisers[token * 2 + 1] = inverse;
    });
    if (p.gradient != nullptr) write_gradient<T>(block, p, sums.maximum, inverse, target);
  }
};

/// The gradient of the logits of a part that is not the last; a block a row.
template <typename T>
struct EntropyPart {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const CrossEntropyParams& p) {
    const std::int64_t place = p.begin + block.x();
    if (place >= p.places[0]) {
      clear_gradient<T>(block, p);
      return;
    }
    const std::int64_t token = p.places[1 + place];
    const float* normaliser = p.normalisers + token * 2;
    write_gradient<T>(block, p, normaliser[0], normaliser[1], p.targets[token] - p.first_row);
  }
};

template <typename T, typename Block>
RONDO_KERNEL void copy_row(Block& block, T* to, const T* from, std::int64_t width) {
  block.each([&](int thread) {
    for_row(width, thread, block.threads(), [&](auto vector, std::int64_t c) {
      constexpr int kCount = decltype(vector)::kNumbers;
      store_vector<kCount>(to + c, load_vector<kCount>(from + c));
    });
  });
}

/// A chunk's rows of dx back to their tokens; a block a row.
template <typename T>
struct EntropyScatter {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const CrossEntropyParams& p) {
    const std::int64_t place = p.begin + block.x();
    if (place >= p.places[0]) return;
    const std::int64_t token = p.places[1 + place];
    copy_row(block, static_cast<T*>(p.dx) + token * p.width, static_cast<const T*>(p.dgathered) + block.x() * p.width,
             p.width);
  }
};

/// dx = x, a block a row.
template <typename T>
struct EntropyPass {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const CrossEntropyParams& p) {
    const std::int64_t first = block.x() * p.width;
    copy_row(block, static_cast<T*>(p.dx) + first, static_cast<const T*>(p.x) + first, p.width);
  }
};

/// One block.
struct EntropyLoss {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const CrossEntropyParams& p) {
    typename Block::template Own<double> own;
    const std::int32_t count = p.places[0];
    block.each([&](int thread) {
      double sum = 0;
      for (std::int32_t i = thread; i < count; i += block.threads()) sum += p.losses[i];
      own[thread] = sum;
    });
    const double loss = block.sum(own);
    block.each([&](int thread) {
      if (thread == 0) *p.loss = loss;
    });
  }
};

}  // namespace rondo::devices::cuda
