// Attention backward: the order in which pairs of blocks are worked on, and by whom.
//
// Two schedules give the same bits, because every sum runs over the same blocks in the same order: by sequence (one
// task does all pairs of blocks of a sequence and key head, five products a pair), or, where that leaves threads idle,
// by block (keys first, then queries: seven products a pair). Sums of dK and dV are fp32 in scratch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_backward.cpp"
#include <hwy/foreach_target.h>

#include "kernels.h"
#include "kernels/attention_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

template <typename T>
HWY_NOINLINE void whole_sequence(const SequenceBackward<T>& work, std::int64_t length, std::int64_t block_tokens) {
  work.clear_sums({0, length});
  for (std::int64_t first = 0; first < length; first += block_tokens) {
    const Span queries = work.queries_from(first);
    work.load_query_block(queries);
    work.clear_query_sums(queries);
    const TokenRange seen = work.keys_seen_by(queries);
    for (std::int64_t key = seen.begin; key < seen.end; key += kKeys) {
      const Span keys = work.keys_from(key);
      work.load_key_block(keys);
      work.score(queries, keys, true);
      work.add_to_keys(queries, keys);
    }
    work.store_query_sums(queries);
  }
}

template <typename T>
HWY_NOINLINE void only_keys(const SequenceBackward<T>& work, std::int64_t first, std::int64_t block_tokens) {
  const Span keys = work.keys_from(first);
  work.clear_sums(keys);
  work.load_key_block(keys);
  const TokenRange seeing = work.queries_seeing(keys);
  for (std::int64_t query = seeing.begin; query < seeing.end; query += block_tokens) {
    const Span queries = work.queries_from(query);
    work.load_query_block(queries);
    work.score(queries, keys, false);
    work.add_to_keys(queries, keys);
  }
}

template <typename T>
HWY_NOINLINE void only_queries(const SequenceBackward<T>& work, std::int64_t first) {
  const Span queries = work.queries_from(first);
  work.load_query_block(queries);
  work.clear_query_sums(queries);
  const TokenRange seen = work.keys_seen_by(queries);
  for (std::int64_t key = seen.begin; key < seen.end; key += kKeys) {
    const Span keys = work.keys_from(key);
    work.load_key_block(keys);
    work.score(queries, keys, true);
  }
  work.store_query_sums(queries);
}

/// dK and dV from their sums, and zeros in all three gradients of the padding tokens.
template <typename T>
void store_key_sums(ThreadPool& pool, const BackwardProblem<T>& problem) {
  const AttentionLayout& layout = problem.layout;
  const std::int64_t step = task_rows(layout.kv_heads * layout.head_dim);
  pool.parallel_for(divide_up(problem.tokens, step), [&](std::int64_t task, std::uint32_t) HWY_ATTR {
    const std::int64_t real = Sequences(problem.bounds).real_tokens();
    const std::int64_t end = HWY_MIN(problem.tokens, (task + 1) * step);
    const auto clear = [](T* from, std::int64_t count) {
      std::memset(from, 0, static_cast<std::size_t>(count) * sizeof(T));
    };
    for (std::int64_t token = task * step; token < end; ++token) {
      const std::int64_t at = token * layout.kv_heads * layout.head_dim;
      if (token >= real) {
        clear(problem.dq + token * layout.heads * layout.head_dim, layout.heads * layout.head_dim);
        clear(problem.dk + at, layout.kv_heads * layout.head_dim);
        clear(problem.dv + at, layout.kv_heads * layout.head_dim);
        continue;
      }
      for (std::int64_t head = 0; head < layout.kv_heads; ++head) {
        const std::int64_t from = (head * problem.tokens + token) * layout.width;
        const std::int64_t to = at + head * layout.head_dim;
        for_vectors(layout.head_dim, [&](std::int64_t i, auto extent) HWY_ATTR {
          store(load(problem.key_sums + from + i), problem.dk + to + i, extent);
          store(load(problem.value_sums + from + i), problem.dv + to + i, extent);
        });
      }
    }
  });
}

template <typename T>
void by_sequence(ThreadPool& pool, const BackwardProblem<T>& problem, std::byte* scratch, std::size_t scratch_each) {
  const AttentionLayout& layout = problem.layout;
  const Sequences sequences(problem.bounds);
  pool.parallel_for(sequences.count() * layout.kv_heads, [&](std::int64_t task, std::uint32_t member) HWY_ATTR {
    Carver carver(scratch + member * scratch_each);
    const BackwardScratch mine(layout, carver);
    const TokenRange sequence = sequences[task / layout.kv_heads];
    const SequenceBackward<T> work(problem, mine, sequence, task % layout.kv_heads);
    whole_sequence(work, sequence.length(), layout.block_tokens);
  });
}

/// Calls fn(work, first) for every block of `size` tokens of every sequence and for every key head, in parallel.
template <typename T, typename Function>
void by_block(ThreadPool& pool, const BackwardProblem<T>& problem, std::byte* scratch, std::size_t scratch_each,
              std::int64_t size, const Function& fn) {
  const AttentionLayout& layout = problem.layout;
  const std::int64_t slots = divide_up(problem.tokens, size);
  pool.parallel_for(slots * layout.kv_heads, [&](std::int64_t task, std::uint32_t member) HWY_ATTR {
    Carver carver(scratch + member * scratch_each);
    const BackwardScratch mine(layout, carver);
    const std::int64_t begin = task / layout.kv_heads * size;
    const auto work_on = [&](TokenRange sequence, std::int64_t first) HWY_ATTR {
      fn(SequenceBackward<T>(problem, mine, sequence, task % layout.kv_heads), first - sequence.begin);
    };
    for_blocks_from(Sequences(problem.bounds), begin, begin + size, size, work_on);
  });
}

template <typename T>
void backward_typed(ThreadPool& pool, const BackwardProblem<T>& problem, std::byte* scratch, std::size_t scratch_each) {
  // A choice of schedule, not of result.
  const std::int64_t tasks = Sequences(problem.bounds).count() * problem.layout.kv_heads;
  const auto threads = static_cast<std::int64_t>(pool.threads());
  if (threads == 1 || tasks >= 3 * threads) {
    by_sequence(pool, problem, scratch, scratch_each);
  } else {
    const std::int64_t block = problem.layout.block_tokens;
    by_block(pool, problem, scratch, scratch_each, kKeys,
             [=](const auto& work, std::int64_t first) HWY_ATTR { only_keys(work, first, block); });
    by_block(pool, problem, scratch, scratch_each, block,
             [=](const auto& work, std::int64_t first) HWY_ATTR { only_queries(work, first); });
  }
  store_key_sums(pool, problem);
}

std::size_t backward_scratch(const AttentionShape& shape) {
  Carver carver(nullptr);
  const BackwardScratch counted(AttentionLayout(shape), carver);
  static_cast<void>(counted);
  return carver.size();
}

void backward_any(ThreadPool& pool, Storage storage, const AttentionShape& shape, const AttentionAttributes& attributes,
                  const BackwardPointers& p, std::byte* scratch) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    const AttentionLayout layout(shape);
    Carver carver(scratch);
    const std::int64_t sums = layout.kv_heads * shape.tokens * layout.width;
    auto* key_sums = carver.take<float>(sums);
    auto* value_sums = carver.take<float>(sums);
    const BackwardProblem<T> problem{.layout = layout,
                                     .tokens = shape.tokens,
                                     .q = static_cast<const T*>(p.q),
                                     .k = static_cast<const T*>(p.k),
                                     .v = static_cast<const T*>(p.v),
                                     .o = static_cast<const T*>(p.o),
                                     .lse = p.lse,
                                     .d_o = static_cast<const T*>(p.d_o),
                                     .bounds = p.bounds,
                                     .dq = static_cast<T*>(p.dq),
                                     .dk = static_cast<T*>(p.dk),
                                     .dv = static_cast<T*>(p.dv),
                                     .scale = attributes.scale,
                                     .window = attributes.window,
                                     .key_sums = key_sums,
                                     .value_sums = value_sums};
    backward_typed(pool, problem, scratch + carver.size(), backward_scratch(shape));
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(backward_any);
HWY_EXPORT(backward_scratch);

void attention_backward(ThreadPool& pool, Storage storage, const AttentionShape& shape,
                        const AttentionAttributes& attributes, const void* q, const void* k, const void* v,
                        const void* o, const float* lse, const void* d_o, const std::int32_t* bounds, void* dq,
                        void* dk, void* dv, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(backward_any)
  (pool, storage, shape, attributes, {q, k, v, o, lse, d_o, bounds, dq, dk, dv}, scratch);
}

std::size_t attention_backward_scratch(const AttentionShape& shape, std::uint32_t threads) {
  Carver carver(nullptr);
  const AttentionLayout layout(shape);
  const std::int64_t sums = layout.kv_heads * shape.tokens * layout.width;
  carver.take<float>(sums);
  carver.take<float>(sums);
  return carver.size() + HWY_DYNAMIC_DISPATCH(backward_scratch)(shape) * threads;
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
