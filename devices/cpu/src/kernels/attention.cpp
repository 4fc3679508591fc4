// Attention forward: tasks over (key head, block of queries), each walking its keys once with a running softmax.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cpp"
#include <hwy/foreach_target.h>

#include "kernels.h"
#include "kernels/attention-inl.h"
#include "kernels/tile_attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

template <typename T>
struct AttentionProblem {
  AttentionLayout layout;
  std::int64_t tokens;
  const T* q;
  const T* k;
  const T* v;
  const std::int32_t* bounds;
  T* o;
  float* lse;
};

/// o = 0 and lse = 0 for the padding tokens among begin ... end - 1, for the heads of one key head.
template <typename T>
HWY_INLINE void clear_padding(const AttentionProblem<T>& problem, std::int64_t kv_head, std::int64_t begin,
                              std::int64_t end) {
  const AttentionLayout& layout = problem.layout;
  const auto count = static_cast<std::size_t>(layout.group);
  for (std::int64_t token = HWY_MAX(begin, Sequences(problem.bounds).real_tokens()); token < end; ++token) {
    const std::int64_t head = token * layout.heads + kv_head * layout.group;
    std::memset(problem.o + head * layout.head_dim, 0, count * static_cast<std::size_t>(layout.head_dim) * sizeof(T));
    std::memset(problem.lse + head, 0, count * sizeof(float));
  }
}

/// `Scratch`: ForwardScratch, or TileForwardScratch where the layout has units.
template <typename Scratch, typename T>
void attention_typed(ThreadPool& pool, const AttentionProblem<T>& problem, const AttentionAttributes& attributes,
                     std::byte* scratch, std::size_t scratch_each) {
  const AttentionLayout& layout = problem.layout;
  const std::int64_t slots = divide_up(problem.tokens, layout.block_tokens);
  pool.parallel_for(slots * layout.kv_heads, [&](std::int64_t task, std::uint32_t member) HWY_ATTR {
    Carver carver(scratch + member * scratch_each);
    const Scratch mine(layout, carver);
    const ConfiguredUnits configured(layout.units);
    // The last blocks of a long sequence are the dearest: they go first.
    const std::int64_t slot = slots - 1 - task / layout.kv_heads;
    const std::int64_t kv_head = task % layout.kv_heads;
    const std::int64_t begin = slot * layout.block_tokens;
    const std::int64_t end = HWY_MIN(problem.tokens, begin + layout.block_tokens);
    const auto attend = [&](TokenRange sequence, std::int64_t first) HWY_ATTR {
      const std::int64_t head = first * layout.heads + kv_head * layout.group;
      const std::int64_t key = (sequence.begin * layout.kv_heads + kv_head) * layout.head_dim;
      const ForwardBlock<T> block{.q = problem.q + head * layout.head_dim,
                                  .k = problem.k + key,
                                  .v = problem.v + key,
                                  .o = problem.o + head * layout.head_dim,
                                  .lse = problem.lse + head,
                                  .tokens = HWY_MIN(layout.block_tokens, sequence.end - first),
                                  .first_position = first - sequence.begin,
                                  .positions = nullptr};
      attend_block(layout, attributes, block, mine);
    };
    for_blocks_from(Sequences(problem.bounds), begin, end, layout.block_tokens, attend);
    clear_padding(problem, kv_head, begin, end);
  });
}

std::size_t forward_scratch(const AttentionShape& shape, const TileUnits* units) {
  const AttentionLayout layout = forward_layout(shape, units);
  return units == nullptr ? scratch_size<ForwardScratch>(layout) : scratch_size<TileForwardScratch>(layout);
}

void attention_any(ThreadPool& pool, Storage storage, const TileUnits* units, const AttentionShape& shape,
                   const AttentionAttributes& attributes, const void* q, const void* k, const void* v,
                   const std::int32_t* bounds, void* o, float* lse, std::byte* scratch) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    const AttentionProblem<T> problem{
        forward_layout(shape, units), shape.tokens, static_cast<const T*>(q), static_cast<const T*>(k),
        static_cast<const T*>(v),     bounds,       static_cast<T*>(o),       lse};
    const std::size_t each = forward_scratch(shape, units);
    if constexpr (std::is_same_v<T, Bf16>) {
      if (units != nullptr) return attention_typed<TileForwardScratch>(pool, problem, attributes, scratch, each);
    }
    attention_typed<ForwardScratch>(pool, problem, attributes, scratch, each);
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(attention_any);
HWY_EXPORT(forward_scratch);

void attention(ThreadPool& pool, Storage storage, const TileUnits* units, const AttentionShape& shape,
               const AttentionAttributes& attributes, const void* q, const void* k, const void* v,
               const std::int32_t* bounds, void* o, float* lse, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(attention_any)(pool, storage, units, shape, attributes, q, k, v, bounds, o, lse, scratch);
}

std::size_t attention_scratch(const AttentionShape& shape, const TileUnits* units, std::uint32_t threads) {
  return HWY_DYNAMIC_DISPATCH(forward_scratch)(shape, units) * threads;
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
