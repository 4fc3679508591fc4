// A Vulkan card that the cases of a process share: what makes most of a small run's time is the driver, which makes
// its pipelines anew for every device that is opened.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "rondo/devices/device.h"

namespace rondo::golden {

/// vulkan:`index`, opened when it is first asked for and closed at the end of the process, while its driver is there;
/// one at a time is in use. What earlier cases left in its workspace and panels is still there. Errors: those of
/// open_vulkan().
absl::StatusOr<std::unique_ptr<devices::Device>> shared_vulkan_card(std::uint32_t index);

}  // namespace rondo::golden
