// From ops to dispatches: which shader, with which constants, on which tensors, in how many workgroups.
//
// Nothing here touches the card: a Lowering is plain data that a program records.
#pragma once

#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "matrix_units.h"
#include "pipelines.h"
#include "rondo/devices/op.h"

namespace rondo::devices::vulkan {

/// What a kernel complains of, see `complain` in shaders/common.glsl.
enum class Fault : std::uint8_t { kNone, kId, kTarget, kPosition };

/// Work that a grid does not share out alike: along a dimension of it some workgroups have `most` times the mean.
struct Uneven {
  std::size_t dimension = 0;
  double most = 1;
};

struct Dispatch {
  Shader shader = Shader::kCount;
  Constants constants;
  Push push;
  std::array<std::uint32_t, 3> groups = {1, 1, 1};
  std::array<std::uint32_t, 3> begin = {0, 0, 0};  // where a part of a larger grid begins in that
  bool part = false;
  double work = 0;        // its share of its op's, see submissions.h
  double flops = 0;       // of its kernel's products; where no dispatch of an op says, they share out the op's alike
  Uneven uneven;          // of its workgroups
  std::size_t op = 0;     // in the list
  bool shares = false;    // its op works in the workspace or the panel
  bool beside = false;    // it needs nothing of its op's dispatch before it
  std::size_t level = 0;  // see order.h
};

/// The run's table of addresses, uint64 each: layer, address of the report, the panel, one a tensor, then pieces of the
/// workspace, then constants.
inline constexpr std::uint32_t kPanelSlot = 2;
inline constexpr std::uint32_t kFirstTensorSlot = 3;

/// Marks of slots that are numbered by themselves.
inline constexpr std::uint32_t kWorkspaceMark = 0x40000000;
inline constexpr std::uint32_t kConstantMark = 0x80000000;

/// What of a card kernels are chosen by.
struct Means {
  bool panel = false;        // large products go through the panel, see panel.h
  bool fetches_all = false;  // kernels fetch texels of any tensor
  bool doubles = false;      // it computes in fp64
  bool careless = false;     // VulkanOptions::careless
  MatrixUnits units = {};    // what products of 16 bits use
};

/// A program's dispatches in order, each depending on any of those before it.
class Lowering {
 public:
  Lowering(const OpList& list, const Means& means) : list_(list), means_(means), fetched_(list.tensors.size(), false) {}

  /// Errors: Unimplemented naming the op and what of it the cards cannot do.
  absl::Status lower_all();

  const std::vector<Dispatch>& dispatches() const { return dispatches_; }
  /// Offsets of the pieces of the workspace, which ops use in turn.
  const std::vector<Bytes>& workspace_pieces() const { return pieces_; }
  Bytes workspace_bytes() const { return workspace_bytes_; }
  /// Of the panel, from its beginning.
  Bytes panel_bytes() const { return panel_bytes_; }
  /// By tensor: whether kernels fetch it by texels, so that it has to begin with one.
  const std::vector<bool>& fetched() const { return fetched_; }
  /// Constants of all ops one behind the other, and where each begins.
  const std::vector<float>& constants() const { return constants_; }
  const std::vector<std::size_t>& constant_places() const { return constant_places_; }

 private:
  friend class OpLowering;
  absl::Status check(const Op& op) const;
  /// Of the dispatches from `first` on, which are this op's.
  absl::Status check_groups(const Op& op, std::size_t first) const;
  void share_out(const OpCost& cost, std::size_t first);

  const OpList& list_;
  const Means means_;
  std::vector<bool> fetched_;
  std::vector<Dispatch> dispatches_;
  std::vector<Bytes> pieces_;
  Bytes workspace_bytes_ = 0;
  Bytes panel_bytes_ = 0;
  std::vector<float> constants_;
  std::vector<std::size_t> constant_places_;
};

/// Of one op: reads and writes by their place, and what dispatches need.
class OpLowering {
 public:
  OpLowering(Lowering& all, const Op& op) : all_(all), op_(op) {}

  bool panel() const { return all_.means_.panel; }
  bool fetches_all() const { return all_.means_.fetches_all; }
  bool doubles() const { return all_.means_.doubles; }
  bool careless() const { return all_.means_.careless; }
  const MatrixUnits& units() const { return all_.means_.units; }
  /// Kernels fetch what lies in this slot by texels.
  void fetch(std::uint32_t slot) {
    if (slot < kWorkspaceMark) all_.fetched_[slot - kFirstTensorSlot] = true;
  }
  const Op& op() const { return op_; }
  /// As its cost has them.
  double flops() const { return cost_of(all_.list_, op_, all_.list_.tokens).flops; }
  const TensorDesc& in(std::size_t i) const { return all_.list_.tensors[op_.reads[i]]; }
  const TensorDesc& out(std::size_t i) const { return all_.list_.tensors[op_.writes[i]]; }
  NormOperands norm_operands() const { return {all_.list_, op_}; }
  std::size_t reads() const { return op_.reads.size(); }
  std::size_t writes() const { return op_.writes.size(); }
  template <typename Attributes>
  const Attributes& attributes() const {
    return std::get<Attributes>(op_.attributes);
  }

  /// Slots, i.e. places in the run's table of addresses. Pieces of the workspace and constants are numbered from the
  /// marks below; the program moves them behind the tensors.
  static std::uint32_t slot(TensorId id) { return kFirstTensorSlot + id; }
  std::uint32_t read(std::size_t i) const { return slot(op_.reads[i]); }
  std::uint32_t write(std::size_t i) const { return slot(op_.writes[i]); }
  std::uint32_t workspace(std::int64_t elements);  // of 4 bytes
  std::uint32_t constants(std::span<const float> values);
  /// Says that the op's dispatches use the first `texels` of the panel.
  void use_panel(std::int64_t texels);
  /// Whether it has asked for either.
  bool shares() const { return used_ > 0 || panel_; }

  /// A dispatch with `count` workgroups.
  Dispatch& add(Shader shader, Constants constants, std::initializer_list<std::uint32_t> slots,
                std::initializer_list<std::int64_t> sizes, std::int64_t count);

 private:
  Lowering& all_;
  const Op& op_;
  Bytes used_ = 0;      // of the workspace by this op
  bool panel_ = false;  // of the panel
};

/// Specialisation constants: of a bool, and for a tensor's storage.
constexpr std::uint32_t flag_of(bool on) { return on ? 1U : 0U; }
std::uint32_t storage_of(const TensorDesc& tensor);
/// A tensor as a matrix: [first, product of the others].
inline std::int64_t rows_of(const TensorDesc& tensor) { return tensor.shape[0]; }
inline std::int64_t columns_of(const TensorDesc& tensor) {
  return tensor.shape[0] == 0 ? 0 : tensor.elements() / tensor.shape[0];
}
constexpr std::int64_t parts_of(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }
/// Invocations of a subgroup of a processor that poses as a card.
inline constexpr std::int64_t kEight = 8;
/// Steps of an invocation that goes along elements: processors that pose as cards look tensors up a lane at a time.
inline std::uint32_t each_of(const OpLowering& op) { return op.panel() ? 4 : 1; }
/// Of one that goes along steps of one row, of which there are `steps`: where what it finds once is worth several.
inline std::uint32_t several_of_row(std::int64_t steps) {
  constexpr std::int64_t kMost = 16;
  return static_cast<std::uint32_t>(std::gcd(steps, kMost));
}
inline std::uint32_t each_of_row(const OpLowering& op, std::int64_t steps) {
  return op.panel() ? several_of_row(steps) : 1;
}
/// Elements that kernels of spread.glsl take at once of rows of `width`.
constexpr std::uint32_t spread_step(std::int64_t width) { return width % 4 == 0 ? 4 : 1; }
/// One of them that goes along elements in rows of `width`. `more`: its constants from 3 on; `last`: of its sizes.
Dispatch& add_spread(OpLowering& op, Shader shader, const Constants& more, std::initializer_list<std::uint32_t> slots,
                     const TensorDesc& along, std::int64_t width, std::int64_t last);

void lower_elementwise(OpLowering& op);
void lower_zero(OpLowering& op, std::uint32_t slot, const TensorDesc& tensor);
void lower_copy(OpLowering& op, std::uint32_t from, std::uint32_t to, const TensorDesc& tensor);
void lower_norm(OpLowering& op);
void lower_norm_backward(OpLowering& op);
void lower_bias_gradient(OpLowering& op);
/// Tokens whose sum one invocation takes; divides kTokenChunk.
inline constexpr std::int64_t kBlockTokens = 64;
/// gradient [width] += what such blocks of tokens came to, `sums` fp32 [blocks, width].
void lower_block_sums(OpLowering& op, std::uint32_t sums, std::uint32_t gradient, std::int64_t blocks,
                      std::int64_t width);
/// gradient += sums over tokens of what is at `from` [tokens, width].
void lower_token_sums(OpLowering& op, std::uint32_t storage, std::uint32_t from, std::uint32_t gradient,
                      std::int64_t tokens, std::int64_t width);
void lower_rope(OpLowering& op);
void lower_embedding(OpLowering& op);
void lower_embedding_backward(OpLowering& op);
void lower_select_last(OpLowering& op);
void lower_magnitude_scale(OpLowering& op);
void lower_column_scale(OpLowering& op);
void lower_column_scale_backward(OpLowering& op);
void lower_head_scale_gradient(OpLowering& op);
void lower_expand(OpLowering& op);
void lower_encode(OpLowering& op);
void lower_matmul(OpLowering& op);
/// Both products of a pair (product_pairs.h). The narrow one comes first and the wide one is added to it before that is
/// rounded: a result that was rounded before would swallow what an adapter adds, as long as that is small. REQUIRES:
/// the result lies where neither reads, as it does in the arena and at a layer's borders.
void lower_product_pair(OpLowering& narrow, OpLowering& wide, bool narrow_first);
void lower_weight_gradient(OpLowering& op);
void lower_vocabulary(OpLowering& op);
void lower_route(OpLowering& op);
void lower_route_backward(OpLowering& op);
void lower_share_scale(OpLowering& op);
void lower_dispatch(OpLowering& op);
void lower_combine(OpLowering& op);
void lower_combine_backward(OpLowering& op);
/// Forward, and the gradient of the input.
void lower_grouped_matmul(OpLowering& op);
void lower_grouped_weight_gradient(OpLowering& op);
void lower_grouped_bias(OpLowering& op);
void lower_grouped_bias_gradient(OpLowering& op);
void lower_attention(OpLowering& op);
void lower_attention_backward(OpLowering& op);
void lower_cached_attention(OpLowering& op);
void lower_attention_sink(OpLowering& op);
void lower_attention_sink_gradient(OpLowering& op);
void lower_join_heads(OpLowering& op);
void lower_join_heads_backward(OpLowering& op);
void lower_convolution(OpLowering& op);
void lower_convolution_backward(OpLowering& op);
void lower_decay(OpLowering& op);
void lower_decay_backward(OpLowering& op);
void lower_delta_rule(OpLowering& op);
void lower_delta_rule_backward(OpLowering& op);
/// Of an optimizer.
void lower_update(OpLowering& op);

}  // namespace rondo::devices::vulkan
