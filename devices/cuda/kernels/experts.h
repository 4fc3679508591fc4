// A mixture of experts but for its products: which tokens go where, their rows to the experts and back.
#pragma once

#include "params.h"
#include "sequences.h"
#include "vectors.h"

namespace rondo::devices::cuda {

/// Larger for larger numbers, least for NaN: two tokens' places in an order never contradict each other.
RONDO_KERNEL std::uint32_t order_of(float x) {
  if (x != x) return 0;
  const std::uint32_t bits = x == 0 ? 0U : bits_of(x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// A thread may have so many experts, as many apart as a block has threads.
inline constexpr int kExpertsOfThread = 2;

/// Calls body(i, expert) for those of a thread, `count` being the number of all.
template <typename Body>
RONDO_KERNEL void for_experts(int thread, int threads, std::int32_t count, Body body) {
  RONDO_UNROLL
  for (int i = 0; i < kExpertsOfThread; ++i) {
    const int expert = thread + i * threads;
    if (expert < count) body(i, expert);
  }
}

/// What order_of() was of.
RONDO_KERNEL float number_of(std::uint32_t order) {
  return float_of((order & 0x80000000U) != 0 ? order & 0x7FFFFFFFU : ~order);
}

/// A block a token: how many experts come before one is its place.
template <typename T>
struct RouteChoices {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const RouteParams& p) {
    auto* orders = reinterpret_cast<std::uint32_t*>(block.shared());  // [E]
    const std::int64_t token = block.x();
    if (token >= real_tokens(p.bounds)) {
      block.local([&](int thread) {
        if (thread < p.choices) write(p, token, thread, 0, 0.0F);
        if (thread < p.choices)
          p.rows[token * p.choices + thread] = static_cast<std::int32_t>(token) * p.choices + thread;
      });
      return;
    }
    Several<Block, float> logit;
    Several<Block, float> score;  // but for `whole`
    Several<Block, std::int32_t> place;
    typename Block::template Own<float> part;
    block.local([&](int thread) {
      part[thread] = -INFINITY;
      for_experts(thread, block.threads(), p.count, [&](int i, int expert) {
        logit[thread][i] = load(static_cast<const T*>(p.logits) + token * p.count + expert);
        part[thread] = fmaxf(part[thread], logit[thread][i]);
      });
    });
    const float largest = block.max(part);
    block.local([&](int thread) {
      part[thread] = 0;
      for_experts(thread, block.threads(), p.count, [&](int i, int) {
        const float own = logit[thread][i];
        score[thread][i] = p.sigmoid != 0 ? 1.0F / (1.0F + expf(-own)) : expf(own - largest);
        part[thread] += score[thread][i];
      });
    });
    const float sum_of_all = block.sum(part);
    const float whole = p.sigmoid != 0 ? 1.0F : sum_of_all;
    block.each([&](int thread) {
      for_experts(thread, block.threads(), p.count, [&](int i, int expert) {
        float compared = logit[thread][i];
        if (p.bias != nullptr || p.groups > 1) compared = score[thread][i] / whole;
        if (p.bias != nullptr) compared += p.bias[expert];
        orders[expert] = order_of(compared);
      });
    });
    if (p.groups > 1) mask_groups(block, p, orders);
    block.local([&](int thread) {
      part[thread] = 0;
      for_experts(thread, block.threads(), p.count, [&](int i, int expert) {
        place[thread][i] = place_among(orders, p.count, expert);
        if (place[thread][i] < p.choices) part[thread] += score[thread][i];
      });
    });
    const float sum_of_chosen = block.sum(part);
    const float divisor = p.normalised != 0 ? sum_of_chosen + p.added * whole : whole;
    block.local([&](int thread) {
      for_experts(thread, block.threads(), p.count, [&](int i, int expert) {
        if (place[thread][i] >= p.choices) return;
        write(p, token, place[thread][i], expert, p.factor * (score[thread][i] / divisor));
      });
    });
  }

 private:
  template <typename Block, typename Number>
  using Several = typename Block::template Own<Array<Number, kExpertsOfThread>>;

  /// The two largest numbers of a group together.
  RONDO_KERNEL static float sum_of_two(const std::uint32_t* orders, std::int32_t size) {
    std::uint32_t most = 0;
    std::uint32_t second = 0;
    for (std::int32_t i = 0; i < size; ++i) {
      const std::uint32_t lesser = orders[i] < most ? orders[i] : most;
      second = lesser > second ? lesser : second;
      most = orders[i] > most ? orders[i] : most;
    }
    return number_of(most) + number_of(second);
  }

  /// Puts the experts of groups that are not chosen behind all others.
  template <typename Block>
  RONDO_KERNEL static void mask_groups(Block& block, const RouteParams& p, std::uint32_t* orders) {
    const std::int32_t size = p.count / p.groups;
    Several<Block, std::int32_t> before;
    block.each([&](int thread) {
      for_experts(thread, block.threads(), p.count, [&](int i, int expert) {
        const std::int32_t group = expert / size;
        const float own = sum_of_two(orders + group * size, size);
        before[thread][i] = 0;
        for (std::int32_t other = 0; other < p.groups; ++other) {
          const float theirs = sum_of_two(orders + other * size, size);
          before[thread][i] += theirs > own || (theirs == own && other < group) ? 1 : 0;
        }
      });
    });
    block.each([&](int thread) {
      for_experts(thread, block.threads(), p.count, [&](int i, int expert) {
        if (before[thread][i] >= p.chosen_groups) orders[expert] = 0;
      });
    });
  }

  RONDO_KERNEL static void write(const RouteParams& p, std::int64_t token, std::int32_t choice, std::int32_t expert,
                                 float share) {
    p.shares[token * p.choices + choice] = share;
    p.experts[token * p.choices + choice] = expert;
  }
  RONDO_KERNEL static std::int32_t place_among(const std::uint32_t* orders, std::int32_t count, int expert) {
    const std::uint32_t own = orders[expert];
    std::int32_t before = 0;
    for (std::int32_t other = 0; other < count; ++other) {
      before += orders[other] > own || (orders[other] == own && other < expert) ? 1 : 0;
    }
    return before;
  }
};

RONDO_KERNEL std::int32_t bits_set(std::uint32_t mask) {
#ifdef __CUDACC__
  return __popc(mask);
#else
  return __builtin_popcount(mask);
#endif
}

inline constexpr int kRouteShared = kMostThreads / kWarp * 4;

/// A block an expert: the rows of its tokens, in their order. A warp goes over a part of the choices of all tokens,
/// once to count and once to write.
struct RouteRows {
  static constexpr int kAtOnce = 8;  // reads of a thread
  template <typename Block>
  using Masks = typename Block::template Own<std::uint32_t>;

  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const RouteParams& p) {
    auto* found = reinterpret_cast<std::int32_t*>(block.shared());  // [warps] of the expert
    const auto expert = static_cast<std::int32_t>(block.x());
    // Counts: exact up to 2^24 rows.
    typename Block::template Own<float> lesser;
    typename Block::template Own<std::int32_t> count;
    block.local([&](int thread) { lesser[thread] = static_cast<float>(count[thread] = 0); });
    for_choices(block, p, [&](int thread, std::int64_t, std::int32_t chosen, std::uint32_t mask) {
      lesser[thread] += chosen < expert ? 1.0F : 0.0F;
      count[thread] += bits_set(mask);
    });
    const auto first = static_cast<std::int32_t>(block.sum(lesser));
    block.each([&](int thread) {
      if (thread % kWarp == 0) found[thread / kWarp] = count[thread];
    });
    block.local([&](int thread) {
      std::int32_t next = first;
      for (int warp = 0; warp < thread / kWarp; ++warp) next += found[warp];
      count[thread] = next;
      if (thread == 0) p.offsets[expert] = first;
      if (thread == 0 && expert == p.count - 1) p.offsets[p.count] = real_tokens(p.bounds) * p.choices;
    });
    for_choices(block, p, [&](int thread, std::int64_t i, std::int32_t chosen, std::uint32_t mask) {
      const std::uint32_t earlier = (1U << static_cast<unsigned>(thread % kWarp)) - 1U;
      if (chosen == expert) p.rows[i] = count[thread] + bits_set(mask & earlier);
      count[thread] += bits_set(mask);
    });
  }

 private:
  /// Runs body(thread, i, experts[i], mask) for the choices of all real tokens, those of a warp in rising order; mask:
  /// which lanes have the block's expert. Past the last `experts[i]` is more than any.
  template <typename Block, typename Body>
  RONDO_KERNEL static void for_choices(Block& block, const RouteParams& p, Body body) {
    constexpr std::int32_t kNone = 0x7FFFFFFF;
    const auto expert = static_cast<std::int32_t>(block.x());
    const std::int64_t all = static_cast<std::int64_t>(real_tokens(p.bounds)) * p.choices;
    const std::int64_t turns = (all + block.threads() - 1) / block.threads();
    typename Block::template Own<Array<std::int32_t, kAtOnce>> some;
    Masks<Block> masks;
    const auto choice = [&](int thread, std::int64_t turn) {
      return turn < turns ? (thread / kWarp * turns + turn) * kWarp + thread % kWarp : all;
    };
    for (std::int64_t turn = 0; turn < turns; turn += kAtOnce) {
      block.local([&](int thread) {
        RONDO_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const std::int64_t at = choice(thread, turn + i);
          some[thread][i] = at < all ? p.experts[at] : kNone;
        }
      });
      RONDO_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        block.ballot(masks, [&](int thread) { return some[thread][i] == expert; });
        block.local([&](int thread) { body(thread, choice(thread, turn + i), some[thread][i], masks[thread]); });
      }
    }
  }
};

/// A block a token.
template <typename T>
struct RouteBackward {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const RouteParams& p) {
    const std::int64_t token = block.x();
    const float* shares = p.shares + token * p.choices;
    const float* dshares = p.dshares + token * p.choices;
    const std::int32_t* experts = p.experts + token * p.choices;
    typename Block::template Own<Array<float, kExpertsOfThread>> logit;
    typename Block::template Own<Array<float, kExpertsOfThread>> term;
    typename Block::template Own<float> own;
    block.local([&](int thread) {
      own[thread] = -INFINITY;
      for_experts(thread, block.threads(), p.count, [&](int i, int expert) {
        logit[thread][i] = load(static_cast<const T*>(p.logits) + token * p.count + expert);
        own[thread] = fmaxf(own[thread], logit[thread][i]);
      });
    });
    const float largest = block.max(own);
    block.local([&](int thread) {
      own[thread] = 0;
      for_experts(thread, block.threads(), p.count,
                  [&](int i, int) { own[thread] += term[thread][i] = expf(logit[thread][i] - largest); });
    });
    const float sum = block.sum(own);
    block.local([&](int thread) {
      float mean = 0;
      for (std::int32_t j = 0; j < p.choices; ++j) mean += shares[j] * dshares[j];
      for_experts(thread, block.threads(), p.count, [&](int i, int expert) {
        float gradient = p.normalised != 0 || p.sigmoid != 0 ? 0.0F : -term[thread][i] / sum * mean;
        const float common = p.normalised != 0 ? mean / p.factor : 0.0F;
        const float rest = p.sigmoid != 0 ? 1.0F / (1.0F + expf(logit[thread][i])) : 1.0F;
        for (std::int32_t j = 0; j < p.choices; ++j) {
          if (experts[j] == expert) gradient += shares[j] * ((dshares[j] - common) * rest);
        }
        store(static_cast<T*>(p.dlogits) + token * p.count + expert, gradient);
      });
    });
  }
};

/// A block kMostThreads numbers.
struct ShareScale {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ShareScaleParams& p) {
    block.local([&](int thread) {
      const std::int64_t i = block.x() * block.threads() + thread;
      if (i < p.elements) p.y[i] = p.x[i] * p.scale[p.experts[i]];
    });
  }
};

/// A block an expert.
struct ShareScaleSums {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ShareScaleParams& p) {
    const auto expert = static_cast<std::int32_t>(block.x());
    typename Block::template Own<float> part;
    block.local([&](int thread) {
      part[thread] = 0;
      for (std::int64_t i = thread; i < p.elements; i += block.threads()) {
        if (p.experts[i] == expert) part[thread] += p.x[i] * p.shares[i];
      }
    });
    const float sum = block.sum(part);
    block.local([&](int thread) {
      if (thread == 0) p.y[expert] += sum;
    });
  }
};

/// A block a token.
template <typename T>
struct Dispatch {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const SpreadParams& p) {
    const T* from = static_cast<const T*>(p.x) + block.x() * p.width;
    const std::int32_t* rows = p.rows + block.x() * p.choices;
    block.local([&](int thread) {
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t c) {
        constexpr int kCount = decltype(vector)::kNumbers;
        const auto some = load_vector<kCount>(from + c);
        for (std::int32_t j = 0; j < p.choices; ++j) {
          store_vector<kCount>(static_cast<T*>(p.y) + rows[j] * p.width + c, some);
        }
      });
    });
  }
};

/// A block a token.
template <typename T>
struct Combine {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const SpreadParams& p) {
    const std::int64_t first = block.x() * p.choices;
    block.local([&](int thread) {
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t c) {
        constexpr int kCount = decltype(vector)::kNumbers;
        Numbers<kCount> sum{};
        add_in_order<4>(sum, p.choices, [&](std::int64_t j) {
          auto some = load_vector<kCount>(static_cast<const T*>(p.x) + p.rows[first + j] * p.width + c);
          if (p.shares != nullptr) scale_vector(some, p.shares[first + j]);
          return some;
        });
        scale_vector(sum, p.alpha);
        const std::int64_t at = block.x() * p.width + c;
        if (p.addend != nullptr) add_vector(sum, load_vector<kCount>(static_cast<const T*>(p.addend) + at));
        store_vector<kCount>(static_cast<T*>(p.y) + at, sum);
      });
    });
  }
};

/// A block a choice of a token.
template <typename T>
struct CombineBackward {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const SpreadParams& p) {
    const T* dy = static_cast<const T*>(p.dy) + block.x() / p.choices * p.width;
    const std::int64_t row = p.rows[block.x()] * p.width;
    const float share = p.shares[block.x()];
    typename Block::template Own<float> dot;
    block.local([&](int thread) {
      dot[thread] = 0;
      for_row(p.width, thread, block.threads(), [&](auto vector, std::int64_t c) {
        constexpr int kCount = decltype(vector)::kNumbers;
        auto along = load_vector<kCount>(dy + c);
        auto x = load_vector<kCount>(static_cast<const T*>(p.x) + row + c);
        scale_vector(along, p.alpha);
        RONDO_UNROLL
        for (int i = 0; i < kCount; ++i) dot[thread] += along[i] * x[i];
        scale_vector(along, share);
        store_vector<kCount>(static_cast<T*>(p.y) + row + c, along);
      });
    });
    const float sum = block.sum(dot);
    block.local([&](int thread) {
      if (thread == 0) p.dshares[block.x()] = sum;
    });
  }
};

}  // namespace rondo::devices::cuda
