// Behind loader.h: dlopen and tables of function pointers.
#include "loader.h"

#include <dlfcn.h>

#include "rondo/base/status.h"

namespace rondo::devices::vulkan {
namespace {

absl::Status missing(const char* function) {
  return absl::UnavailableError(
      fmt::format("the Vulkan loader or driver has no vk{}: it is older than Vulkan 1.2; update the driver", function));
}

absl::StatusOr<GlobalFunctions> open_loader() {
  void* library = ::dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return absl::UnavailableError(
        fmt::format("no Vulkan loader on this machine ({}); install libvulkan1 and the driver of the card, such as "
                    "mesa-vulkan-drivers",
                    why == nullptr ? "no reason given" : why));
  }
  GlobalFunctions functions;
  functions.GetInstanceProcAddr =
      reinterpret_cast<PFN_vkGetInstanceProcAddr>(::dlsym(library, "vkGetInstanceProcAddr"));
  if (functions.GetInstanceProcAddr == nullptr) return missing("GetInstanceProcAddr");
#define RONDO_VULKAN_LOAD(function)                                                                                \
  functions.function = reinterpret_cast<PFN_vk##function>(functions.GetInstanceProcAddr(nullptr, "vk" #function)); \
  if (functions.function == nullptr) return missing(#function);
  RONDO_VULKAN_GLOBAL_FUNCTIONS(RONDO_VULKAN_LOAD)
#undef RONDO_VULKAN_LOAD
  return functions;
}

}  // namespace

absl::StatusOr<const GlobalFunctions*> load_vulkan() {
  // Of the process, like the library itself, which drivers do not like to see closed.
  static const auto* const functions = new absl::StatusOr<GlobalFunctions>(open_loader());
  if (!functions->ok()) return functions->status();
  return &**functions;
}

absl::Status load_functions(const GlobalFunctions& global, VkInstance instance, InstanceFunctions& functions) {
#define RONDO_VULKAN_LOAD(function)                                                                              \
  functions.function = reinterpret_cast<PFN_vk##function>(global.GetInstanceProcAddr(instance, "vk" #function)); \
  if (functions.function == nullptr) return missing(#function);
  RONDO_VULKAN_INSTANCE_FUNCTIONS(RONDO_VULKAN_LOAD)
#undef RONDO_VULKAN_LOAD
  functions.CreateDebugUtilsMessengerEXT = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
      global.GetInstanceProcAddr(instance, "vkCreateDebugUtilsMessengerEXT"));
  functions.DestroyDebugUtilsMessengerEXT = reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
      global.GetInstanceProcAddr(instance, "vkDestroyDebugUtilsMessengerEXT"));
  functions.GetPhysicalDeviceCooperativeMatrixPropertiesKHR =
      reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR>(
          global.GetInstanceProcAddr(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  functions.GetPhysicalDeviceCooperativeMatrixPropertiesNV =
      reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesNV>(
          global.GetInstanceProcAddr(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesNV"));
  return absl::OkStatus();
}

absl::Status load_functions(const InstanceFunctions& instance, VkDevice device, DeviceFunctions& functions) {
#define RONDO_VULKAN_LOAD(function)                                                                            \
  functions.function = reinterpret_cast<PFN_vk##function>(instance.GetDeviceProcAddr(device, "vk" #function)); \
  if (functions.function == nullptr) return missing(#function);
  RONDO_VULKAN_DEVICE_FUNCTIONS(RONDO_VULKAN_LOAD)
#undef RONDO_VULKAN_LOAD
  functions.GetMemoryHostPointerPropertiesEXT = reinterpret_cast<PFN_vkGetMemoryHostPointerPropertiesEXT>(
      instance.GetDeviceProcAddr(device, "vkGetMemoryHostPointerPropertiesEXT"));
  functions.GetPipelineExecutablePropertiesKHR = reinterpret_cast<PFN_vkGetPipelineExecutablePropertiesKHR>(
      instance.GetDeviceProcAddr(device, "vkGetPipelineExecutablePropertiesKHR"));
  functions.GetPipelineExecutableStatisticsKHR = reinterpret_cast<PFN_vkGetPipelineExecutableStatisticsKHR>(
      instance.GetDeviceProcAddr(device, "vkGetPipelineExecutableStatisticsKHR"));
  return absl::OkStatus();
}

const char* name_of(VkResult result) {
  switch (result) {
    case VK_SUCCESS:
      return "VK_SUCCESS";
    case VK_TIMEOUT:
      return "VK_TIMEOUT";
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      return "VK_ERROR_OUT_OF_HOST_MEMORY";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
      return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
    case VK_ERROR_INITIALIZATION_FAILED:
      return "VK_ERROR_INITIALIZATION_FAILED";
    case VK_ERROR_DEVICE_LOST:
      return "VK_ERROR_DEVICE_LOST";
    case VK_ERROR_MEMORY_MAP_FAILED:
      return "VK_ERROR_MEMORY_MAP_FAILED";
    case VK_ERROR_LAYER_NOT_PRESENT:
      return "VK_ERROR_LAYER_NOT_PRESENT";
    case VK_ERROR_EXTENSION_NOT_PRESENT:
      return "VK_ERROR_EXTENSION_NOT_PRESENT";
    case VK_ERROR_FEATURE_NOT_PRESENT:
      return "VK_ERROR_FEATURE_NOT_PRESENT";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
      return "VK_ERROR_INCOMPATIBLE_DRIVER";
    case VK_ERROR_TOO_MANY_OBJECTS:
      return "VK_ERROR_TOO_MANY_OBJECTS";
    default:
      return "a Vulkan error";
  }
}

}  // namespace rondo::devices::vulkan
