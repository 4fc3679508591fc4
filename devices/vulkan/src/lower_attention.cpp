// Attention, its gradient, and attention to a cache.
#include "lowering.h"

namespace rondo::devices::vulkan {
namespace {

/// Rows of a tile, so that `tiles` of them (and the scores) fit into 32 KiB of shared memory.
std::uint32_t tile_rows(std::int64_t width, std::int64_t tiles) {
  constexpr std::int64_t kFloats = 32768 / 4;
  std::uint32_t rows = 16;
  while (rows > 4 && rows * (width + 1) * tiles + 2 * rows * rows + rows > kFloats) rows /= 2;
  return rows;
}

Dispatch& add_tiles(OpLowering& op, Shader shader, std::uint32_t tile, bool cached, std::int64_t heads,
                    std::initializer_list<std::uint32_t> slots, std::int64_t cache_rows = 0) {
  const auto& attributes = op.attributes<AttentionAttributes>();
  const TensorDesc& q = op.in(0);
  Dispatch& dispatch =
      op.add(shader, {storage_of(q), static_cast<std::uint32_t>(q.shape[2]), tile, cached ? 1U : 0U}, slots,
             {q.shape[0], q.shape[1], op.in(1).shape[1], attributes.window, cache_rows}, q.elements() > 0 ? 1 : 0);
  dispatch.push.factors[0] = attributes.scale;
  dispatch.groups = {static_cast<std::uint32_t>(parts_of(q.shape[0], tile)), static_cast<std::uint32_t>(heads), 1};
  return dispatch;
}

}  // namespace

void lower_attention(OpLowering& op) {
  add_tiles(op, Shader::kAttention, tile_rows(op.in(0).shape[2], 2), false, op.in(0).shape[1],
            {op.read(0), op.read(1), op.read(2), op.read(3), op.write(0), op.write(1), op.read(3)});
}

void lower_attention_backward(OpLowering& op) {
  constexpr std::int64_t kThreads = 64;
  const TensorDesc& q = op.in(0);
  const std::int64_t rows = q.shape[0] * q.shape[1];
  const std::uint32_t delta = op.workspace(rows);
  const std::uint32_t tile = tile_rows(q.shape[2], 4);
  op.add(Shader::kAttentionDelta, {storage_of(q)}, {op.read(3), op.read(5), delta}, {rows, q.shape[2]},
         parts_of(rows, kThreads));
  add_tiles(op, Shader::kAttentionQueryGradient, tile, false, q.shape[1],
            {op.read(0), op.read(1), op.read(2), op.read(4), op.read(5), op.read(6), delta, op.write(0)});
  add_tiles(op, Shader::kAttentionKeyGradient, tile, false, op.in(1).shape[1],
            {op.read(0), op.read(1), op.read(2), op.read(4), op.read(5), op.read(6), delta, op.write(1), op.write(2)});
}

void lower_cached_attention(OpLowering& op) {
  constexpr std::int64_t kElementsOfGroup = 256;
  const TensorDesc& k = op.in(1);
  const TensorDesc& cache = op.in(5);
  op.add(Shader::kCacheStore, {storage_of(k)}, {op.read(1), op.read(2), op.read(3), op.read(4), op.read(5), op.read(6)},
         {k.elements(), columns_of(k), rows_of(cache)}, parts_of(k.elements(), kElementsOfGroup));
  add_tiles(op, Shader::kAttention, tile_rows(op.in(0).shape[2], 2), true, op.in(0).shape[1],
            {op.read(0), op.read(5), op.read(6), op.read(4), op.write(0), op.write(0), op.read(3)}, rows_of(cache));
}

}  // namespace rondo::devices::vulkan
