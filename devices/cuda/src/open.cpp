// Opening cards over the real driver and cuBLASLt.
#include <algorithm>
#include <cstdlib>

#include "card_device.h"
#include "rondo/base/status.h"

namespace rondo::devices::cuda {

bool has_kernels() { return kernel_image().data != nullptr; }

absl::StatusOr<DriverInfo> describe_driver() {
  RONDO_ASSIGN_OR_RETURN(const Driver* driver, find_driver());
  int version = 0;
  RONDO_RETURN_IF_ERROR(status_of(*driver, driver->driver_version(&version), "cuDriverGetVersion"));
  DriverInfo info;
  info.major = static_cast<std::uint32_t>(std::max(version, 0) / 1000);
  info.minor = static_cast<std::uint32_t>(std::max(version, 0) % 1000 / 10);
  RONDO_ASSIGN_OR_RETURN(info.cards, count_cards(*driver));
  return info;
}

absl::StatusOr<std::vector<CardInfo>> list_cards() {
  if (kernel_image().data == nullptr) {
    return unimplemented("this build has no CUDA kernels: configure it with RONDO_CUDA=ON (preset cuda)");
  }
  RONDO_ASSIGN_OR_RETURN(const Driver* driver, find_driver());
  return list_cards(*driver, kernel_image());
}

absl::StatusOr<std::unique_ptr<Device>> open_cuda(const CudaOptions& options, DeviceProfile* estimate) {
  RONDO_ASSIGN_OR_RETURN(const Driver* driver, find_driver());
  const EngineFactory engine = []() -> absl::StatusOr<std::unique_ptr<ProductEngine>> {
    // "own": products by our own kernels even where cuBLASLt is there, to tell the two apart.
    const char* wanted = std::getenv("RONDO_CUDA_PRODUCTS");
    if (wanted != nullptr && std::string_view(wanted) == "own") return nullptr;
    absl::StatusOr<std::unique_ptr<ProductEngine>> found = open_cublas_lt();
    if (!found.ok() && found.status().code() == absl::StatusCode::kUnimplemented) return nullptr;
    return found;
  };
  return open_card(*driver, kernel_image(), {engine, wanted_graphs()}, options, estimate);
}

}  // namespace rondo::devices::cuda
