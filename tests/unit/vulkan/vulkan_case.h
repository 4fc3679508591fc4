// Op cases on a Vulkan card: tensors go up, the program runs, everything comes back.
#pragma once

#include <memory>
#include <string>

#include "op_case.h"
#include "rondo/devices/vulkan/vulkan_device.h"
#include "vulkan_card.h"

namespace rondo::devices::testing {

/// `validated`: any complaint of the validation layer fails the test.
absl::StatusOr<std::unique_ptr<Device>> open_card(const vulkan::CardInfo& card, bool validated,
                                                  vulkan::VulkanOptions options = {});

/// Runs `list` on tensors that start as `memory` has them, and brings them all back into it.
absl::Status run_on_card(Device& device, const OpList& list, const CaseMemory& memory);

}  // namespace rondo::devices::testing
