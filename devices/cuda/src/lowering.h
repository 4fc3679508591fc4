// What the functions that lower ops share: an op with its tensors, and the steps so far.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "kernels/params.h"
#include "kernels/vectors.h"
#include "lower.h"
#include "rondo/base/status.h"
#include "rondo/devices/product_pairs.h"

namespace rondo::devices::cuda {

/// A kernel's parameters with their patches. Pointers of `params` are given by at(), never set.
template <typename Params>
class Arguments {
  static_assert(std::is_trivially_copyable_v<Params> && std::is_standard_layout_v<Params>);
  static_assert(sizeof(Params) <= kMostParams);

 public:
  Params params{};

  template <typename Pointer>
  Arguments& at(Pointer Params::*member, const Place& place) {
    const auto* base = reinterpret_cast<const std::byte*>(&params);
    const auto* field = reinterpret_cast<const std::byte*>(&(params.*member));
    if (place.kind != Place::Kind::kNull) patches_.push_back({static_cast<std::uint32_t>(field - base), place});
    return *this;
  }
  /// Number `i` of several.
  template <typename Pointer, std::size_t kCount>
  Arguments& at(Pointer (Params::*member)[kCount], std::size_t i, const Place& place) {
    const auto* base = reinterpret_cast<const std::byte*>(&params);
    const auto* field = reinterpret_cast<const std::byte*>(&(params.*member)[i]);
    patches_.push_back({static_cast<std::uint32_t>(field - base), place});
    return *this;
  }
  const std::vector<Patch>& patches() const { return patches_; }

 private:
  std::vector<Patch> patches_;
};

struct Grid {
  std::int64_t x = 1;
  std::int64_t y = 1;
  int threads = 256;
  int shared = 0;
};

/// One op being lowered, or several whose steps come one after the other. Places of the workspace count from their own
/// part.
class Lowering {
 public:
  Lowering(const OpList& list, const Op& op, const LowerOptions& options, Steps& steps)
      : list_(list), op_(&op), options_(options), steps_(steps), begin_(steps.steps.size()) {}

  /// What follows is of another op of the list.
  void turn_to(const Op& op) { op_ = &op; }
  const Op& op() const { return *op_; }
  const LowerOptions& options() const { return options_; }
  const TensorDesc& in(std::size_t i) const { return list_.tensors[op_->reads[i]]; }
  const TensorDesc& out(std::size_t i) const { return list_.tensors[op_->writes[i]]; }
  Place read(std::size_t i) const { return {Place::Kind::kTensor, op_->reads[i], 0}; }
  Place write(std::size_t i) const { return {Place::Kind::kTensor, op_->writes[i], 0}; }
  std::int64_t tokens() const { return list_.tokens; }
  NormOperands norm_operands() const { return {list_, *op_}; }
  template <typename Attributes>
  const Attributes& attributes() const {
    return std::get<Attributes>(op_->attributes);
  }
  /// REQUIRES: a floating dtype.
  static Storage storage_of(const TensorDesc& tensor) {
    return tensor.dtype == DType::kFloat32    ? Storage::kFloat32
           : tensor.dtype == DType::kBfloat16 ? Storage::kBfloat16
                                              : Storage::kFloat16;
  }
  /// Columns of a tensor taken as a matrix.
  static std::int64_t columns_of(const TensorDesc& tensor) {
    return tensor.shape[0] == 0 ? 0 : tensor.elements() / tensor.shape[0];
  }

  Place workspace(Bytes bytes) {
    const Place place{Place::Kind::kWorkspace, 0, taken_};
    taken_ += round_up(bytes, 256);
    return place;
  }
  Place fault() {
    may_fault_ = true;
    return {Place::Kind::kFault, 0, 0};
  }

  template <typename Params>
  void launch(KernelId kernel, const Grid& grid, const Arguments<Params>& arguments) {
    if (grid.x == 0 || grid.y == 0) return;
    LaunchStep step;
    step.kernel = kernel;
    step.grid_x = in_32_bits(grid.x);
    step.grid_y = in_32_bits(grid.y);
    step.threads = static_cast<std::uint32_t>(grid.threads);
    step.shared = static_cast<std::uint32_t>(grid.shared);
    step.params.resize(sizeof(Params));
    std::memcpy(step.params.data(), &arguments.params, sizeof(Params));
    step.patches = arguments.patches();
    steps_.steps.emplace_back(std::move(step));
  }
  void clear(const Place& to, Bytes size) { steps_.steps.emplace_back(ClearStep{to, size}); }

  struct Product {
    ProductShape shape;
    float alpha = 1.0F;
    Place a;
    Place b;
    Place bias;
    Storage bias_storage = Storage::kFloat32;
    Place addend;
    Storage addend_storage = Storage::kFloat32;
    Place row_scales;  // of codes, see ProductShape::has_scales: for by_library() alone
    Place column_scales;
    Place c;
  };
  absl::Status product(Product product);
  /// False where there is no library, or it has no such product.
  absl::StatusOr<bool> by_library(Product product);
  /// Unimplemented: a launch of the op's has more blocks than cards take.
  absl::Status check_grids() const;
  /// Op number `op` of the list has all its steps, and so has number `first`, which is left to it.
  void end(std::size_t op, std::optional<std::size_t> first);

  /// Unimplemented: the two tensors are of different dtypes.
  absl::Status same_dtype(const TensorDesc& a, const TensorDesc& b) const;

 private:
  /// What is more than that is too much in any case, see check_grids().
  static std::uint32_t in_32_bits(std::int64_t blocks) {
    return static_cast<std::uint32_t>(std::min<std::int64_t>(blocks, std::numeric_limits<std::uint32_t>::max()));
  }
  /// Gives the library's products the workspace that they need.
  void place_product_workspace();

  const OpList& list_;
  const Op* op_;
  const LowerOptions& options_;
  Steps& steps_;
  const std::size_t begin_;  // the op's first step
  Bytes taken_ = 0;
  bool may_fault_ = false;
};

inline std::int64_t divide_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

/// A block for a row of `width` elements: no more threads than it has work for.
inline int threads_for(std::int64_t width) {
  return static_cast<int>(std::clamp<std::int64_t>(divide_up(width, kWarp) * kWarp, kWarp, kMostThreads));
}
/// The same where they are read by the eight, see kernels/vectors.h.
inline int threads_for_vectors(std::int64_t width) {
  return threads_for(width % kVector == 0 ? width / kVector : width);
}

/// totals [columns] += partial [chunks, columns], chunk by chunk in rising order.
void add_chunks(Lowering& op, const Place& partial, std::int64_t chunks, std::int64_t columns, const Place& totals);
/// y = a + b, each of which y may be.
void add_elements(Lowering& op, Storage storage, std::int64_t elements, const Place& a, const Place& b, const Place& y);
absl::Status lower_elementwise(Lowering& op);  // add, gated activation and its gradient
absl::Status lower_dropout(Lowering& op);
absl::Status lower_noise(Lowering& op);
absl::Status lower_magnitude(Lowering& op);
absl::Status lower_expand(Lowering& op);
absl::Status lower_encode(Lowering& op);
absl::Status lower_norm(Lowering& op);  // and its gradient
absl::Status lower_rope(Lowering& op);
absl::Status lower_rows(Lowering& op);        // embedding and its gradient, the last row, the bias's gradient
absl::Status lower_product(Lowering& op);     // the three products of a linear layer
absl::Status lower_vocabulary(Lowering& op);  // the loss and its gradients
absl::Status lower_update(Lowering& op);      // rows added to a table, sums of squares, AdamW
absl::Status lower_attention(Lowering& op);   // forward, backward, cached, sinks; gradients of these and of head scales
absl::Status lower_delta(Lowering& op);       // linear attention: the convolution, the gates, the delta rule
absl::Status lower_experts(
    Lowering& op);  // a mixture of experts: where tokens go, their rows, grouped products, biases

/// Whether a pair's products are lowered together.
bool can_pair(const OpList& list, const ProductPair& pair);
/// Both, in the second one's place: the narrow one comes first and the wide one is added to it before that is rounded,
/// so that what the narrow one adds is not lost however small it is. REQUIRES: the result lies where neither reads, as
/// it does in the arena and at a layer's borders.
absl::Status lower_product_pair(Lowering& op, const Op& narrow, const Op& wide);

}  // namespace rondo::devices::cuda
