// The device that moves bytes but has no ops: the template for a new backend.
//
// Copy this folder, rename it, and fill in from the top of null_device.cpp: memory first (allocate, copies, clear),
// then compile() op by op, then the queues of the hardware. The contract suite (tests/contract) says at every step what
// holds already; until an op is there compile() answers Unimplemented and names it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rondo/devices/device.h"

namespace rondo::devices::null {

struct NullOptions {
  std::string name = "null:0";
  Bytes memory_bytes = 64_MiB;
};

/// Errors: none; other backends say here why they cannot be had on this machine.
absl::StatusOr<std::unique_ptr<Device>> open_null(const NullOptions& options);

}  // namespace rondo::devices::null
