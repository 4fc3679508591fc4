// The Vulkan card that tests and benchmarks use.
#pragma once

#include <optional>

#include "rondo/devices/vulkan/vulkan_device.h"

namespace rondo::test {

/// The first one that can be used; none on machines, and in builds, without.
inline std::optional<devices::vulkan::CardInfo> usable_vulkan_card() {
  const auto cards = devices::vulkan::list_cards();
  if (!cards.ok()) return std::nullopt;
  for (const devices::vulkan::CardInfo& card : *cards) {
    if (card.unsuitable.empty()) return card;
  }
  return std::nullopt;
}

/// Why a test that needs one is left out.
inline constexpr const char* kNoVulkanCard = "no Vulkan card on this machine, or no Vulkan in this build";

}  // namespace rondo::test
