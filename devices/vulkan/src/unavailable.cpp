// Takes the backend's place in a build that has no Vulkan headers or no shader compiler.
#include "rondo/base/status.h"
#include "rondo/devices/vulkan/vulkan_device.h"

namespace rondo::devices::vulkan {
namespace {

absl::Status no_vulkan() {
  return unimplemented(
      "this build has no vulkan backend; install libvulkan-dev and glslc (scripts/setup.sh does), then configure and "
      "build again");
}

}  // namespace

absl::StatusOr<std::vector<CardInfo>> list_cards() { return no_vulkan(); }
absl::StatusOr<std::unique_ptr<Device>> open_vulkan(const VulkanOptions& /*options*/) { return no_vulkan(); }

}  // namespace rondo::devices::vulkan
