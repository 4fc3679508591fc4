// Attention, its gradient, and attention to a cache: by the card's matrix units where they suit, else by tiles. Where
// there is a panel (panel.h), what is attended to goes through it. Then what sinks make of it.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "largest.h"
#include "lowering.h"
#include "panel_size.h"

namespace rondo::devices::vulkan {
namespace {

/// Rows of a tile, so that `tiles` of them (and the scores) fit into 32 KiB of shared memory.
std::uint32_t tile_rows(std::int64_t width, std::int64_t tiles) {
  constexpr std::int64_t kFloats = 32768 / 4;
  const std::int64_t pitch = 4 * (parts_of(width, 4) + 1);
  std::uint32_t rows = 16;
  while (rows > 2 && rows * pitch * tiles + 2 * rows * rows + rows > kFloats) rows /= 2;
  return rows;
}

/// Products of queries and keys that a kernel makes, of those that its op's cost counts: the gradient's two halves have
/// scores and dp each.
double share_of(Shader shader) {
  switch (shader) {
    case Shader::kAttentionQueryGradient:
    case Shader::kAttentionQueryPanels:
    case Shader::kAttentionQueryUnits:
      return 3.0 / 5;
    case Shader::kAttentionKeyGradient:
    case Shader::kAttentionKeyPanels:
    case Shader::kAttentionKeyUnits:
      return 4.0 / 5;
    default:
      return 1;
  }
}

/// Of a kernel whose grid's first dimension are tokens: late ones see more than early ones, and are seen by fewer.
/// Where those of a cache stand is not known before they are here: at its end, at most.
void count_products(const OpLowering& op, Dispatch& dispatch) {
  const TensorDesc& q = op.in(0);
  const bool cached = op.op().kind == OpKind::kCachedAttention;
  const auto tokens = static_cast<double>(q.shape[0]);
  const double rows = cached ? std::max(static_cast<double>(rows_of(op.in(5))), tokens) : tokens;
  const std::uint32_t window = op.attributes<AttentionAttributes>().window;
  const double seen = window == 0 ? rows : std::min(rows, static_cast<double>(window));
  const double mean = cached ? std::min(seen, rows - tokens / 2) : seen * (1 - seen / (2 * tokens));
  dispatch.flops = cached ? 4 * static_cast<double>(q.elements()) * mean : op.flops() * share_of(dispatch.shader);
  dispatch.uneven = {0, seen / mean};
}

Dispatch& add_tiles(OpLowering& op, Shader shader, std::uint32_t tile, bool cached, std::int64_t heads,
                    std::initializer_list<std::uint32_t> slots, std::int64_t cache_rows = 0) {
  const auto& attributes = op.attributes<AttentionAttributes>();
  const TensorDesc& q = op.in(0);
  Dispatch& dispatch = op.add(
      shader,
      {storage_of(q), static_cast<std::uint32_t>(q.shape[2]), tile, flag_of(cached), flag_of(attributes.cap > 0)},
      slots, {q.shape[0], q.shape[1], op.in(1).shape[1], attributes.window, cache_rows}, q.elements() > 0 ? 1 : 0);
  dispatch.push.factors[0] = attributes.scale;
  dispatch.push.factors[1] = attributes.cap;
  dispatch.groups = {static_cast<std::uint32_t>(parts_of(q.shape[0], tile)), static_cast<std::uint32_t>(heads), 1};
  count_products(op, dispatch);
  return dispatch;
}

/// Queries or keys of a workgroup of the attention_*panels shaders, and the texels that they keep at hand of a row: of
/// wider heads workgroups have slices.
constexpr std::int64_t kPanelEight = 8;
constexpr std::int64_t kSliceTexels = 32;
std::int64_t slices_of(const TensorDesc& q) { return parts_of(q.shape[2], 4 * kSliceTexels); }

std::int64_t texels_of(const TensorDesc& rows) { return rows.shape[0] * rows.shape[1] * parts_of(rows.shape[2], 4); }

/// Whether the op's rows go through the panel, `texels` of it.
bool by_panels(OpLowering& op, std::int64_t texels) {
  const TensorDesc& q = op.in(0);
  if (!op.panel() || q.elements() == 0 || texels > kPanelTexels) return false;
  op.use_panel(texels);
  return true;
}

constexpr std::int64_t kTexelsOfGroup = 64;  // of panel_rows.comp

void add_panel_rows(OpLowering& op, std::size_t input, std::int64_t place) {
  const TensorDesc& rows = op.in(input);
  op.add(Shader::kPanelRows, {storage_of(rows), static_cast<std::uint32_t>(rows.shape[2]), flag_of(false)},
         {op.read(input), kPanelSlot}, {texels_of(rows), place}, parts_of(texels_of(rows), kTexelsOfGroup));
}

/// Of a cache, as far as the op's tokens see it.
void add_cache_rows(OpLowering& op, std::size_t input, std::int64_t place) {
  constexpr std::int64_t kMostGroups = 64;
  const TensorDesc& rows = op.in(input);
  const std::int64_t groups = std::min(kMostGroups, parts_of(texels_of(rows), kTexelsOfGroup));
  op.add(Shader::kPanelRows, {storage_of(rows), static_cast<std::uint32_t>(rows.shape[2]), flag_of(true)},
         {op.read(input), kPanelSlot, op.read(4), op.read(3)},
         {texels_of(rows), place, rows_of(rows), groups * kTexelsOfGroup, op.attributes<AttentionAttributes>().window},
         groups);
}

/// Where a kernel's operands are in the panel: two that it goes along, what is known of queries, and its own rows.
struct PanelPlaces {
  std::int64_t first = 0, second = 0, stats = 0, own_first = 0, own_second = 0;
};

/// `over`: eights of its tokens, all of its heads and their slices make the grid.
void add_eights(OpLowering& op, Shader shader, const TensorDesc& over, std::initializer_list<std::uint32_t> slots,
                const PanelPlaces& places) {
  const auto& attributes = op.attributes<AttentionAttributes>();
  const TensorDesc& q = op.in(0);
  const bool cached = op.op().kind == OpKind::kCachedAttention;
  Dispatch& dispatch = op.add(
      shader, {storage_of(q), static_cast<std::uint32_t>(q.shape[2]), flag_of(cached), flag_of(attributes.cap > 0)},
      slots,
      {q.shape[0], q.shape[1], op.in(1).shape[1], attributes.window, places.first, places.second, places.stats,
       places.own_first, places.own_second, cached ? rows_of(op.in(5)) : 0},
      1);
  dispatch.push.factors[0] = attributes.scale;
  dispatch.push.factors[1] = attributes.cap;
  dispatch.groups = {static_cast<std::uint32_t>(parts_of(q.shape[0], kPanelEight)),
                     static_cast<std::uint32_t>(over.shape[1]), static_cast<std::uint32_t>(slices_of(q))};
  count_products(op, dispatch);
}

/// Keys and values lie at the panel's beginning, behind them queries, where heads are wide. `keys`: texels of either.
bool open_panels(OpLowering& op, std::int64_t keys) {
  const bool wide = slices_of(op.in(0)) > 1;
  if (!by_panels(op, 2 * keys + (wide ? texels_of(op.in(0)) : 0))) return false;
  if (wide) add_panel_rows(op, 0, 2 * keys);
  return true;
}

bool attend_by_panels(OpLowering& op) {
  const std::int64_t keys = texels_of(op.in(1));
  if (!open_panels(op, keys)) return false;
  add_panel_rows(op, 1, 0);
  add_panel_rows(op, 2, keys);
  add_eights(op, Shader::kAttentionPanels, op.in(0), {op.read(0), op.read(3), op.write(0), op.write(1), op.read(3)},
             {.second = keys, .own_first = 2 * keys});
  return true;
}

bool attend_to_cache_by_panels(OpLowering& op) {
  const std::int64_t keys = texels_of(op.in(5));
  if (!open_panels(op, keys)) return false;
  add_cache_rows(op, 5, 0);
  add_cache_rows(op, 6, keys);
  add_eights(op, Shader::kAttentionPanels, op.in(0), {op.read(0), op.read(4), op.write(0), op.write(1), op.read(3)},
             {.second = keys, .own_first = 2 * keys});
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
  op.add(Shader::kPanelStats, {storage_of(q), flag_of(q.shape[2] % 4 == 0)},
         {op.read(3), op.read(5), op.read(4), op.read(6), kPanelSlot},
         {rows, q.shape[2], q.shape[1], op.attributes<AttentionAttributes>().window, stats},
         parts_of(rows, kRowsOfGroup));
  add_eights(op, Shader::kAttentionQueryPanels, q, {op.read(6), op.write(0)},
             {.second = keys, .stats = stats, .own_first = 2 * keys, .own_second = 2 * keys + queries});
  add_eights(op, Shader::kAttentionKeyPanels, op.in(1), {op.read(6), op.write(1), op.write(2)},
             {.first = 2 * keys, .second = 2 * keys + queries, .stats = stats, .own_second = keys});
  return true;
}

/// How attention_units.glsl is cut.
struct UnitTiles {
  std::uint32_t own = 0;      // rows of a workgroup
  std::uint32_t passing = 0;  // rows at a time
};

/// An attention kernel by matrix units: as it defines them, and how many sums of each row and channel it has.
struct UnitKernel {
  Shader shader = Shader::kAttentionUnits;
  std::int64_t operands = 1;
  std::int64_t weights = 1;
  std::int64_t sums = 1;
};
constexpr UnitKernel kForwardUnits = {Shader::kAttentionUnits, 1, 1, 1};
constexpr UnitKernel kQueryUnits = {Shader::kAttentionQueryUnits, 2, 1, 1};
constexpr UnitKernel kKeyUnits = {Shader::kAttentionKeyUnits, 2, 2, 2};

/// Two subgroups along the own rows.
std::uint32_t unit_invocations(const MatrixUnits& units, const MatrixUnits::Shape& shape) {
  return 2 * MatrixUnits::parts(shape.n) * units.subgroup_size;
}

/// A kernel's shared memory, in bytes, for heads of `channels`, those filled up with zeros included; `slice` as in
/// attention_units.glsl.
std::int64_t shared_bytes(const UnitKernel& kernel, const UnitTiles& tiles, std::int64_t channels, std::int64_t slice) {
  const std::int64_t own = tiles.own;
  const std::int64_t passing = tiles.passing;
  const std::int64_t known = passing * 8 + 32;  // numbers of passing rows, and largest ones
  return 16 * kernel.operands * (own + passing) * (channels / 8 + 1) +
         4 * own * std::max(kernel.operands * passing, slice) + 16 * kernel.weights * own * (passing / 8 + 1) +
         4 * own + known;
}

/// The first cut whose sums leave registers free, and its tiles a second workgroup's room on a core of 64 KiB, else the
/// smallest that the card takes; of heads too long for these, the first that it takes of those in which fewer rows pass
/// than there are parts for. `own` is 0 where there is none.
UnitTiles unit_tiles(const MatrixUnits& units, const MatrixUnits::Shape& shape, const UnitKernel& kernel,
                     std::int64_t width) {
  constexpr std::int64_t kRoomy = 32768;
  constexpr std::int64_t kFewSums = 32;  // of an invocation
  const std::uint32_t slice = MatrixUnits::parts(shape.n) * shape.n;
  const std::uint32_t unit = std::max(slice, shape.k);
  const std::int64_t channels = parts_of(width, unit) * unit;
  const std::uint32_t invocations = unit_invocations(units, shape);
  const auto bytes_of = [&](const UnitTiles& tiles) { return shared_bytes(kernel, tiles, channels, slice); };
  const auto takes = [&](const UnitTiles& tiles) {
    return tiles.own % (2 * shape.m) == 0 && tiles.own <= invocations && bytes_of(tiles) <= units.shared_bytes;
  };
  UnitTiles found;
  for (const UnitTiles& tiles : {UnitTiles{64, 32}, UnitTiles{32, 32}, UnitTiles{16, 32}}) {
    if (tiles.passing % unit != 0 || !takes(tiles)) continue;
    found = tiles;
    if (bytes_of(tiles) <= kRoomy && kernel.sums * tiles.own * channels <= kFewSums * invocations) break;
  }
  if (found.own != 0) return found;
  for (const UnitTiles& tiles : {UnitTiles{32, 16}, UnitTiles{16, 16}, UnitTiles{32, 8}, UnitTiles{16, 8}}) {
    const bool suits = tiles.passing < slice && tiles.passing % shape.n == 0 && tiles.passing % shape.k == 0;
    if (suits && takes(tiles)) return tiles;
  }
  return {};
}

/// Whether operands are made fp16 for the units, see shaders/scaled.glsl.
bool scales(const OpLowering& op) { return op.in(0).dtype == DType::kBfloat16 && !op.units().bfloat16.there(); }

/// The card's shape for the op's operands, if it can attend by matrix units.
MatrixUnits::Shape attention_shape(const OpLowering& op) {
  const TensorDesc& q = op.in(0);
  if (q.dtype == DType::kFloat32) return {};
  const bool bfloat16 = q.dtype == DType::kBfloat16 && !scales(op);
  const MatrixUnits::Shape shape = bfloat16 ? op.units().bfloat16 : op.units().float16;
  const bool suits = std::has_single_bit(shape.m) && std::has_single_bit(shape.n) && std::has_single_bit(shape.k) &&
                     shape.n >= 8 && q.shape[2] % 8 == 0 && q.elements() > 0;
  return suits && unit_invocations(op.units(), shape) <= op.units().invocations ? shape : MatrixUnits::Shape{};
}

/// Of q, k, v and do, as far as the op has them; nothing where they are not scaled.
Largest find_largest(OpLowering& op) {
  if (!scales(op)) return {};
  std::vector<Searched> tensors;
  for (std::size_t i = 0; i < (op.op().kind == OpKind::kAttention ? 3U : 4U); ++i) {
    const std::size_t operand = i == 3 ? 5 : i;
    const TensorDesc& tensor = op.in(operand);
    tensors.push_back({op.read(operand), storage_of(tensor), rows_of(tensor), columns_of(tensor)});
  }
  return find_largest(op, tensors)[0];
}

Dispatch& add_units(OpLowering& op, const UnitKernel& kernel, const MatrixUnits::Shape& shape, const UnitTiles& tiles,
                    std::int64_t heads, const Largest& largest, std::initializer_list<std::uint32_t> slots) {
  const auto& attributes = op.attributes<AttentionAttributes>();
  const TensorDesc& q = op.in(0);
  Dispatch& dispatch =
      op.add(kernel.shader,
             {storage_of(q), static_cast<std::uint32_t>(q.shape[2]), tiles.passing, shape.m, shape.n, shape.k,
              MatrixUnits::parts(shape.n), tiles.own / (2 * shape.m), unit_invocations(op.units(), shape),
              flag_of(op.units().wide()), flag_of(scales(op)), flag_of(attributes.cap > 0)},
             slots, {q.shape[0], q.shape[1], op.in(1).shape[1], attributes.window, largest.count}, 1);
  dispatch.push.factors[0] = attributes.scale;
  dispatch.push.factors[1] = attributes.cap;
  dispatch.groups = {static_cast<std::uint32_t>(parts_of(q.shape[0], tiles.own)), static_cast<std::uint32_t>(heads), 1};
  count_products(op, dispatch);
  return dispatch;
}

bool attend_by_units(OpLowering& op) {
  const MatrixUnits::Shape shape = attention_shape(op);
  if (!shape.there()) return false;
  const UnitTiles tiles = unit_tiles(op.units(), shape, kForwardUnits, op.in(0).shape[2]);
  if (tiles.own == 0) return false;
  const Largest largest = find_largest(op);
  add_units(op, kForwardUnits, shape, tiles, op.in(0).shape[1], largest,
            {op.read(0), op.read(1), op.read(2), op.read(3), op.write(0), op.write(1), largest.slot});
  return true;
}

/// do . o of every query; for the gradient of sinks, what each query adds to it.
/// `o`, `d_o`: which reads; `rest`: lse and sinks, where there are some.
std::uint32_t add_dots(OpLowering& op, std::size_t o, std::size_t d_o, bool sinks) {
  constexpr std::int64_t kThreads = 64;
  const TensorDesc& of = op.in(o);
  const std::int64_t rows = of.shape[0] * of.shape[1];
  const std::uint32_t delta = op.workspace(rows);
  op.add(Shader::kAttentionDelta, {storage_of(of), spread_step(of.shape[2]), flag_of(sinks)},
         {op.read(o), op.read(d_o), delta, op.read(sinks ? 1 : o), op.read(sinks ? 2 : o)},
         {rows, of.shape[2], of.shape[1]}, parts_of(rows, kThreads));
  return delta;
}

bool gradients_by_units(OpLowering& op) {
  const MatrixUnits::Shape shape = attention_shape(op);
  if (!shape.there()) return false;
  const UnitTiles queries = unit_tiles(op.units(), shape, kQueryUnits, op.in(0).shape[2]);
  const UnitTiles keys = unit_tiles(op.units(), shape, kKeyUnits, op.in(0).shape[2]);
  if (queries.own == 0 || keys.own == 0) return false;
  const std::uint32_t delta = add_dots(op, 3, 5, false);
  const Largest largest = find_largest(op);
  add_units(op, kQueryUnits, shape, queries, op.in(0).shape[1], largest,
            {op.read(0), op.read(1), op.read(2), op.read(4), op.read(5), op.read(6), delta, op.write(0), largest.slot});
  add_units(op, kKeyUnits, shape, keys, op.in(1).shape[1], largest,
            {op.read(0), op.read(1), op.read(2), op.read(4), op.read(5), op.read(6), delta, op.write(1), op.write(2),
             largest.slot})
      .beside = true;
  return true;
}

}  // namespace

void lower_attention(OpLowering& op) {
  if (attend_by_units(op) || attend_by_panels(op)) return;
  add_tiles(op, Shader::kAttention, tile_rows(op.in(0).shape[2], 2), false, op.in(0).shape[1],
            {op.read(0), op.read(1), op.read(2), op.read(3), op.write(0), op.write(1), op.read(3)});
}

void lower_attention_backward(OpLowering& op) {
  if (gradients_by_units(op) || gradients_by_panels(op)) return;
  const TensorDesc& q = op.in(0);
  const std::uint32_t delta = add_dots(op, 3, 5, false);
  const std::uint32_t tile = tile_rows(q.shape[2], 4);
  add_tiles(op, Shader::kAttentionQueryGradient, tile, false, q.shape[1],
            {op.read(0), op.read(1), op.read(2), op.read(4), op.read(5), op.read(6), delta, op.write(0)});
  add_tiles(op, Shader::kAttentionKeyGradient, tile, false, op.in(1).shape[1],
            {op.read(0), op.read(1), op.read(2), op.read(4), op.read(5), op.read(6), delta, op.write(1), op.write(2)})
      .beside = true;
}

void lower_cached_attention(OpLowering& op) {
  constexpr std::int64_t kElementsOfGroup = 256;
  const TensorDesc& k = op.in(1);
  const TensorDesc& cache = op.in(5);
  op.add(Shader::kCacheStore, {storage_of(k)}, {op.read(1), op.read(2), op.read(3), op.read(4), op.read(5), op.read(6)},
         {k.elements(), columns_of(k), rows_of(cache)}, parts_of(k.elements(), kElementsOfGroup));
  if (attend_to_cache_by_panels(op)) return;
  add_tiles(op, Shader::kAttention, tile_rows(op.in(0).shape[2], 2), true, op.in(0).shape[1],
            {op.read(0), op.read(5), op.read(6), op.read(4), op.write(0), op.write(1), op.read(3)}, rows_of(cache));
}

void lower_attention_sink(OpLowering& op) {
  constexpr std::int64_t kThreads = 256;
  const TensorDesc& o = op.in(0);
  const std::uint32_t step = spread_step(o.shape[2]);
  const std::uint32_t each = each_of_row(op, o.shape[2] / step);
  op.add(Shader::kAttentionSink, {storage_of(o), step, each},
         {op.read(0), op.read(1), op.read(2), op.write(0), op.write(1)}, {o.elements(), o.shape[2], o.shape[1]},
         parts_of(o.elements(), kThreads * step * each));
}

void lower_attention_sink_gradient(OpLowering& op) {
  const TensorDesc& lse = op.in(1);
  if (lse.elements() == 0) return;
  lower_token_sums(op, kFloat32Storage, add_dots(op, 0, 3, true), op.write(0), rows_of(lse), columns_of(lse));
}

void lower_head_scale_gradient(OpLowering& op) {
  const TensorDesc& x = op.in(0);
  if (x.elements() == 0) return;
  lower_token_sums(op, kFloat32Storage, add_dots(op, 0, 1, false), op.write(0), rows_of(x), x.shape[1]);
}

}  // namespace rondo::devices::vulkan
