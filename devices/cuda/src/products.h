// Who makes matrix products: cuBLASLt where it is there, else kernels of our own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "driver.h"
#include "steps.h"

namespace rondo::devices::cuda {

/// A library of matrix products. Thread rule: plan() before the run, run() under the queue's lock.
class ProductEngine {
 public:
  virtual ~ProductEngine() = default;
  /// The plan for a shape, chosen by the shape and the card alone: the same call gives the same bits in every run.
  /// Equal shapes share a plan. Errors: NotFound when the library has none; then our own kernel does it.
  virtual absl::StatusOr<std::uint32_t> plan(const ProductShape& shape) = 0;
  struct Operands {
    DevicePointer a = 0;
    DevicePointer b = 0;
    DevicePointer bias = 0;
    DevicePointer addend = 0;
    DevicePointer row_scales = 0;
    DevicePointer column_scales = 0;
    DevicePointer c = 0;
    float alpha = 1.0F;
    bool sets = false;  // the addend counts as zero
  };
  virtual absl::Status run(std::uint32_t plan, const Operands& operands, DevicePointer workspace,
                           StreamHandle stream) = 0;
  /// Bytes of device memory that run() of the plan uses, at a multiple of 256.
  virtual Bytes workspace_bytes(std::uint32_t plan) const = 0;
  /// Enters the numerics class: library and version.
  virtual std::string name() const = 0;
};

/// cuBLASLt, found at run time for the current context. Errors: Unimplemented saying what is missing.
absl::StatusOr<std::unique_ptr<ProductEngine>> open_cublas_lt();

}  // namespace rondo::devices::cuda
