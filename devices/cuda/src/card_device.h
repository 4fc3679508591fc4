// The device itself, opened over any driver: the real one, or one that a test plays.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "context.h"
#include "graphs.h"
#include "products.h"
#include "rondo/devices/cuda/cuda_device.h"

namespace rondo::devices::cuda {

/// Cards that the driver shows.
absl::StatusOr<std::uint32_t> count_cards(const Driver& driver);
/// The same, each with what it needs to be opened with `image`.
absl::StatusOr<std::vector<CardInfo>> list_cards(const Driver& driver, const KernelImage& image);

/// Null: products by our own kernels alone.
using EngineFactory = std::function<absl::StatusOr<std::unique_ptr<ProductEngine>>()>;

/// How a card is worked with.
struct CardSetup {
  EngineFactory make_engine;
  std::optional<GraphLimits> graphs = GraphLimits{};  // none: every run is sent step by step
};
/// As RONDO_CUDA_GRAPHS says, "off" for none, and RONDO_CUDA_LANES, 1 for ops one after the other.
std::optional<GraphLimits> wanted_graphs();

absl::StatusOr<std::unique_ptr<Device>> open_card(const Driver& driver, const KernelImage& image,
                                                  const CardSetup& setup, const CudaOptions& options,
                                                  DeviceProfile* estimate);

/// Speeds guessed from what the driver tells.
DeviceProfile estimate_profile(const CardFacts& facts, Bytes memory_bytes);

}  // namespace rondo::devices::cuda
