// One op of a program, ready to run: what compile() makes of each Op, and who makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "product.h"
#include "rondo/base/units.h"
#include "rondo/devices/device.h"
#include "rondo/devices/op.h"
#include "rondo/devices/product_pairs.h"
#include "rondo/devices/thread_pool.h"
#include "row_kernels.h"

namespace rondo::devices::cpu {

/// What ops see of a run. The bindings have been checked: every pointer is there and large enough.
struct RunContext {
  ThreadPool& pool;
  const OpList& list;
  const ArenaLayout& layout;
  const Bindings& bindings;
  std::byte* scratch;  // 64-byte aligned, the largest that any op of the program asked for

  std::byte* at(TensorId id) const {
    return list.tensors[id].role == TensorRole::kScratch ? bindings.scratch.host() + layout.offsets[id]
                                                         : bindings.tensors[id].host();
  }
  template <typename T>
  T* as(TensorId id) const {
    return reinterpret_cast<T*>(at(id));
  }
  ConstArray array(TensorId id) const { return {at(id), storage_of(list.tensors[id].dtype)}; }
  Array out(TensorId id) const { return {at(id), storage_of(list.tensors[id].dtype)}; }
};

class PreparedOp {
 public:
  PreparedOp() = default;
  virtual ~PreparedOp() = default;
  PreparedOp(const PreparedOp&) = delete;
  PreparedOp& operator=(const PreparedOp&) = delete;
  /// Valid once all ops of the program are prepared. `members`: of the pool.
  virtual Bytes scratch_bytes(std::uint32_t members) const = 0;
  /// Does not allocate. Errors: Internal, when data contradicts the list (a token id out of range).
  virtual absl::Status run(const RunContext& context) const = 0;
};

/// What preparing an op needs. `list` and the engines outlive the op; so does `op`, which is one of the list's.
struct Preparation {
  const OpList& list;
  const Op& op;
  Engines engines;

  const TensorDesc& read(std::size_t i) const { return list.tensors[op.reads[i]]; }
  const TensorDesc& write(std::size_t i) const { return list.tensors[op.writes[i]]; }
};

using PreparedOr = absl::StatusOr<std::unique_ptr<PreparedOp>>;

PreparedOr prepare_matmul(const Preparation& preparation);  // kMatMul, kMatMulInputGradient
/// Whether the two can be computed as one: the same arithmetic, not in eight bits, and more rows than few_rows_product
/// takes.
bool can_pair(const OpList& list, const ProductPair& pair, const Engines& engines);
/// Both products of a pair that can_pair, to be run where the second stands.
PreparedOr prepare_matmul_pair(const OpList& list, const ProductPair& pair, const Engines& engines);
PreparedOr prepare_matmul_weight_gradient(const Preparation& preparation);  // kMatMulWeightGradient
PreparedOr prepare_vocabulary(const Preparation& preparation);              // the loss and its gradients
PreparedOr prepare_row_op(const Preparation& preparation);  // kEmbedding, kEmbeddingBackward, kSelectLast
/// kRoute, kShareScale, kDispatch, kCombine, kGroupedBias and their gradients.
PreparedOr prepare_route_op(const Preparation& preparation);
PreparedOr prepare_sink_op(const Preparation& preparation);   // kAttentionSink and its gradient
PreparedOr prepare_heads_op(const Preparation& preparation);  // kJoinHeads and its gradient, kHeadScaleGradient
PreparedOr prepare_delta_op(const Preparation& preparation);  // kConvolution, kDecay, kDeltaRule and their gradients
PreparedOr prepare_grouped_product(const Preparation& preparation);  // is_grouped_product()
PreparedOr prepare_update_op(const Preparation& preparation);        // kAddRows, kSumOfSquares, kAdamW and kAdamW8
PreparedOr prepare_vector_op(const Preparation& preparation);        // everything else: one kernel each

/// Rows and columns of a tensor that counts as a matrix: [first, product of the others].
inline std::int64_t rows_of(const TensorDesc& tensor) { return tensor.shape[0]; }
inline std::int64_t columns_of(const TensorDesc& tensor) {
  return rows_of(tensor) == 0 ? 0 : tensor.elements() / rows_of(tensor);
}

}  // namespace rondo::devices::cpu
