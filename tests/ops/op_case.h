// What one description of an op yields: its tensors, ops and contents, to be run by the reference and by a device.
//
// The same description gives the correctness case (device against reference, op by op), the gradient case (finite
// differences in fp64), the case of thread counts, and at the sizes of a real model the benchmark.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/devices/device.h"
#include "rondo/devices/op.h"

namespace rondo::devices::testing {

/// What a tensor holds before the run.
struct Contents {
  double spread = 0;  // of a normal distribution around `value`
  double value = 0;
  std::vector<std::int32_t> integers;  // kInt32 tensors
};

struct OpCase {
  OpList list;
  std::vector<Contents> contents;  // by TensorId
  /// Terms of the longest sum behind an element: what rounding errors grow with.
  std::int64_t reduction = 1;
  /// The scalar whose gradient the list computes: sum over the pairs of <result, projection>. A projection is an input
  /// of the list: the gradient of the result.
  std::vector<std::pair<TensorId, TensorId>> projections;
  /// An input and what the list computes as its gradient. A kRows pair names the row ids and is followed by the rows.
  std::vector<std::pair<TensorId, TensorId>> gradients;
};

/// Builds an OpCase. `storage`: of activations and weights; fp64 makes everything fp64.
class CaseBuilder {
 public:
  CaseBuilder(DType storage, std::uint32_t tokens);

  /// Normally distributed.
  TensorId input(const char* name, const Shape& shape, double spread = 1.0);
  /// fp32 whatever the others are.
  TensorId wide_input(const char* name, const Shape& shape);
  TensorId weight(const char* name, const Shape& shape, double spread = 1.0);
  TensorId wide_weight(const char* name, const Shape& shape);
  /// Makes tensor `id` one that is encoded; returns it.
  TensorId encoded(TensorId id, Encoding encoding);
  TensorId state(const char* name, const Shape& shape);
  TensorId wide_state(const char* name, const Shape& shape);
  TensorId integers(const char* name, BatchTensor which, const std::vector<std::int32_t>& values);
  TensorId keys();
  TensorId loss_scale(double value);
  /// Written by the ops; a sentinel before, so that an element that is not written shows.
  TensorId output(const char* name, const Shape& shape);
  TensorId output(const char* name, const Shape& shape, DType dtype, TensorRole role = TensorRole::kOutput);
  /// Written by one op and read by others.
  TensorId saved(const char* name, const Shape& shape);
  TensorId saved_wide(const char* name, const Shape& shape);
  /// Before they are written they are `values`, which an op by itself reads.
  TensorId saved_integers(const char* name, const Shape& shape, std::vector<std::int32_t> values);
  /// fp32 and added to: random before the run, or zero where finite differences look at it.
  TensorId gradient(const char* name, const Shape& shape);

  /// Sequences of these lengths, padded to the bucket.
  void sequences(const std::vector<std::int32_t>& lengths);
  TensorId bounds() const { return bounds_; }
  TensorId positions() const { return positions_; }

  void op(OpKind kind, std::vector<TensorId> reads, std::vector<TensorId> writes, OpAttributes attributes = {});
  OpCase& result() { return case_; }
  std::uint32_t tokens() const { return case_.list.tokens; }

 private:
  TensorId add(const char* name, const Shape& shape, DType dtype, TensorRole role, Contents contents);
  DType wide() const { return storage_ == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

  const DType storage_;
  OpCase case_;
  TensorId bounds_ = 0;
  TensorId positions_ = 0;
};

/// kOdd: small, sizes that no vector or tile divides. kModel: one layer of a 135-million-parameter model, 512 tokens.
enum class Scale : std::uint8_t { kOdd, kModel };

struct OpDescription {
  const char* name;
  OpCase (*make)(DType storage, Scale scale);
  bool has_gradient;
};

/// One of every op, with optional operands absent and present.
const std::vector<OpDescription>& op_descriptions();

/// The tensors of a case, with contents that follow from `seed`.
class CaseMemory {
 public:
  static absl::StatusOr<CaseMemory> make(const OpCase& op_case, std::uint64_t seed);
  const Bindings& bindings() const { return bindings_; }
  std::byte* data(TensorId id) const { return bindings_.tensors[id].host(); }
  /// Element i of a floating tensor.
  double get(TensorId id, std::int64_t i) const;
  void set(TensorId id, std::int64_t i, double value);
  void copy_from(const CaseMemory& other);

 private:
  std::vector<Buffer> buffers_;
  std::vector<DType> dtypes_;  // that get() and set() see: of encoded tensors none
  Bindings bindings_;
};

/// The list with op `place` alone: what it reads is given, what it writes is a result.
OpList single_op(const OpList& list, std::size_t place);

}  // namespace rondo::devices::testing
