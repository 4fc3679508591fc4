// Vulkan's functions, looked up at run time: the program is not linked with the loader.
//
// Three tables by what they are looked up with: nothing, an instance, a device.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vulkan_headers.h"

namespace rondo::devices::vulkan {

#define RONDO_VULKAN_GLOBAL_FUNCTIONS(X) \
  X(CreateInstance)                      \
  X(EnumerateInstanceVersion)            \
  X(EnumerateInstanceLayerProperties)    \
  X(EnumerateInstanceExtensionProperties)

#define RONDO_VULKAN_INSTANCE_FUNCTIONS(X)     \
  X(DestroyInstance)                           \
  X(EnumeratePhysicalDevices)                  \
  X(EnumerateDeviceExtensionProperties)        \
  X(GetPhysicalDeviceProperties2)              \
  X(GetPhysicalDeviceFeatures2)                \
  X(GetPhysicalDeviceMemoryProperties2)        \
  X(GetPhysicalDeviceExternalBufferProperties) \
  X(GetPhysicalDeviceQueueFamilyProperties)    \
  X(CreateDevice)                              \
  X(GetDeviceProcAddr)

#define RONDO_VULKAN_DEVICE_FUNCTIONS(X) \
  X(DestroyDevice)                       \
  X(GetDeviceQueue)                      \
  X(DeviceWaitIdle)                      \
  X(CreateBuffer)                        \
  X(DestroyBuffer)                       \
  X(GetBufferMemoryRequirements)         \
  X(AllocateMemory)                      \
  X(FreeMemory)                          \
  X(MapMemory)                           \
  X(BindBufferMemory)                    \
  X(GetBufferDeviceAddress)              \
  X(CreateSemaphore)                     \
  X(DestroySemaphore)                    \
  X(WaitSemaphores)                      \
  X(CreateCommandPool)                   \
  X(DestroyCommandPool)                  \
  X(ResetCommandPool)                    \
  X(AllocateCommandBuffers)              \
  X(BeginCommandBuffer)                  \
  X(EndCommandBuffer)                    \
  X(QueueSubmit)                         \
  X(CmdPipelineBarrier)                  \
  X(CmdCopyBuffer)                       \
  X(CmdFillBuffer)                       \
  X(CmdBindPipeline)                     \
  X(CmdPushConstants)                    \
  X(CmdDispatch)                         \
  X(CmdDispatchBase)                     \
  X(CmdBindDescriptorSets)               \
  X(CreateBufferView)                    \
  X(DestroyBufferView)                   \
  X(CreateDescriptorSetLayout)           \
  X(DestroyDescriptorSetLayout)          \
  X(CreateDescriptorPool)                \
  X(DestroyDescriptorPool)               \
  X(AllocateDescriptorSets)              \
  X(UpdateDescriptorSets)                \
  X(CreateShaderModule)                  \
  X(DestroyShaderModule)                 \
  X(CreatePipelineLayout)                \
  X(DestroyPipelineLayout)               \
  X(CreatePipelineCache)                 \
  X(DestroyPipelineCache)                \
  X(GetPipelineCacheData)                \
  X(CreateComputePipelines)              \
  X(DestroyPipeline)

#define RONDO_VULKAN_DECLARE(function) PFN_vk##function function = nullptr;

struct GlobalFunctions {
  PFN_vkGetInstanceProcAddr GetInstanceProcAddr = nullptr;
  RONDO_VULKAN_GLOBAL_FUNCTIONS(RONDO_VULKAN_DECLARE)
};
struct InstanceFunctions {
  RONDO_VULKAN_INSTANCE_FUNCTIONS(RONDO_VULKAN_DECLARE)
  // Of VK_EXT_debug_utils; null unless validating.
  PFN_vkCreateDebugUtilsMessengerEXT CreateDebugUtilsMessengerEXT = nullptr;
  PFN_vkDestroyDebugUtilsMessengerEXT DestroyDebugUtilsMessengerEXT = nullptr;
  // Null where no card has these extensions.
  PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR GetPhysicalDeviceCooperativeMatrixPropertiesKHR = nullptr;
  PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesNV GetPhysicalDeviceCooperativeMatrixPropertiesNV = nullptr;
};
struct DeviceFunctions {
  RONDO_VULKAN_DEVICE_FUNCTIONS(RONDO_VULKAN_DECLARE)
  // Of VK_EXT_external_memory_host; null on cards without.
  PFN_vkGetMemoryHostPointerPropertiesEXT GetMemoryHostPointerPropertiesEXT = nullptr;
  // Of VK_KHR_pipeline_executable_properties; null where it is not enabled.
  PFN_vkGetPipelineExecutablePropertiesKHR GetPipelineExecutablePropertiesKHR = nullptr;
  PFN_vkGetPipelineExecutableStatisticsKHR GetPipelineExecutableStatisticsKHR = nullptr;
};

/// Opens libvulkan once; it stays open. Errors: Unavailable saying what to install.
absl::StatusOr<const GlobalFunctions*> load_vulkan();
/// Errors: Unavailable naming the function that is missing.
absl::Status load_functions(const GlobalFunctions& global, VkInstance instance, InstanceFunctions& functions);
absl::Status load_functions(const InstanceFunctions& instance, VkDevice device, DeviceFunctions& functions);

/// Vulkan's way to list structures of `type`: `call` is asked how many there are, then for all of them.
template <typename Structure, typename Call>
VkResult list_all(VkStructureType type, std::vector<Structure>& all, Call call) {
  std::uint32_t count = 0;
  if (const VkResult counted = call(&count, static_cast<Structure*>(nullptr)); counted != VK_SUCCESS) return counted;
  Structure empty{};
  empty.sType = type;
  all.assign(count, empty);
  const VkResult listed = call(&count, all.data());
  all.resize(count);
  return listed;
}

/// A card's properties, and those of an extension in `extra`, a structure of `type`.
template <typename Structure>
VkPhysicalDeviceProperties properties_with(const InstanceFunctions& functions, VkPhysicalDevice card,
                                           VkStructureType type, Structure& extra) {
  extra.sType = type;
  VkPhysicalDeviceProperties2 properties{};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  properties.pNext = &extra;
  functions.GetPhysicalDeviceProperties2(card, &properties);
  return properties.properties;
}

/// "VK_ERROR_DEVICE_LOST" and so on.
const char* name_of(VkResult result);

}  // namespace rondo::devices::vulkan
