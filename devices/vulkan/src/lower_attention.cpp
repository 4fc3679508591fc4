// Attention, its gradient, and attention to a cache. Where there is a panel (panel.h), what is attended to goes through
// it.
#include <array>

#include "lowering.h"
#include "panel_size.h"

namespace rondo::devices::vulkan {
namespace {

/// Rows of a tile, so that `tiles` of them (and the scores) fit into 32 KiB of shared memory.
std::uint32_t tile_rows(std::int64_t width, std::int64_t tiles) {
  constexpr std::int64_t kFloats = 32768 / 4;
  const std::int64_t pitch = 4 * (parts_of(width, 4) + 1);
  std::uint32_t rows = 16;
  while (rows > 4 && rows * pitch * tiles + 2 * rows * rows + rows > kFloats) rows /= 2;
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

/// Queries or keys of a workgroup of the attention_*panels shaders, and the widest head that they keep at hand.
constexpr std::int64_t kPanelEight = 8;
constexpr std::int64_t kPanelHead = 128;

std::int64_t texels_of(const TensorDesc& rows) { return rows.shape[0] * rows.shape[1] * parts_of(rows.shape[2], 4); }

/// Whether the op's rows go through the panel, `texels` of it.
bool by_panels(OpLowering& op, std::int64_t texels) {
  const TensorDesc& q = op.in(0);
  if (!op.panel() || q.elements() == 0 || q.shape[2] > kPanelHead || texels > kPanelTexels) return false;
  op.use_panel(texels);
  return true;
}

void add_panel_rows(OpLowering& op, std::size_t input, std::int64_t place) {
  constexpr std::int64_t kTexelsOfGroup = 64;
  const TensorDesc& rows = op.in(input);
  op.add(Shader::kPanelRows, {storage_of(rows), static_cast<std::uint32_t>(rows.shape[2])},
         {op.read(input), kPanelSlot}, {texels_of(rows), place}, parts_of(texels_of(rows), kTexelsOfGroup));
}

/// `places`: in the panel. `over`: eights of its tokens and all of its heads make the grid.
void add_eights(OpLowering& op, Shader shader, const TensorDesc& over, std::initializer_list<std::uint32_t> slots,
                std::array<std::int64_t, 3> places) {
  const auto& attributes = op.attributes<AttentionAttributes>();
  const TensorDesc& q = op.in(0);
  Dispatch& dispatch =
      op.add(shader, {storage_of(q), static_cast<std::uint32_t>(q.shape[2])}, slots,
             {q.shape[0], q.shape[1], op.in(1).shape[1], attributes.window, places[0], places[1], places[2]}, 1);
  dispatch.push.factors[0] = attributes.scale;
  dispatch.groups = {static_cast<std::uint32_t>(parts_of(q.shape[0], kPanelEight)),
                     static_cast<std::uint32_t>(over.shape[1]), 1};
}

bool attend_by_panels(OpLowering& op) {
  const std::int64_t keys = texels_of(op.in(1));
  if (!by_panels(op, 2 * keys)) return false;
  add_panel_rows(op, 1, 0);
  add_panel_rows(op, 2, keys);
  add_eights(op, Shader::kAttentionPanels, op.in(0), {op.read(0), op.read(3), op.write(0), op.write(1)}, {0, keys, 0});
  return true;
}

/// Keys and values lie at the panel's beginning, then queries and do, then what is known of each query.
bool gradients_by_panels(OpLowering& op) {
  constexpr std::int64_t kRowsOfGroup = 64;
  const TensorDesc& q = op.in(0);
  const std::int64_t keys = texels_of(op.in(1));
  const std::int64_t queries = texels_of(q);
  const std::int64_t rows = q.shape[0] * q.shape[1];
  const std::int64_t stats = 2 * keys + 2 * queries;
  if (!by_panels(op, stats + rows)) return false;
  add_panel_rows(op, 1, 0);
  add_panel_rows(op, 2, keys);
  add_panel_rows(op, 0, 2 * keys);
  add_panel_rows(op, 5, 2 * keys + queries);
  op.add(Shader::kPanelStats, {storage_of(q)}, {op.read(3), op.read(5), op.read(4), op.read(6), kPanelSlot},
         {rows, q.shape[2], q.shape[1], op.attributes<AttentionAttributes>().window, stats},
         parts_of(rows, kRowsOfGroup));
  add_eights(op, Shader::kAttentionQueryPanels, q, {op.read(0), op.read(5), op.read(6), op.write(0)}, {0, keys, stats});
  add_eights(op, Shader::kAttentionKeyPanels, op.in(1), {op.read(1), op.read(2), op.read(6), op.write(1), op.write(2)},
             {2 * keys, 2 * keys + queries, stats});
  return true;
}

}  // namespace

void lower_attention(OpLowering& op) {
  if (attend_by_panels(op)) return;
  add_tiles(op, Shader::kAttention, tile_rows(op.in(0).shape[2], 2), false, op.in(0).shape[1],
            {op.read(0), op.read(1), op.read(2), op.read(3), op.write(0), op.write(1), op.read(3)});
}

void lower_attention_backward(OpLowering& op) {
  if (gradients_by_panels(op)) return;
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
