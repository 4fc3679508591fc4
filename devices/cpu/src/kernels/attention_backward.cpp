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
#include "kernels/tile_attention_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

/// `Work`: VectorBackward or TileBackward.
template <typename Work>
HWY_NOINLINE void whole_sequence(const Work& work, const AttentionLayout& layout, std::int64_t length) {
  work.clear_sums({0, length});
  for (std::int64_t first = 0; first < length; first += layout.block_tokens) {
    const Span queries = work.queries_from(first);
    work.load_query_block(queries);
    work.clear_query_sums(queries);
    const TokenRange seen = work.keys_seen_by(queries);
    for (std::int64_t key = seen.begin; key < seen.end; key += layout.keys) {
      const Span keys = work.keys_from(key);
      work.load_key_block(keys);
      work.work_on(queries, keys, PairGoal::kBoth);
    }
    work.store_query_sums(queries);
  }
}

template <typename Work>
HWY_NOINLINE void only_keys(const Work& work, const AttentionLayout& layout, std::int64_t first) {
  const Span keys = work.keys_from(first);
  work.clear_sums(keys);
  work.load_key_block(keys);
  const TokenRange seeing = work.queries_seeing(keys);
  for (std::int64_t query = seeing.begin; query < seeing.end; query += layout.block_tokens) {
    const Span queries = work.queries_from(query);
    work.load_query_block(queries);
    work.work_on(queries, keys, PairGoal::kKeys);
  }
}

template <typename Work>
HWY_NOINLINE void only_queries(const Work& work, const AttentionLayout& layout, std::int64_t first) {
  const Span queries = work.queries_from(first);
  work.load_query_block(queries);
  work.clear_query_sums(queries);
  const TokenRange seen = work.keys_seen_by(queries);
  for (std::int64_t key = seen.begin; key < seen.end; key += layout.keys) {
    const Span keys = work.keys_from(key);
    work.load_key_block(keys);
    work.work_on(queries, keys, PairGoal::kQueries);
  }
  work.store_query_sums(queries);
}

/// dK and dV from their sums, and zeros in all three gradients of the padding tokens.
template <typename T>
void store_key_sums(ThreadPool& pool, const BackwardProblem<T>& problem) {
  const AttentionLayout& layout = problem.layout;
  const auto key_factor = splat(problem.key_factor);
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
          store(hn::Mul(load(problem.key_sums + from + i), key_factor), problem.dk + to + i, extent);
          store(load(problem.value_sums + from + i), problem.dv + to + i, extent);
        });
      }
    }
  });
}

/// What the threads share.
struct BackwardRun {
  ThreadPool& pool;
  std::byte* scratch;
  std::size_t scratch_each;
};

/// Calls fn(task, scratch) for all tasks, in parallel.
template <typename Scratch, typename Function>
void for_tasks(const BackwardRun& run, const AttentionLayout& layout, std::int64_t tasks, const Function& fn) {
  run.pool.parallel_for(tasks, [&](std::int64_t task, std::uint32_t member) HWY_ATTR {
    Carver carver(run.scratch + member * run.scratch_each);
    const Scratch mine(layout, carver);
    const ConfiguredUnits configured(layout.units);
    fn(task, mine);
  });
}

template <typename Work, typename T>
void by_sequence(const BackwardRun& run, const BackwardProblem<T>& problem) {
  using Scratch = typename Work::Scratch;
  const AttentionLayout& layout = problem.layout;
  const Sequences sequences(problem.bounds);
  for_tasks<Scratch>(run, layout, sequences.count() * layout.kv_heads,
                     [&](std::int64_t task, const Scratch& mine) HWY_ATTR {
                       const TokenRange sequence = sequences[task / layout.kv_heads];
                       const Work work(problem, mine, sequence, task % layout.kv_heads);
                       whole_sequence(work, layout, sequence.length());
                     });
}

// Blocks that meet the most others go first: of keys those at the beginning, of queries those at the end.
enum class BlockOrder { kRising, kFalling };

/// Calls fn(work, first) for every block of `size` tokens of every sequence and for every key head, in parallel.
template <typename Work, typename T, typename Function>
void by_block(const BackwardRun& run, const BackwardProblem<T>& problem, std::int64_t size, BlockOrder order,
              const Function& fn) {
  using Scratch = typename Work::Scratch;
  const AttentionLayout& layout = problem.layout;
  const std::int64_t slots = divide_up(problem.tokens, size);
  for_tasks<Scratch>(run, layout, slots * layout.kv_heads, [&](std::int64_t task, const Scratch& mine) HWY_ATTR {
    const std::int64_t slot = task / layout.kv_heads;
    const std::int64_t begin = (order == BlockOrder::kRising ? slot : slots - 1 - slot) * size;
    const auto work_on = [&](TokenRange sequence, std::int64_t first) HWY_ATTR {
      fn(Work(problem, mine, sequence, task % layout.kv_heads), first - sequence.begin);
    };
    for_blocks_from(Sequences(problem.bounds), begin, begin + size, size, work_on);
  });
}

/// A choice of schedule, not of result. By sequence no thread ends later than all work shared out, and the largest task
/// less the part of it that is in this; by block the threads end together.
template <typename T>
bool goes_by_sequence(const BackwardProblem<T>& problem, std::uint32_t threads, double by_block) {
  const Sequences sequences(problem.bounds);
  double all = 0;
  double largest = 0;
  for (std::int64_t i = 0; i < sequences.count(); ++i) {
    const auto length = static_cast<double>(sequences[i].length());
    all += length * length;
    largest = HWY_MAX(largest, length * length);
  }
  const double share = all * static_cast<double>(problem.layout.kv_heads) / threads;
  return share + largest * (1 - 1.0 / threads) <= by_block * share;
}

template <typename Work, typename T>
void backward_typed(const BackwardRun& run, const BackwardProblem<T>& problem) {
  const AttentionLayout& layout = problem.layout;
  if (goes_by_sequence(problem, run.pool.threads(), Work::kByBlock)) {
    by_sequence<Work>(run, problem);
  } else {
    by_block<Work>(run, problem, layout.keys, BlockOrder::kRising,
                   [&](const auto& work, std::int64_t first) HWY_ATTR { only_keys(work, layout, first); });
    by_block<Work>(run, problem, layout.block_tokens, BlockOrder::kFalling,
                   [&](const auto& work, std::int64_t first) HWY_ATTR { only_queries(work, layout, first); });
  }
  store_key_sums(run.pool, problem);
}

std::size_t backward_scratch(const AttentionShape& shape, const TileUnits* units) {
  const AttentionLayout layout = backward_layout(shape, units);
  return units == nullptr ? scratch_size<VectorScratch>(layout) : scratch_size<TileBackwardScratch>(layout);
}

void backward_any(ThreadPool& pool, Storage storage, const TileUnits* units, const AttentionShape& shape,
                  const AttentionAttributes& attributes, const BackwardPointers& p, std::byte* scratch) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    const AttentionLayout layout = backward_layout(shape, units);
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
                                     .cap = attributes.cap,
                                     .key_sums = key_sums,
                                     .value_sums = value_sums,
                                     .key_factor = units != nullptr        ? attributes.scale
                                                   : attributes.cap > 0.0F ? attributes.cap
                                                                           : 1.0F};
    const BackwardRun run{pool, scratch + carver.size(), backward_scratch(shape, units)};
    if constexpr (std::is_same_v<T, Bf16>) {
      if (units != nullptr) return backward_typed<TileBackward>(run, problem);
    }
    backward_typed<VectorBackward<T>>(run, problem);
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(backward_any);
HWY_EXPORT(backward_scratch);

void attention_backward(ThreadPool& pool, Storage storage, const TileUnits* units, const AttentionShape& shape,
                        const AttentionAttributes& attributes, const void* q, const void* k, const void* v,
                        const void* o, const float* lse, const void* d_o, const std::int32_t* bounds, void* dq,
                        void* dk, void* dv, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(backward_any)
  (pool, storage, units, shape, attributes, {q, k, v, o, lse, d_o, bounds, dq, dk, dv}, scratch);
}

std::size_t attention_backward_scratch(const AttentionShape& shape, const TileUnits* units, std::uint32_t threads) {
  Carver carver(nullptr);
  const AttentionLayout layout = backward_layout(shape, units);
  const std::int64_t sums = layout.kv_heads * shape.tokens * layout.width;
  carver.take<float>(sums);
  carver.take<float>(sums);
  return carver.size() + HWY_DYNAMIC_DISPATCH(backward_scratch)(shape, units) * threads;
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
