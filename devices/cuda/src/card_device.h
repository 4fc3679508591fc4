// The device itself, opened over any driver: the real one, or one that a test plays.
#pragma once

#include <functional>
#include <memory>

#include "context.h"
#include "products.h"
#include "rondo/devices/cuda/cuda_device.h"

namespace rondo::devices::cuda {

/// Null: products by our own kernels alone.
using EngineFactory = std::function<absl::StatusOr<std::unique_ptr<ProductEngine>>()>;

absl::StatusOr<std::unique_ptr<Device>> open_card(const Driver& driver, const KernelImage& image,
                                                  const EngineFactory& make_engine, const CudaOptions& options,
                                                  DeviceProfile* estimate);

/// Speeds guessed from what the driver tells.
DeviceProfile estimate_profile(const CardFacts& facts, Bytes memory_bytes);

}  // namespace rondo::devices::cuda
