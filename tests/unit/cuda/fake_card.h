// A CUDA device over the fake driver.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "card_device.h"
#include "rondo/devices/cuda/cuda_device.h"

namespace rondo::devices::cuda::testing {

/// Products by our own kernels unless `setup` has others. The script is whatever reset_fake() was given last.
absl::StatusOr<std::unique_ptr<Device>> open_fake(const CudaOptions& options, const CardSetup& setup = {});

}  // namespace rondo::devices::cuda::testing
