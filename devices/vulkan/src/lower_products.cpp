// Matrix products, and cross-entropy over the vocabulary, which is made of them.
#include <algorithm>

#include "largest.h"
#include "lowering.h"
#include "panel_size.h"
#include "product.h"

namespace rondo::devices::vulkan {
namespace {

/// Rows and columns of a tile of matmul_panels.comp.
constexpr std::int64_t kPanelRows = 32;
std::int64_t panel_columns(const Product& p) { return p.columns <= 32 ? 32 : 64; }

std::int64_t rounded(std::int64_t n, std::int64_t grain) { return parts_of(n, grain) * grain; }

/// Rows and columns of a product of which panels are taken at once.
struct PanelShare {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Which operands kernels fetch where they lie: fp32 in whole texels, whose inner extent ends with one.
struct Fetched {
  bool a = false;
  bool b = false;
};
Fetched fetched_of(const OpLowering& op, const Product& p) {
  constexpr std::int64_t kOfTexel = 4;
  if (!op.fetches_all() || p.depth % kOfTexel != 0 || p.listed == Product::Listed::kB) return {};
  return {p.type_a == kFloat32Storage && p.stride_a % kOfTexel == 0 && p.transposed_a,
          p.type_b == kFloat32Storage && p.stride_b % kOfTexel == 0 && !p.transposed_b};
}

/// All of them where they fit or are fetched, none where a tile does not, or where so few are there that laying out
/// does not pay.
PanelShare panel_share(const Product& p, std::int64_t depth, Fetched fetched) {
  constexpr std::int64_t kWorthwhile = 8;
  if (p.rows < kWorthwhile || p.columns < kWorthwhile || depth < 1) return {};
  const std::int64_t room = kPanelTexels / parts_of(depth, 4);  // rows and columns together
  const std::int64_t tile = panel_columns(p);
  PanelShare share{rounded(p.rows, kPanelRows), rounded(p.columns, tile)};
  if ((fetched.a ? 0 : share.rows) + (fetched.b ? 0 : share.columns) <= room) return share;
  if (room < kPanelRows + tile) return {};
  if (fetched.a) {
    share.columns = room / tile * tile;
  } else if (fetched.b) {
    share.rows = room / kPanelRows * kPanelRows;
  } else {
    share.columns = std::min(share.columns, std::max(room * 3 / 4 / tile, std::int64_t{1}) * tile);
    share.rows = std::min(share.rows, (room - share.columns) / kPanelRows * kPanelRows);
    share.columns = std::min(rounded(p.columns, tile), (room - share.rows) / tile * tile);
  }
  return share;
}

/// Lays out `blocks` of `of_b`'s operand from `first` on, inner elements `begin` to `end`.
void add_panel(OpLowering& op, const Product& p, bool of_b, std::int64_t first, std::int64_t outers, std::int64_t begin,
               std::int64_t end, std::int64_t place) {
  const bool inner_ends = p.listed == Product::Listed::kB;
  const bool strides = of_b ? !p.transposed_b : p.transposed_a;
  const std::int64_t fours = parts_of(end - begin, 4);
  const std::int64_t tile = of_b ? panel_columns(p) : kPanelRows;
  const std::int64_t texels = rounded(outers, tile) * fours;
  const std::int64_t outer_extent = of_b ? p.columns : p.rows;
  const std::int64_t stride = of_b ? p.stride_b : p.stride_a;
  const bool fours_lie_together = (strides ? outer_extent : end) % 4 == 0 && stride % 4 == 0 && begin % 4 == 0;
  const bool by_fours = fours_lie_together && p.listed == Product::Listed::kNone;
  const bool fetched = by_fours && op.fetches_all() && end % 4 == 0 && (of_b ? p.type_b : p.type_a) == kFloat32Storage;
  if (fetched) op.fetch(of_b ? p.b : p.a);
  constexpr std::int64_t kInvocations = 64;
  op.add(Shader::kPanel,
         {of_b ? p.type_b : p.type_a, flag_of(of_b), flag_of(strides),
          flag_of(!of_b && p.listed == Product::Listed::kA), flag_of(inner_ends), flag_of(of_b && inner_ends),
          flag_of(by_fours), static_cast<std::uint32_t>(tile), flag_of(fetched)},
         {of_b ? p.b : p.a, kPanelSlot, p.listed == Product::Listed::kNone ? p.a : p.list},
         {outer_extent, end, stride, first, begin, place, fours, p.first_listed, p.most_listed, texels},
         parts_of(by_fours ? texels / 8 : texels, kInvocations));
}

/// Tiles of rows whose columns are computed in turn, so that their part of A stays in a processor's cache.
std::int64_t tiles_together(std::int64_t tiles, std::int64_t depth) {
  constexpr std::int64_t kMost = 8;
  constexpr Bytes kCached = 512_KiB;
  const Bytes bytes = static_cast<Bytes>(kPanelRows * depth) * sizeof(float);
  const std::int64_t together = std::clamp<std::int64_t>(static_cast<std::int64_t>(kCached / bytes), 1, kMost);
  // One more where all groups are then of one size, and no workgroup is left with nothing to do.
  if (together > 1 && tiles % together != 0 && tiles % (together + 1) == 0) return together + 1;
  return parts_of(tiles, parts_of(tiles, together));
}

/// What the inner extent's elements `begin` to `end` add, from tensors and from panels, of which B's follows A's.
void add_panel_product(OpLowering& op, const Product& p, PanelShare at, PanelShare share, std::int64_t begin,
                       std::int64_t end, Fetched fetched) {
  const std::int64_t tile = panel_columns(p);
  const std::int64_t fours = parts_of(end - begin, 4);
  const bool whole_texels = op.fetches_all() && p.columns % 4 == 0;
  const bool four_out = whole_texels && p.adds() && p.type_out == kFloat32Storage;
  const bool four_addend = whole_texels && p.has_addend && p.type_addend == kFloat32Storage;
  if (fetched.a) op.fetch(p.a);
  if (fetched.b) op.fetch(p.b);
  if (four_out) op.fetch(p.out);
  if (four_addend) op.fetch(p.addend);
  const std::int64_t place_a = fetched.a ? begin * p.stride_a / 4 : 0;
  const std::int64_t place_b = fetched.b ? begin * p.stride_b / 4 : fetched.a ? 0 : share.rows * fours;
  const std::int64_t last_row = std::min(at.rows + share.rows, p.rows);
  Dispatch& dispatch =
      op.add(Shader::kMatMulPanels,
             {flag_of(fetched.a), flag_of(fetched.b), p.type_out, p.type_bias, p.type_addend, 0, 0, flag_of(p.has_bias),
              flag_of(p.has_addend), flag_of(p.adds()), static_cast<std::uint32_t>(p.listed),
              static_cast<std::uint32_t>(tile / 32), p.columns % 2 == 0 ? 2U : 1U, flag_of(op.fetches_all()),
              flag_of(four_out), flag_of(four_addend)},
             {p.a, p.b, p.out, p.has_bias ? p.bias : p.a, p.has_addend ? p.addend : p.a,
              p.listed == Product::Listed::kNone ? p.a : p.list},
             {last_row, p.columns, at.rows, at.columns, place_a, p.columns, fours, p.first_listed, p.most_listed,
              place_b, 0, p.stride_a / 4, p.stride_b / 4},
             1);
  dispatch.push.factors[0] = p.alpha;
  const std::int64_t columns = std::min(share.columns, p.columns - at.columns);
  dispatch.flops = flops_of(last_row - at.rows, columns, end - begin);
  const std::int64_t row_tiles = parts_of(last_row - at.rows, kPanelRows);
  const std::int64_t together = tiles_together(row_tiles, end - begin);
  dispatch.groups = {static_cast<std::uint32_t>(together), static_cast<std::uint32_t>(parts_of(columns, tile)),
                     static_cast<std::uint32_t>(parts_of(row_tiles, together))};
}

/// False where the product does not go that way.
bool add_by_panels(OpLowering& op, const Product& p) {
  const std::int64_t chunk = p.accumulate ? std::min(kTokenChunk, p.depth) : p.depth;
  const Fetched fetched = fetched_of(op, p);
  const PanelShare share = op.panel() ? panel_share(p, chunk, fetched) : PanelShare{};
  if (share.rows == 0) return false;
  op.use_panel((share.rows + share.columns) * parts_of(chunk, 4));
  for (std::int64_t begin = 0; begin < p.depth; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, p.depth);
    const std::int64_t fours = parts_of(end - begin, 4);
    for (PanelShare at; at.columns < p.columns; at.columns += share.columns) {
      if (!fetched.b) {
        add_panel(op, p, true, at.columns, std::min(share.columns, p.columns - at.columns), begin, end,
                  fetched.a ? 0 : share.rows * fours);
      }
      for (at.rows = 0; at.rows < p.rows; at.rows += share.rows) {
        if (!fetched.a && (share.rows < p.rows || at.columns == 0)) {
          add_panel(op, p, false, at.rows, std::min(share.rows, p.rows - at.rows), begin, end, 0);
        }
        add_panel_product(op, p, at, share, begin, end, fetched);
      }
    }
  }
  return true;
}

/// Sixteen columns or fewer, straight from the tensors. False where the product does not go that way.
bool add_narrow(OpLowering& op, const Product& p) {
  constexpr std::int64_t kNarrow = 16;
  constexpr std::int64_t kWorthwhile = 8;
  constexpr std::int64_t kRows = 32;
  if (!op.fetches_all() || p.rows < kWorthwhile || p.columns < kWorthwhile || p.columns > kNarrow) return false;
  if (p.type_a != kFloat32Storage || p.type_b != kFloat32Storage || p.transposed_a || p.adds()) return false;
  if (!p.transposed_b && p.columns != kNarrow) return false;
  if (p.depth == 0 || p.depth % 4 != 0 || p.stride_a % 4 != 0 || p.stride_b % 4 != 0) return false;
  if (p.listed == Product::Listed::kA || p.listed == Product::Listed::kB) return false;
  op.fetch(p.a);
  op.fetch(p.b);
  Dispatch& dispatch = op.add(
      Shader::kMatMulNarrow,
      {0, 0, p.type_out, p.type_bias, p.type_addend, 0, flag_of(p.transposed_b), flag_of(p.has_bias),
       flag_of(p.has_addend), 0, static_cast<std::uint32_t>(p.listed)},
      {p.a, p.b, p.out, p.has_bias ? p.bias : p.a, p.has_addend ? p.addend : p.a,
       p.listed == Product::Listed::kNone ? p.a : p.list},
      {p.rows, p.columns, p.depth / 4, p.stride_a / 4, p.stride_b / 4, p.columns, 0, p.first_listed, p.most_listed},
      parts_of(p.rows, kRows));
  dispatch.push.factors[0] = p.alpha;
  dispatch.flops = flops_of(p.rows, p.columns, p.depth);
  return true;
}

void add_product(OpLowering& op, const Product& p) {
  if (add_few(op, p) || add_by_units(op, p) || add_narrow(op, p) || add_by_panels(op, p)) return;
  add_by_tiles(op, p);
}

/// The operands and the factor; what it is a product of is still to be said.
Product product_of(OpLowering& op) {
  Product p;
  p.a = op.read(0);
  p.b = op.read(1);
  p.out = op.write(0);
  p.type_a = storage_of(op.in(0));
  p.type_b = storage_of(op.in(1));
  p.alpha = op.attributes<MatMulAttributes>().alpha;
  return p;
}

Product matmul_of(OpLowering& op) {
  const auto& attributes = op.attributes<MatMulAttributes>();
  const bool forward = op.op().kind == OpKind::kMatMul;
  Product p = product_of(op);
  p.type_out = storage_of(op.out(0));
  p.rows = rows_of(op.in(0));
  p.depth = columns_of(op.in(0));
  p.columns = forward ? op.in(1).shape[0] : op.in(1).shape[1];
  p.stride_a = p.depth;
  p.stride_b = op.in(1).shape[1];
  p.transposed_b = forward;
  if (attributes.has_bias) {
    p.has_bias = true;
    p.bias = op.read(2);
    p.type_bias = storage_of(op.in(2));
  }
  if (attributes.has_addend) {
    p.has_addend = true;
    p.addend = op.read(op.reads() - 1);
    p.type_addend = storage_of(op.in(op.reads() - 1));
  }
  return p;
}

}  // namespace

void lower_matmul(OpLowering& op) { add_product(op, matmul_of(op)); }

void lower_product_pair(OpLowering& narrow, OpLowering& wide, bool narrow_first) {
  Product small = matmul_of(narrow);
  Product large = matmul_of(wide);
  if (narrow_first) {  // what the second adds is the first; what that adds is left
    small.out = large.out;
    small.type_out = large.type_out;
    large.has_addend = small.has_addend;
    large.addend = small.addend;
    large.type_addend = small.type_addend;
  } else {
    large.out = small.out;
    large.type_out = small.type_out;
  }
  small.has_addend = false;
  large.onto = true;
  add_product(narrow, small);
  add_product(wide, large);
}

void lower_weight_gradient(OpLowering& op) {
  Product p = product_of(op);
  p.rows = columns_of(op.in(0));
  p.columns = columns_of(op.in(1));
  p.depth = rows_of(op.in(0));
  p.stride_a = p.rows;
  p.stride_b = p.columns;
  p.transposed_a = true;
  p.accumulate = true;
  add_product(op, p);
}

namespace {

/// The loss over the vocabulary, whole or in parts, and its gradients; the order of things is that of the CPU's
/// vocabulary_op.cpp. Every chunk of the tokens that have a target is dispatched; past the last one kernels find
/// nothing to do.
class Vocabulary {
 public:
  explicit Vocabulary(OpLowering& op)
      : op_(op),
        attributes_(op.attributes<VocabularyAttributes>()),
        tokens_(rows_of(op.in(0))),
        width_(columns_of(op.in(0))),
        chunk_(std::min(cross_entropy_chunk(attributes_.vocabulary), tokens_)),
        before_(attributes_.first_row > 0),
        gives_loss_(op.op().kind == OpKind::kVocabularyLoss),
        gives_statistics_(op.op().kind == OpKind::kVocabularyStatistics) {}

  void lower() {
    list_ = op_.workspace(1 + tokens_);
    losses_ = op_.workspace(tokens_);
    place_statistics();
    largest_w_.resize(attributes_.parts);
    for (std::uint32_t part = 0; part < attributes_.parts; ++part) {
      logits_.push_back(op_.workspace(chunk_ * rows_of(op_.in(2 + part))));
    }
    op_.add(Shader::kTargets, {}, {op_.read(1), list_}, {tokens_, attributes_.vocabulary}, 1);
    begin_gradient();
    for (std::int64_t first = 0; first < tokens_; first += chunk_) lower_chunk(first);
    if (gives_loss_) op_.add(Shader::kLossSum, {}, {losses_, list_, op_.write(0)}, {}, 1);
  }

 private:
  /// Where statistics and normalisers lie; tokens without a target have zeros.
  void place_statistics() {
    statistics_ = gives_statistics_ ? op_.write(0) : op_.workspace(tokens_ * 3);
    if (gives_statistics_) {
      lower_zero(op_, statistics_, op_.out(0));
      lower_copy(op_, op_.read(0), op_.write(1), op_.out(1));
    }
    const bool passes = attributes_.has_input_gradient && before_;
    if (!gives_loss_ && !gives_statistics_) {
      normalisers_ = op_.read(3);
      if (passes) lower_copy(op_, normalisers_, op_.write(1), op_.out(1));
      return;
    }
    normalisers_ = passes ? op_.write(2) : op_.workspace(tokens_ * 2);
    if (passes) lower_zero(op_, normalisers_, op_.out(2));
  }

  void begin_gradient() {
    if (!attributes_.has_input_gradient) return;
    dx_ = op_.write(gives_loss_ ? 1 : 0);
    if (gives_loss_) {
      lower_zero(op_, dx_, op_.in(0));
    } else {
      lower_copy(op_, op_.read(4), dx_, op_.in(0));
    }
  }

  /// Of all parts of the vocabulary: its gradient comes with the loss, and there is no dx so far.
  bool is_last(std::uint32_t part) const { return gives_loss_ && part + 1 == attributes_.parts; }

  /// `mode`: see vocabulary.comp.
  void add_rows(std::uint32_t mode, std::uint32_t part, std::int64_t first) {
    std::int64_t first_row = attributes_.first_row;
    for (std::uint32_t i = 0; i < part; ++i) first_row += rows_of(op_.in(2 + i));
    const bool before = mode != 2 && (before_ || part > 0);
    const bool gradient = mode != 0 && attributes_.has_input_gradient;
    const bool scaled = gradient && attributes_.has_loss_scale;
    op_.add(Shader::kVocabulary,
            {mode, flag_of(before), flag_of(gradient), flag_of(scaled), flag_of(attributes_.cap > 0)},
            {logits_[part], op_.read(1), list_, before && part == 0 ? op_.read(2 + attributes_.parts) : statistics_,
             statistics_, normalisers_, losses_, scaled ? op_.read(op_.reads() - 1) : losses_},
            {rows_of(op_.in(2 + part)), first, chunk_, first_row}, chunk_)
        .push.factors[0] = attributes_.cap;
  }

  void lower_chunk(std::int64_t first) {
    for (std::uint32_t part = 0; part < attributes_.parts; ++part) {
      Product p = product(part, first);  // logits = x w^T
      p.listed = Product::Listed::kA;
      p.a = op_.read(0);
      p.type_a = storage_of(op_.in(0));
      p.out = logits_[part];
      p.columns = rows_of(op_.in(2 + part));
      p.depth = p.stride_a = width_;
      p.transposed_b = true;
      p.largest_a = &largest_x_;
      add_product(op_, p);
      if (gives_loss_ || gives_statistics_) add_rows(is_last(part) ? 1 : 0, part, first);
    }
    for (std::uint32_t part = attributes_.parts; attributes_.has_input_gradient && part-- > 0;) {
      if (!is_last(part)) add_rows(2, part, first);
      add_gradients(part, first);
    }
  }

  void add_gradients(std::uint32_t part, std::int64_t first) {
    Largest largest;
    Product p = product(part, first);  // dx += gradient w
    p.a = logits_[part];
    p.largest_a = &largest;
    narrow_gradient(p);
    p.stride_a = p.depth = rows_of(op_.in(2 + part));
    p.columns = width_;
    p.listed = Product::Listed::kOut;
    p.out = p.addend = dx_;
    p.type_out = p.type_addend = storage_of(op_.in(0));
    p.has_addend = !is_last(part);
    add_product(op_, p);
    if (!attributes_.has_weight_gradient) return;
    p = product(part, first);  // dw += gradient^T x
    p.a = logits_[part];
    p.largest_a = &largest;
    narrow_gradient(p);
    p.stride_a = p.rows = rows_of(op_.in(2 + part));
    p.transposed_a = true;
    p.listed = Product::Listed::kB;
    p.b = op_.read(0);
    p.type_b = storage_of(op_.in(0));
    p.largest_b = &largest_x_;
    p.out = op_.write(op_.writes() - attributes_.parts + part);
    p.columns = width_;
    p.depth = chunk_;
    p.accumulate = true;
    add_product(op_, p);
  }

  /// For matrix units, as the CPU does. A gradient that is scaled by 65536 may be more than fp16 holds.
  void narrow_gradient(Product& p) const {
    p.narrows_a = true;
    p.large_a = attributes_.has_loss_scale;
  }

  Product product(std::uint32_t part, std::int64_t first) {
    Product p;
    p.list = list_;
    p.first_listed = first;
    p.most_listed = chunk_;
    p.list_tokens = tokens_;
    p.rows = chunk_;
    p.b = op_.read(2 + part);
    p.type_b = storage_of(op_.in(2 + part));
    p.stride_b = width_;
    p.largest_b = &largest_w_[part];
    return p;
  }

  OpLowering& op_;
  const VocabularyAttributes& attributes_;
  const std::int64_t tokens_;
  const std::int64_t width_;
  const std::int64_t chunk_;
  const bool before_;
  const bool gives_loss_;
  const bool gives_statistics_;
  std::uint32_t list_ = 0, losses_ = 0, statistics_ = 0, normalisers_ = 0, dx_ = 0;
  std::vector<std::uint32_t> logits_;  // by part
  std::vector<Largest> largest_w_;     // by part
  Largest largest_x_;
};

}  // namespace

void lower_vocabulary(OpLowering& op) { Vocabulary(op).lower(); }

}  // namespace rondo::devices::vulkan
