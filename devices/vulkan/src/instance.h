// A Vulkan instance, the cards it shows, and Khronos's validation layer.
//
// Thread rule: immutable once made; complaints come from whatever thread called the driver.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loader.h"
#include "matrix_units.h"
#include "rondo/devices/vulkan/vulkan_device.h"

namespace rondo::devices::vulkan {

using Complaint = std::function<void(const std::string&)>;

/// A card with what decides whether and how it is used.
struct Card {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  CardInfo info;
  std::string numerics_name;      // device and driver with their versions
  std::string pipeline_identity;  // of what its driver compiles pipelines for
  VkPhysicalDeviceLimits limits{};
  VkDeviceSize most_bytes_at_once = 0;  // of one allocation, and of a buffer
  VkPhysicalDeviceMemoryProperties memory{};
  std::vector<VkQueueFamilyProperties> queue_families;
  bool has_memory_budget = false;
  /// What imported host memory begins and ends with a multiple of; 0 on cards that cannot copy from it.
  Bytes import_grain = 0;
  /// A processor whose subgroups hand values round among eight: products go through the panel, see panel.h.
  bool fetches_panels = false;
  MatrixUnits matrix_units;
  bool has_doubles = false;       // fp64 in kernels
  bool careless = false;          // VulkanOptions::careless
  bool tells_statistics = false;  // of pipelines, and is asked to
};

class Instance {
 public:
  /// Errors: Unavailable when there is no loader or driver, or no validation layer though `complaint` asks for it.
  static absl::StatusOr<std::shared_ptr<Instance>> make(Complaint complaint);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const InstanceFunctions& functions() const { return functions_; }
  absl::StatusOr<std::vector<Card>> cards() const;
  /// Bytes of the card's heap `heap` that this process may still allocate, as far as the driver says.
  VkDeviceSize available_bytes(const Card& card, std::uint32_t heap) const;

 private:
  explicit Instance(Complaint complaint) : complaint_(std::move(complaint)) {}
  absl::Status create(const GlobalFunctions& global);
  Card describe(VkPhysicalDevice handle, std::uint32_t index) const;
  VkDeviceSize largest_buffer(VkPhysicalDevice handle) const;
  Bytes import_grain(VkPhysicalDevice handle) const;

  const Complaint complaint_;
  VkInstance instance_ = VK_NULL_HANDLE;
  InstanceFunctions functions_;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
};

}  // namespace rondo::devices::vulkan
