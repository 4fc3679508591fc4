// An op under examination, for the rules of ops.
#pragma once

#include <string>

#include "rondo/base/status.h"
#include "rondo/devices/op.h"

namespace rondo::devices {

inline std::string text_of(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

/// One op under examination. The first complaint stands.
class Checker {
 public:
  Checker(const OpList& list, std::size_t place) : list_(list), op_(list.ops[place]), place_(place) {}

  absl::Status status() const { return status_; }
  const Op& op() const { return op_; }
  std::size_t reads() const { return op_.reads.size(); }
  std::size_t writes() const { return op_.writes.size(); }
  const TensorDesc& in(std::size_t i) const { return list_.tensors[op_.reads[i]]; }
  const TensorDesc& out(std::size_t i) const { return list_.tensors[op_.writes[i]]; }

  bool good() const { return status_.ok(); }
  void complain(const std::string& what) {
    if (good()) status_ = internal_error("op {} ({}): {}", place_, name_of(op_.kind), what);
  }
  /// False (with a complaint) when the op does not name that many tensors.
  bool counts(std::size_t reads_wanted, std::size_t writes_wanted) {
    if (reads() != reads_wanted || writes() != writes_wanted) {
      complain(fmt::format("expected {} reads and {} writes, found {} and {}", reads_wanted, writes_wanted, reads(),
                           writes()));
    }
    return good();
  }
  void rank(const TensorDesc& tensor, std::size_t wanted) {
    if (tensor.shape.size() != wanted) {
      complain(
          fmt::format("tensor '{}' has shape {}, expected {} dimensions", tensor.name, text_of(tensor.shape), wanted));
    }
  }
  void shape(const TensorDesc& tensor, const Shape& wanted) {
    if (tensor.shape != wanted) {
      complain(
          fmt::format("tensor '{}' has shape {}, expected {}", tensor.name, text_of(tensor.shape), text_of(wanted)));
    }
  }
  void dtype(const TensorDesc& tensor, DType wanted) {
    if (tensor.dtype != wanted) {
      complain(fmt::format("tensor '{}' is {}, expected {}", tensor.name, name_of(tensor.dtype), name_of(wanted)));
    }
  }
  void floating(const TensorDesc& tensor) {
    if (!is_floating(tensor.dtype)) {
      complain(fmt::format("tensor '{}' is {}, expected fp32, bf16 or fp16", tensor.name, name_of(tensor.dtype)));
    }
  }
  /// Of a matrix; more than two dimensions count as [first, product of the others].
  static std::int64_t rows(const TensorDesc& tensor) { return tensor.shape.empty() ? 0 : tensor.shape[0]; }
  static std::int64_t columns(const TensorDesc& tensor) {
    return rows(tensor) == 0 ? 0 : tensor.elements() / rows(tensor);
  }
  void matrix(const TensorDesc& tensor, std::int64_t rows_wanted, std::int64_t columns_wanted) {
    if (tensor.shape.size() < 2 || rows(tensor) != rows_wanted || columns(tensor) != columns_wanted) {
      complain(fmt::format("tensor '{}' has shape {}, expected [{}, {}]", tensor.name, text_of(tensor.shape),
                           rows_wanted, columns_wanted));
    }
  }
  /// Same shape and dtype.
  void alike(const TensorDesc& tensor, const TensorDesc& model) {
    shape(tensor, model.shape);
    dtype(tensor, model.dtype);
  }
  /// fp32 whatever the others are.
  void wide(const TensorDesc& tensor, const Shape& wanted) {
    shape(tensor, wanted);
    dtype(tensor, DType::kFloat32);
  }
  void state(const TensorDesc& tensor) {
    if (tensor.role != TensorRole::kState) complain(fmt::format("tensor '{}' is no state", tensor.name));
  }
  void tokens_of(const TensorDesc& tensor, DType wanted) {
    shape(tensor, {static_cast<std::int64_t>(list_.tokens)});
    dtype(tensor, wanted);
  }
  void bounds(const TensorDesc& tensor) {
    shape(tensor, {static_cast<std::int64_t>(list_.tokens) + 2});
    dtype(tensor, DType::kInt32);
  }
  template <typename Attributes>
  const Attributes* attributes() {
    const auto* found = std::get_if<Attributes>(&op_.attributes);
    if (found == nullptr) complain("its attributes are of another kind of op");
    return found;
  }

 private:
  const OpList& list_;
  const Op& op_;
  const std::size_t place_;
  absl::Status status_;
};

/// Of an optimizer.
void check_update(Checker& c);
/// Of linear attention.
void check_delta(Checker& c);
/// Of a mixture of experts.
void check_experts(Checker& c);

}  // namespace rondo::devices
