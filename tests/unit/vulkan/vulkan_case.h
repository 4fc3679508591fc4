// Op cases on a Vulkan card: tensors go up, the program runs, everything comes back.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "op_case.h"
#include "rondo/devices/vulkan/vulkan_device.h"

namespace rondo::devices::testing {

/// The first card that can be used; none on machines, and in builds, without: then the tests are skipped.
std::optional<vulkan::CardInfo> usable_card();

/// Opens it. `validated`: any complaint of the validation layer fails the test.
absl::StatusOr<std::unique_ptr<Device>> open_card(const vulkan::CardInfo& card, bool validated,
                                                  vulkan::VulkanOptions options = {});

/// Runs `list` on tensors that start as `memory` has them, and brings them all back into it.
absl::Status run_on_card(Device& device, const OpList& list, const CaseMemory& memory);

}  // namespace rondo::devices::testing
