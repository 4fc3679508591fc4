// Steps of attention.
#include "kernels/attention.h"
#include "kernels/attention_sink.h"
#include "kernels/cached_attention.h"
#include "kernels/group_attention.h"
#include "kernels/group_backward.h"
#include "kernels/matrix_tiles.h"
#include "kernels/wide_attention.h"
#include "kernels/wide_backward.h"
#include "lowering.h"

namespace rondo::devices::cuda {
namespace {

constexpr std::int64_t kBlocksWanted = 3;  // a multiprocessor
static_assert(kSinkChunk == kTokenChunk);

/// By the reads 0 and 1: q and k.
absl::Status check_heads(const Lowering& op) {
  const std::int64_t head_dim = op.in(0).shape[2];
  if (head_dim <= kMostHeadDim) return absl::OkStatus();
  return unimplemented("op {}: '{}' has heads of {}; on CUDA they have {} at most", name_of(op.op().kind),
                       op.in(0).name, head_dim, kMostHeadDim);
}

Arguments<AttentionParams> arguments_of(const Lowering& op) {
  const auto& attributes = op.attributes<AttentionAttributes>();
  Arguments<AttentionParams> arguments;
  AttentionParams& p = arguments.params;
  p.tokens = static_cast<std::int32_t>(op.in(0).shape[0]);
  p.heads = static_cast<std::int32_t>(op.in(0).shape[1]);
  p.kv_heads = static_cast<std::int32_t>(op.in(1).shape[1]);
  p.head_dim = static_cast<std::int32_t>(op.in(0).shape[2]);
  p.tile = attention_tile(p.head_dim);
  p.splits = 1;
  p.window = static_cast<std::int32_t>(std::min<std::uint32_t>(attributes.window, 0x7FFFFFFF));
  p.scale = attributes.scale;
  p.cap = attributes.cap;
  using P = AttentionParams;
  arguments.at(&P::q, op.read(0)).at(&P::k, op.read(1)).at(&P::v, op.read(2));
  return arguments;
}

/// Which kernels do it.
enum class Way : std::uint8_t {
  kTiles,     // attention.h
  kMatrices,  // matrix_tiles.h
  kGroups,    // group_products.h, which have no cap
  kWide,      // wide_tiles.h
};

Way way_of(const Lowering& op, const AttentionParams& p) {
  if (!op.options().has_units(op.in(0).dtype)) return Way::kTiles;
  if (p.head_dim != 64 && p.head_dim != 128) {
    const int head = wide_head(p.head_dim);
    const bool fits =
        static_cast<Bytes>(std::max(wide_forward_shared(head), wide_backward_shared(head))) <= op.options().most_shared;
    return p.head_dim > 64 && p.head_dim % kVector == 0 && fits ? Way::kWide : Way::kTiles;
  }
  return op.options().warpgroups && p.scale > 0 && p.cap == 0.0F ? Way::kGroups : Way::kMatrices;
}

absl::Status lower_forward(Lowering& op) {
  RONDO_RETURN_IF_ERROR(check_heads(op));
  Arguments<AttentionParams> arguments = arguments_of(op);
  const AttentionParams& p = arguments.params;
  arguments.at(&AttentionParams::bounds, op.read(3)).at(&AttentionParams::o, op.write(0));
  arguments.at(&AttentionParams::lse, op.write(1));
  const Storage storage = Lowering::storage_of(op.in(0));
  using Id = KernelId;
  switch (way_of(op, p)) {
    case Way::kGroups:
      op.launch(of_matrix(Id::k_group_attention_bf16_64, storage, p.head_dim),
                {p.heads, divide_up(p.tokens, kGroupQueries), kGroupThreads, group_attention_shared(p.head_dim)},
                arguments);
      return absl::OkStatus();
    case Way::kMatrices:
      op.launch(
          of_matrix(p.cap > 0 ? Id::k_capped_attention_bf16_64 : Id::k_matrix_attention_bf16_64, storage, p.head_dim),
          {p.heads, divide_up(p.tokens, kMatrixRows), kMatrixThreads, matrix_forward_shared(p.head_dim)}, arguments);
      return absl::OkStatus();
    case Way::kWide: {
      const int head = wide_head(p.head_dim);
      op.launch(of_wide(Id::k_wide_attention_bf16_128, storage, head),
                {p.heads, divide_up(p.tokens, wide_rows(head)), wide_threads(head), wide_forward_shared(head)},
                arguments);
      return absl::OkStatus();
    }
    case Way::kTiles:
      break;
  }
  op.launch(of_storage(KernelId::k_attention_fp32, storage),
            {p.heads, divide_up(p.tokens, p.tile), kAttentionThreads, attention_shared(p.head_dim)}, arguments);
  return absl::OkStatus();
}

/// In how many parts a key head's query heads go, so that the `blocks` of a key head's keys fill the card.
std::int32_t splits_of(std::int64_t blocks, const AttentionParams& p, std::int64_t multiprocessors) {
  const std::int32_t group = p.heads / p.kv_heads;
  std::int32_t splits = 1;
  while (splits < group && (group % splits != 0 || blocks * p.kv_heads * splits < kBlocksWanted * multiprocessors)) {
    ++splits;
  }
  return splits;
}

/// The kernels of the gradient by keys and by queries, and what a block of either is of.
struct GradientKernels {
  KernelId keys;
  KernelId queries;
  int rows;
  int threads;
  int shared;
};

/// REQUIRES: not Way::kTiles.
GradientKernels gradient_kernels(Way way, Storage storage, const AttentionParams& p) {
  using Id = KernelId;
  if (way == Way::kWide) {
    const int head = wide_head(p.head_dim);
    return {of_wide(Id::k_wide_keys_bf16_128, storage, head), of_wide(Id::k_wide_queries_bf16_128, storage, head),
            wide_rows(head), wide_threads(head), wide_backward_shared(head)};
  }
  const auto of = [&](KernelId bf16_64) { return of_matrix(bf16_64, storage, p.head_dim); };
  if (way == Way::kGroups) {
    return {of(Id::k_group_keys_bf16_64), of(Id::k_group_queries_bf16_64), kGroupRows, kGroup,
            group_backward_shared(p.head_dim)};
  }
  const bool capped = p.cap > 0;
  return {of(capped ? Id::k_capped_keys_bf16_64 : Id::k_matrix_keys_bf16_64),
          of(capped ? Id::k_capped_queries_bf16_64 : Id::k_matrix_queries_bf16_64), kMatrixRows, kMatrixThreads,
          matrix_backward_shared(p.head_dim)};
}

void lower_by_matrices(Lowering& op, Way way, Arguments<AttentionParams>& arguments, Storage storage) {
  AttentionParams& p = arguments.params;
  const GradientKernels kernels = gradient_kernels(way, storage, p);
  const std::int64_t blocks = divide_up(p.tokens, kernels.rows);
  p.splits = splits_of(blocks, p, op.options().multiprocessors);
  const Bytes part = static_cast<Bytes>(p.splits * op.in(1).elements()) * sizeof(float);
  if (p.splits > 1) {
    arguments.at(&AttentionParams::dk_parts, op.workspace(part)).at(&AttentionParams::dv_parts, op.workspace(part));
  }
  op.launch(kernels.keys, {std::int64_t{p.kv_heads} * p.splits, blocks, kernels.threads, kernels.shared}, arguments);
  op.launch(kernels.queries, {p.heads, blocks, kernels.threads, kernels.shared}, arguments);
  if (p.splits > 1) {
    op.launch(of_storage(KernelId::k_attention_join_fp32, storage),
              {divide_up(op.in(1).elements(), kMostThreads * kVector), 2, kMostThreads, 0}, arguments);
  }
}

absl::Status lower_backward(Lowering& op) {
  RONDO_RETURN_IF_ERROR(check_heads(op));
  Arguments<AttentionParams> arguments = arguments_of(op);
  const AttentionParams& p = arguments.params;
  const Place delta = op.workspace(static_cast<Bytes>(p.tokens) * static_cast<Bytes>(p.heads) * sizeof(float));
  using P = AttentionParams;
  arguments.at(&P::o, op.read(3)).at(&P::lse, op.read(4)).at(&P::d_o, op.read(5)).at(&P::bounds, op.read(6));
  arguments.at(&P::delta, delta).at(&P::dq, op.write(0)).at(&P::dk, op.write(1)).at(&P::dv, op.write(2));
  const Storage storage = Lowering::storage_of(op.in(0));
  op.launch(of_storage(KernelId::k_attention_delta_fp32, storage),
            {divide_up(std::int64_t{p.tokens} * p.heads, kDeltaRows), 1, kMostThreads, 0}, arguments);
  if (const Way way = way_of(op, p); way != Way::kTiles) {
    lower_by_matrices(op, way, arguments, storage);
    return absl::OkStatus();
  }
  const std::int64_t tiles = divide_up(p.tokens, p.tile);
  const int shared = attention_shared(p.head_dim);
  op.launch(of_storage(KernelId::k_attention_keys_fp32, storage), {p.kv_heads, tiles, kAttentionThreads, shared},
            arguments);
  op.launch(of_storage(KernelId::k_attention_queries_fp32, storage), {p.heads, tiles, kAttentionThreads, shared},
            arguments);
  return absl::OkStatus();
}

absl::Status lower_cached(Lowering& op) {
  RONDO_RETURN_IF_ERROR(check_heads(op));
  const auto& attributes = op.attributes<AttentionAttributes>();
  Arguments<CachedAttentionParams> arguments;
  CachedAttentionParams& p = arguments.params;
  p.heads = static_cast<std::int32_t>(op.in(0).shape[1]);
  p.kv_heads = static_cast<std::int32_t>(op.in(1).shape[1]);
  p.head_dim = static_cast<std::int32_t>(op.in(0).shape[2]);
  p.window = static_cast<std::int32_t>(std::min<std::uint32_t>(attributes.window, 0x7FFFFFFF));
  p.scale = attributes.scale;
  p.cap = attributes.cap;
  using P = CachedAttentionParams;
  arguments.at(&P::q, op.read(0)).at(&P::k, op.read(1)).at(&P::v, op.read(2)).at(&P::positions, op.read(3));
  arguments.at(&P::bounds, op.read(4)).at(&P::k_cache, op.read(5)).at(&P::v_cache, op.read(6));
  arguments.at(&P::o, op.write(0)).at(&P::lse, op.write(1));
  const Storage storage = Lowering::storage_of(op.in(0));
  const std::int64_t tokens = op.in(0).shape[0];
  op.launch(of_storage(KernelId::k_cache_put_fp32, storage), {tokens, 1, kMostThreads, 0}, arguments);
  op.launch(of_storage(KernelId::k_cached_attention_fp32, storage), {tokens, p.heads, kCachedThreads, kCachedShared},
            arguments);
  return absl::OkStatus();
}

/// Of both ops of a sink, and of the gradient of scales of heads.
Arguments<AttentionSinkParams> head_arguments(const Lowering& op) {
  using P = AttentionSinkParams;
  Arguments<P> arguments;
  arguments.params.tokens = static_cast<std::int32_t>(op.in(0).shape[0]);
  arguments.params.heads = static_cast<std::int32_t>(op.in(0).shape[1]);
  arguments.params.head_dim = static_cast<std::int32_t>(op.in(0).shape[2]);
  arguments.at(&P::o, op.read(0));
  return arguments;
}

Arguments<AttentionSinkParams> sink_arguments(const Lowering& op) {
  using P = AttentionSinkParams;
  Arguments<P> arguments = head_arguments(op);
  arguments.at(&P::lse, op.read(1)).at(&P::sinks, op.read(2));
  return arguments;
}

void lower_sink(Lowering& op) {
  using P = AttentionSinkParams;
  Arguments<P> arguments = sink_arguments(op);
  arguments.at(&P::y, op.write(0)).at(&P::total, op.write(1));
  op.launch(of_storage(KernelId::k_attention_sink_fp32, Lowering::storage_of(op.in(0))),
            {divide_up(op.in(1).elements(), kDeltaRows), 1, kMostThreads, 0}, arguments);
}

/// `d_o`: which read.
void lower_head_sums(Lowering& op, Arguments<AttentionSinkParams> arguments, std::size_t d_o) {
  using P = AttentionSinkParams;
  const std::int64_t heads = arguments.params.heads;
  const std::int64_t chunks = divide_up(arguments.params.tokens, kSinkChunk);
  const Place partial = op.workspace(static_cast<Bytes>(chunks * heads) * sizeof(float));
  arguments.at(&P::d_o, op.read(d_o)).at(&P::partial, partial);
  op.launch(of_storage(KernelId::k_attention_sink_gradient_fp32, Lowering::storage_of(op.in(0))),
            {heads, chunks, kMostThreads, 0}, arguments);
  add_chunks(op, partial, chunks, heads, op.write(0));
}

}  // namespace

absl::Status lower_attention(Lowering& op) {
  switch (op.op().kind) {
    case OpKind::kAttention:
      return lower_forward(op);
    case OpKind::kAttentionBackward:
      return lower_backward(op);
    case OpKind::kAttentionSink:
      lower_sink(op);
      return absl::OkStatus();
    case OpKind::kAttentionSinkGradient:
      lower_head_sums(op, sink_arguments(op), 3);
      return absl::OkStatus();
    case OpKind::kHeadScaleGradient:
      lower_head_sums(op, head_arguments(op), 1);
      return absl::OkStatus();
    default:
      return lower_cached(op);
  }
}

}  // namespace rondo::devices::cuda
