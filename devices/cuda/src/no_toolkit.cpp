// What stands in for the parts that need NVIDIA's toolkit, in builds without it.
#include "context.h"
#include "products.h"
#include "rondo/base/status.h"

namespace rondo::devices::cuda {

KernelImage kernel_image() { return {}; }

absl::StatusOr<std::unique_ptr<ProductEngine>> open_cublas_lt() {
  return unimplemented("this build has no cuBLASLt: configure it with RONDO_CUDA=ON (preset cuda)");
}

}  // namespace rondo::devices::cuda
