// NVIDIA cards behind the device contract.
//
// The driver (libcuda.so.1) and cuBLASLt are found at run time: one program starts with and without them, and opening a
// card says what is missing. Without cuBLASLt products are made by kernels of our own, slower; the numerics class says
// which. docs/cuda.md tells how the parts work and what has not run on hardware.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/devices/device.h"
#include "rondo/devices/profile.h"

namespace rondo::devices::cuda {

struct CudaOptions {
  std::string name = "cuda:0";
  std::uint32_t ordinal = 0;  // the driver's, CUDA_VISIBLE_DEVICES applied
  Bytes memory_limit = 0;     // 0: what is free on the card, but for a reserve for workspace
  std::uint32_t sharers = 1;  // devices opened on the card beside each other: each has its share of what is free
  bool single_queue = false;  // computing and copies take turns in one stream
};

/// Whether this build has kernels for cards (RONDO_CUDA).
bool has_kernels();

/// What the driver says of itself, whether or not this build has kernels for it.
struct DriverInfo {
  std::uint32_t major = 0;  // of the CUDA interface that it knows
  std::uint32_t minor = 0;
  std::uint32_t cards = 0;
};
/// Errors: Unimplemented when there is no driver, or one that is too old; Unavailable when it does not start.
absl::StatusOr<DriverInfo> describe_driver();

/// What the driver says of a card, before it is opened.
struct CardInfo {
  CardUuid uuid{};
  std::string unsuitable;  // why it cannot be opened, "" when it can
};
/// Cards that the driver shows, by their ordinals. Errors: Unimplemented saying what is missing (driver, kernels in
/// this build).
absl::StatusOr<std::vector<CardInfo>> list_cards();

/// `estimate`: filled in with speeds guessed from the card's attributes, unless null.
/// Errors: Unimplemented: no driver, too old, a card that the kernels are not built for; InvalidArgument: no such card;
/// ResourceExhausted: its memory is taken.
absl::StatusOr<std::unique_ptr<Device>> open_cuda(const CudaOptions& options, DeviceProfile* estimate = nullptr);

}  // namespace rondo::devices::cuda
