// Attention over a key and value cache, for generation.
//
// A few query tokens read the cache as it is stored, split into chunks of keys so that one token keeps all threads
// busy; what the chunks give is joined in rising order. Many tokens (a prompt) go through the blocks of the training
// pass.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cached_attention.cpp"
#include <hwy/foreach_target.h>

#include "kernels.h"
#include "kernels/attention-inl.h"
#include "kernels/tile_attention-inl.h"

#ifndef RONDO_CPU_KERNELS_CACHED_ATTENTION_ONCE
#define RONDO_CPU_KERNELS_CACHED_ATTENTION_ONCE
namespace rondo::devices::cpu {
inline constexpr std::int64_t kFewTokens = 4;    // up to here chunks, from here on blocks
inline constexpr std::int64_t kChunkKeys = 256;  // keys of a chunk
inline constexpr std::int64_t kHeadsAtOnce = 4;  // heads of a group that share one pass over a chunk

struct CachedPointers {
  const void *q, *k, *v;
  const std::int32_t *positions, *bounds;
  void *k_cache, *v_cache, *o;
  float* lse;
};
}  // namespace rondo::devices::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

template <typename T>
struct CachedProblem {
  AttentionLayout layout;
  AttentionAttributes attributes;
  std::int64_t tokens;  // of the bucket
  std::int64_t real;
  const T* q;
  const std::int32_t* positions;
  const T* k_cache;
  const T* v_cache;
  T* o;
  float* lse;
};

/// What one chunk of keys gives for one query of one head: the softmax so far and its weighted values.
struct Partial {
  RowState* states;  // [tokens][heads][chunks]
  float* outputs;    // [tokens][heads][chunks][width]
  std::int64_t chunks;
};

/// Dot products of kCount query rows with one key.
template <std::int64_t kCount, typename T>
HWY_INLINE void dots(const float* queries, std::int64_t width, const T* key, std::int64_t head_dim, float* scores,
                     std::int64_t stride) {
  Vector sums[kHeadsAtOnce];
#pragma GCC unroll 4
  for (std::int64_t h = 0; h < kCount; ++h) sums[h] = zero();
  for_vectors(head_dim, [&](std::int64_t i, auto extent) HWY_ATTR {
    const auto right = load(key + i, extent);
#pragma GCC unroll 4
    for (std::int64_t h = 0; h < kCount; ++h) sums[h] = hn::MulAdd(load(queries + h * width + i), right, sums[h]);
  });
#pragma GCC unroll 4
  for (std::int64_t h = 0; h < kCount; ++h) scores[h * stride] = sum_of(sums[h]);
}

/// outputs[h][...] = sum over keys of weights[h][key] * value, kCount heads and one vector of columns at a time.
template <std::int64_t kCount, typename T>
HWY_INLINE void weigh(const float* weights, const T* values, std::int64_t stride, std::int64_t keys,
                      std::int64_t head_dim, float* const* outputs) {
  for_vectors(head_dim, [&](std::int64_t i, auto extent) HWY_ATTR {
    Vector sums[kHeadsAtOnce];
#pragma GCC unroll 4
    for (std::int64_t h = 0; h < kCount; ++h) sums[h] = zero();
    for (std::int64_t key = 0; key < keys; ++key) {
      const auto value = load(values + key * stride + i, extent);
#pragma GCC unroll 4
      for (std::int64_t h = 0; h < kCount; ++h) {
        sums[h] = hn::MulAdd(splat(weights[h * kChunkKeys + key]), value, sums[h]);
      }
    }
#pragma GCC unroll 4
    for (std::int64_t h = 0; h < kCount; ++h) store(sums[h], outputs[h] + i);
  });
}

/// One chunk for kCount heads beginning with `head`. scratch: kCount rows of queries, then of scores.
template <std::int64_t kCount, typename T>
HWY_INLINE void attend_chunk(const CachedProblem<T>& problem, const Partial& partial, std::int64_t token,
                             std::int64_t head, std::int64_t chunk, float* scratch) {
  const AttentionLayout& layout = problem.layout;
  float* scores = scratch + kHeadsAtOnce * layout.width;
  const std::int64_t first = chunk * kChunkKeys;
  const Visible seen = visible_to(problem.positions[token], first, kChunkKeys, problem.attributes.window);
  const std::int64_t place = token * layout.heads + head;
  float* outputs[kHeadsAtOnce];
  for (std::int64_t h = 0; h < kCount; ++h) {
    const std::int64_t at = (place + h) * partial.chunks + chunk;
    outputs[h] = partial.outputs + at * layout.width;
    partial.states[at] = {std::numeric_limits<float>::lowest(), 0.0F};
    load_row(problem.q + (place + h) * layout.head_dim, layout.head_dim, layout.width,
             query_factor(problem.attributes.scale, problem.attributes.cap), scratch + h * layout.width);
  }
  if (seen.empty()) return;
  const std::int64_t stride = layout.kv_heads * layout.head_dim;
  const std::int64_t key_at = (first * layout.kv_heads + head / layout.group) * layout.head_dim;
  for (std::int64_t key = seen.lo; key < seen.hi; ++key) {
    dots<kCount>(scratch, layout.width, problem.k_cache + key_at + key * stride, layout.head_dim, scores + key,
                 kChunkKeys);
  }
  for (std::int64_t h = 0; h < kCount; ++h) {
    const std::int64_t begin = round_down_to_lanes(seen.lo);
    const std::int64_t end = round_up_to_lanes(seen.hi);
    if (problem.attributes.cap > 0.0F) cap_row(scores + h * kChunkKeys, begin, end, problem.attributes.cap);
    soften_row(scores + h * kChunkKeys, seen, begin, end, partial.states[(place + h) * partial.chunks + chunk]);
  }
  weigh<kCount>(scores + seen.lo, problem.v_cache + key_at + seen.lo * stride, stride, seen.hi - seen.lo,
                layout.head_dim, outputs);
}

template <typename T>
HWY_NOINLINE void attend_group_chunk(const CachedProblem<T>& problem, const Partial& partial, std::int64_t token,
                                     std::int64_t kv_head, std::int64_t chunk, float* scratch) {
  const std::int64_t begin = kv_head * problem.layout.group;
  const std::int64_t end = begin + problem.layout.group;
  for (std::int64_t head = begin; head < end; head += kHeadsAtOnce) {
    switch (HWY_MIN(kHeadsAtOnce, end - head)) {
      case 1:
        attend_chunk<1>(problem, partial, token, head, chunk, scratch);
        break;
      case 2:
        attend_chunk<2>(problem, partial, token, head, chunk, scratch);
        break;
      case 3:
        attend_chunk<3>(problem, partial, token, head, chunk, scratch);
        break;
      default:
        attend_chunk<kHeadsAtOnce>(problem, partial, token, head, chunk, scratch);
    }
  }
}

/// Joins the chunks of one query of one head.
template <typename T>
HWY_INLINE void join_chunks(const CachedProblem<T>& problem, const Partial& partial, std::int64_t place) {
  const AttentionLayout& layout = problem.layout;
  const RowState* states = partial.states + place * partial.chunks;
  float* first = partial.outputs + place * partial.chunks * layout.width;
  float maximum = std::numeric_limits<float>::lowest();
  for (std::int64_t chunk = 0; chunk < partial.chunks; ++chunk) maximum = HWY_MAX(maximum, states[chunk].maximum);
  float sum = 0;
  for_vectors(layout.head_dim, [=](std::int64_t i, auto) HWY_ATTR {
    auto joined = zero();
    for (std::int64_t chunk = 0; chunk < partial.chunks; ++chunk) {
      if (states[chunk].sum == 0.0F) continue;  // sees nothing, wrote nothing
      const auto factor = exp_of(splat(states[chunk].maximum - maximum));
      joined = hn::MulAdd(load(first + chunk * layout.width + i), factor, joined);
    }
    store(joined, first + i);
  });
  for (std::int64_t chunk = 0; chunk < partial.chunks; ++chunk) {
    sum += states[chunk].sum * hn::GetLane(exp_of(splat(states[chunk].maximum - maximum)));
  }
  problem.lse[place] = maximum + std::log(sum);
  const auto divisor = splat(sum);
  T* to = problem.o + place * layout.head_dim;
  for_vectors(layout.head_dim,
              [=](std::int64_t i, auto extent) HWY_ATTR { store(hn::Div(load(first + i), divisor), to + i, extent); });
}

template <typename T>
void attend_few(ThreadPool& pool, const CachedProblem<T>& problem, std::byte* scratch) {
  const AttentionLayout& layout = problem.layout;
  std::int64_t last = 0;
  for (std::int64_t token = 0; token < problem.real; ++token) last = HWY_MAX(last, problem.positions[token] + 0L);
  Carver carver(scratch);
  Partial partial{nullptr, nullptr, last / kChunkKeys + 1};
  const std::int64_t places = problem.real * layout.heads;
  partial.states = carver.take<RowState>(places * partial.chunks);
  partial.outputs = carver.take<float>(places * partial.chunks * layout.width);
  const std::int64_t each = divide_up(kHeadsAtOnce * (layout.width + kChunkKeys), 16) * 16;
  auto* local = carver.take<float>(each * pool.threads());
  pool.parallel_for(problem.real * layout.kv_heads * partial.chunks,
                    [&](std::int64_t task, std::uint32_t member) HWY_ATTR {
                      const std::int64_t row = task / partial.chunks;
                      attend_group_chunk(problem, partial, row / layout.kv_heads, row % layout.kv_heads,
                                         task % partial.chunks, local + member * each);
                    });
  pool.parallel_for(places, [&](std::int64_t place, std::uint32_t) HWY_ATTR { join_chunks(problem, partial, place); });
}

/// `Scratch`: ForwardScratch, or TileForwardScratch where the layout has units.
template <typename Scratch, typename T>
void attend_many(ThreadPool& pool, const CachedProblem<T>& problem, std::byte* scratch, std::size_t scratch_each) {
  const AttentionLayout& layout = problem.layout;
  const std::int64_t blocks = divide_up(problem.real, layout.block_tokens);
  pool.parallel_for(blocks * layout.kv_heads, [&](std::int64_t task, std::uint32_t member) HWY_ATTR {
    Carver carver(scratch + member * scratch_each);
    const Scratch mine(layout, carver);
    const ConfiguredUnits configured(layout.units);
    const std::int64_t first = (blocks - 1 - task / layout.kv_heads) * layout.block_tokens;
    const std::int64_t kv_head = task % layout.kv_heads;
    const std::int64_t at = (first * layout.heads + kv_head * layout.group) * layout.head_dim;
    const ForwardBlock<T> block{.q = problem.q + at,
                                .k = problem.k_cache + kv_head * layout.head_dim,
                                .v = problem.v_cache + kv_head * layout.head_dim,
                                .o = problem.o + at,
                                .lse = problem.lse + first * layout.heads + kv_head * layout.group,
                                .tokens = HWY_MIN(layout.block_tokens, problem.real - first),
                                .first_position = 0,
                                .positions = problem.positions + first};
    attend_block(layout, problem.attributes, block, mine);
  });
}

template <typename T>
void attend(ThreadPool& pool, const CachedProblem<T>& problem, std::byte* scratch, std::size_t scratch_each) {
  if (problem.real <= kFewTokens) return attend_few(pool, problem, scratch);
  if constexpr (std::is_same_v<T, Bf16>) {
    if (problem.layout.units != nullptr) {
      return attend_many<TileForwardScratch>(pool, problem, scratch, scratch_each);
    }
  }
  attend_many<ForwardScratch>(pool, problem, scratch, scratch_each);
}

void cached_any(ThreadPool& pool, Storage storage, const TileUnits* units, const AttentionShape& shape,
                const AttentionAttributes& attributes, const CachedPointers& p, std::byte* scratch) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    const std::int64_t real = Sequences(p.bounds).real_tokens();
    const std::int64_t row = shape.kv_heads * shape.head_dim;
    const std::size_t bytes = static_cast<std::size_t>(row) * sizeof(T);
    for (std::int64_t token = 0; token < real; ++token) {
      std::memcpy(static_cast<T*>(p.k_cache) + p.positions[token] * row, static_cast<const T*>(p.k) + token * row,
                  bytes);
      std::memcpy(static_cast<T*>(p.v_cache) + p.positions[token] * row, static_cast<const T*>(p.v) + token * row,
                  bytes);
    }
    const CachedProblem<T> problem{forward_layout(shape, real <= kFewTokens ? nullptr : units),
                                   attributes,
                                   shape.tokens,
                                   real,
                                   static_cast<const T*>(p.q),
                                   p.positions,
                                   static_cast<const T*>(p.k_cache),
                                   static_cast<const T*>(p.v_cache),
                                   static_cast<T*>(p.o),
                                   p.lse};
    attend(pool, problem, scratch, attention_scratch(shape, problem.layout.units, 1));
    const std::int64_t width = shape.heads * shape.head_dim;
    std::memset(problem.o + real * width, 0, static_cast<std::size_t>((shape.tokens - real) * width) * sizeof(T));
    std::fill(problem.lse + real * shape.heads, problem.lse + shape.tokens * shape.heads, 0.0F);
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(cached_any);

void cached_attention(ThreadPool& pool, Storage storage, const TileUnits* units, const AttentionShape& shape,
                      const AttentionAttributes& attributes, const void* q, const void* k, const void* v,
                      const std::int32_t* positions, const std::int32_t* bounds, void* k_cache, void* v_cache, void* o,
                      float* lse, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(cached_any)
  (pool, storage, units, shape, attributes, {q, k, v, positions, bounds, k_cache, v_cache, o, lse}, scratch);
}

std::size_t cached_attention_scratch(const AttentionShape& shape, const TileUnits* units, std::int64_t capacity,
                                     std::uint32_t threads) {
  const AttentionLayout layout = forward_layout(shape, nullptr);
  const std::int64_t places = std::min(shape.tokens, kFewTokens) * layout.heads;
  const std::int64_t chunks = divide_up(capacity, kChunkKeys);
  Carver few(nullptr);
  few.take<double>(places * chunks);  // a RowState
  few.take<float>(places * chunks * layout.width);
  few.take<float>((kHeadsAtOnce * (layout.width + kChunkKeys) + 16) * threads);
  return std::max(few.size(), attention_scratch(shape, units, threads));
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
