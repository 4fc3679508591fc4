// What ops have in common that are a kernel or two each.
#pragma once

#include <variant>

#include "kernels/storage.h"
#include "prepared_op.h"

namespace rondo::devices::cpu {

/// Binds an op to the kernel that runs it and to its scratch.
class VectorOp : public PreparedOp {
 public:
  explicit VectorOp(const Preparation& preparation)
      : op_(preparation.op), list_(preparation.list), storage_(storage_of(preparation.read(0).dtype)) {}
  Bytes scratch_bytes(std::uint32_t) const override { return 0; }

 protected:
  const TensorDesc& read(std::size_t i) const { return list_.tensors[op_.reads[i]]; }
  const void* in(const RunContext& context, std::size_t i) const { return context.at(op_.reads[i]); }
  template <typename T>
  const T* in_as(const RunContext& context, std::size_t i) const {
    return context.as<T>(op_.reads[i]);
  }
  void* out(const RunContext& context, std::size_t i) const { return context.at(op_.writes[i]); }
  float* out_floats(const RunContext& context, std::size_t i) const { return context.as<float>(op_.writes[i]); }
  template <typename Attributes>
  const Attributes& attributes() const {
    return std::get<Attributes>(op_.attributes);
  }

  const Op& op_;
  const OpList& list_;
  const Storage storage_;
};

}  // namespace rondo::devices::cpu
