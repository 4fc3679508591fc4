// Behind instance.h.
#include "instance.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "find_matrix_units.h"
#include "panel_size.h"
#include "rondo/base/status.h"
#include "statistics.h"

namespace rondo::devices::vulkan {
namespace {

constexpr const char* kValidation = "VK_LAYER_KHRONOS_validation";

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT /*severity*/,
                                          VkDebugUtilsMessageTypeFlagsEXT /*types*/,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data, void* user) {
  (*static_cast<const Complaint*>(user))(data->pMessage);
  return VK_FALSE;
}

VkDebugUtilsMessengerCreateInfoEXT messenger_info(const Complaint& complaint) {
  VkDebugUtilsMessengerCreateInfoEXT info{};
  info.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
  info.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  info.pfnUserCallback = on_message;
  info.pUserData = const_cast<Complaint*>(&complaint);
  return info;
}

bool has_validation(const GlobalFunctions& global) {
  std::uint32_t count = 0;
  if (global.EnumerateInstanceLayerProperties(&count, nullptr) != VK_SUCCESS) return false;
  std::vector<VkLayerProperties> layers(count);
  if (global.EnumerateInstanceLayerProperties(&count, layers.data()) != VK_SUCCESS) return false;
  return std::any_of(layers.begin(), layers.end(),
                     [](const VkLayerProperties& layer) { return std::strcmp(layer.layerName, kValidation) == 0; });
}

VkApplicationInfo application_info() {
  VkApplicationInfo application{};
  application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  application.pApplicationName = "rondo";
  application.apiVersion = VK_API_VERSION_1_2;
  return application;
}

/// The loader unloads drivers with the last instance. That takes time when the next one loads them again, and some leak
/// (Mesa 22: 128 bytes each time): an instance that nobody uses keeps them for the life of the process.
void keep_drivers_loaded(const GlobalFunctions& global) {
  static const bool kept = [&global] {
    const VkApplicationInfo application = application_info();
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &application;
    VkInstance forever = VK_NULL_HANDLE;
    return global.CreateInstance(&info, nullptr, &forever) == VK_SUCCESS;
  }();
  static_cast<void>(kept);
}

/// The features that everything here rests on, chained to be asked for or enabled.
struct Lacking {
  std::string text;
  void unless(bool there, const char* what) {
    if (there) return;
    text += text.empty() ? "" : ", ";
    text += what;
  }
};

std::string unsuitable_because(const InstanceFunctions& functions, VkPhysicalDevice handle,
                               const VkPhysicalDeviceProperties& properties) {
  if (properties.apiVersion < VK_API_VERSION_1_2) {
    return fmt::format("its driver is for Vulkan {}.{}, 1.2 is needed: update the driver",
                       VK_API_VERSION_MAJOR(properties.apiVersion), VK_API_VERSION_MINOR(properties.apiVersion));
  }
  VkPhysicalDeviceVulkan12Features features12{};
  features12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  VkPhysicalDeviceVulkan11Features features11{};
  features11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  features11.pNext = &features12;
  VkPhysicalDeviceFeatures2 features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &features11;
  functions.GetPhysicalDeviceFeatures2(handle, &features);
  Lacking lacking;
  lacking.unless(features12.bufferDeviceAddress == VK_TRUE, "bufferDeviceAddress");
  lacking.unless(features12.timelineSemaphore == VK_TRUE, "timelineSemaphore");
  lacking.unless(features12.scalarBlockLayout == VK_TRUE, "scalarBlockLayout");
  lacking.unless(features11.storageBuffer16BitAccess == VK_TRUE, "storageBuffer16BitAccess");
  lacking.unless(features.features.shaderInt64 == VK_TRUE, "shaderInt64");
  lacking.unless(properties.limits.maxComputeSharedMemorySize >= 32768, "32 KiB of shared memory in a workgroup");
  lacking.unless(properties.limits.maxComputeWorkGroupInvocations >= 256, "workgroups of 256 invocations");
  if (lacking.text.empty()) return "";
  return fmt::format("it lacks {}, which programs need: try a newer driver", lacking.text);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Instance>> Instance::make(Complaint complaint) {
  RONDO_ASSIGN_OR_RETURN(const GlobalFunctions* global, load_vulkan());
  auto instance = std::shared_ptr<Instance>(new Instance(std::move(complaint)));
  RONDO_RETURN_IF_ERROR(instance->create(*global));
  return instance;
}

absl::Status Instance::create(const GlobalFunctions& global) {
  const bool validating = complaint_ != nullptr;
  if (validating && !has_validation(global)) {
    return absl::UnavailableError(
        fmt::format("{} is not on this machine; install vulkan-validationlayers", kValidation));
  }
  const VkApplicationInfo application = application_info();
  VkInstanceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &application;
  const char* extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
  const VkDebugUtilsMessengerCreateInfoEXT messages = messenger_info(complaint_);
  if (validating) {
    info.pNext = &messages;
    info.enabledLayerCount = 1;
    info.ppEnabledLayerNames = &kValidation;
    info.enabledExtensionCount = 1;
    info.ppEnabledExtensionNames = &extension;
  }
  if (const VkResult result = global.CreateInstance(&info, nullptr, &instance_); result != VK_SUCCESS) {
    instance_ = VK_NULL_HANDLE;
    return absl::UnavailableError(fmt::format(
        "Vulkan cannot be started ({}); is the driver of the card installed? (mesa-vulkan-drivers, or the vendor's)",
        name_of(result)));
  }
  keep_drivers_loaded(global);
  RONDO_RETURN_IF_ERROR(load_functions(global, instance_, functions_));
  if (!validating) return absl::OkStatus();
  if (functions_.CreateDebugUtilsMessengerEXT == nullptr ||
      functions_.CreateDebugUtilsMessengerEXT(instance_, &messages, nullptr, &messenger_) != VK_SUCCESS) {
    return absl::UnavailableError("the Vulkan loader has no VK_EXT_debug_utils, through which validation speaks");
  }
  return absl::OkStatus();
}

Instance::~Instance() {
  if (messenger_ != VK_NULL_HANDLE) functions_.DestroyDebugUtilsMessengerEXT(instance_, messenger_, nullptr);
  if (instance_ != VK_NULL_HANDLE && functions_.DestroyInstance != nullptr) {
    functions_.DestroyInstance(instance_, nullptr);
  }
}

absl::StatusOr<std::vector<Card>> Instance::cards() const {
  std::uint32_t count = 0;
  VkResult result = functions_.EnumeratePhysicalDevices(instance_, &count, nullptr);
  std::vector<VkPhysicalDevice> handles(count);
  if (result == VK_SUCCESS && count > 0) {
    result = functions_.EnumeratePhysicalDevices(instance_, &count, handles.data());
  }
  if (result != VK_SUCCESS || count == 0) {
    return absl::UnavailableError(
        fmt::format("no Vulkan device on this machine ({}); install the card's driver (mesa-vulkan-drivers, or the "
                    "vendor's) and see that this user may open /dev/dri/renderD*",
                    name_of(result)));
  }
  std::vector<Card> cards;
  for (std::uint32_t i = 0; i < count; ++i) cards.push_back(describe(handles[i], i));
  return cards;
}

Card Instance::describe(VkPhysicalDevice handle, std::uint32_t index) const {
  Card card;
  card.handle = handle;
  VkPhysicalDeviceVulkan12Properties properties12{};
  properties12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES;
  VkPhysicalDeviceVulkan11Properties properties11{};
  properties11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES;
  properties11.pNext = &properties12;
  VkPhysicalDeviceProperties2 properties{};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  properties.pNext = &properties11;
  functions_.GetPhysicalDeviceProperties2(handle, &properties);
  const VkPhysicalDeviceProperties& base = properties.properties;
  card.info.index = index;
  card.info.name = base.deviceName;
  card.info.driver = properties12.driverName;
  if (properties12.driverInfo[0] != '\0') card.info.driver += fmt::format(" {}", properties12.driverInfo);
  std::copy(std::begin(properties11.deviceUUID), std::end(properties11.deviceUUID), card.info.uuid.begin());
  card.info.cuda_too = properties12.driverID == VK_DRIVER_ID_NVIDIA_PROPRIETARY;
  card.info.software = base.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  card.info.integrated = base.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
  card.info.unsuitable = unsuitable_because(functions_, handle, base);
  card.numerics_name = fmt::format("{}-{}-{:x}", base.deviceName, card.info.driver, base.driverVersion);
  constexpr VkSubgroupFeatureFlags kHandsRound = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
  const bool hands_round = (properties11.subgroupSupportedOperations & kHandsRound) == kHandsRound &&
                           (properties11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
  card.fetches_panels = card.info.software && properties11.subgroupSize == 8 && hands_round &&
                        base.limits.maxTexelBufferElements >= kPanelTexels;
  card.pipeline_identity =
      fmt::format("{:x} {:x} {:x} {:02x}", base.vendorID, base.deviceID, base.driverVersion,
                  fmt::join(std::begin(base.pipelineCacheUUID), std::end(base.pipelineCacheUUID), ""));
  card.limits = base.limits;
  card.most_bytes_at_once = properties11.maxMemoryAllocationSize;
  VkPhysicalDeviceMemoryProperties2 memory{};
  memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  functions_.GetPhysicalDeviceMemoryProperties2(handle, &memory);
  card.memory = memory.memoryProperties;
  for (std::uint32_t i = 0; i < card.memory.memoryHeapCount; ++i) {
    if ((card.memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0) continue;
    card.info.memory_bytes = std::max<Bytes>(card.info.memory_bytes, card.memory.memoryHeaps[i].size);
  }
  VkPhysicalDeviceFeatures2 features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  functions_.GetPhysicalDeviceFeatures2(handle, &features);
  card.has_doubles = features.features.shaderFloat64 == VK_TRUE;
  std::uint32_t count = 0;
  functions_.GetPhysicalDeviceQueueFamilyProperties(handle, &count, nullptr);
  card.queue_families.resize(count);
  functions_.GetPhysicalDeviceQueueFamilyProperties(handle, &count, card.queue_families.data());
  functions_.EnumerateDeviceExtensionProperties(handle, nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> extensions(count);
  functions_.EnumerateDeviceExtensionProperties(handle, nullptr, &count, extensions.data());
  const auto has = [&extensions](const char* name) {
    return std::any_of(extensions.begin(), extensions.end(), [name](const VkExtensionProperties& extension) {
      return std::strcmp(extension.extensionName, name) == 0;
    });
  };
  if (hands_round) card.matrix_units = find_matrix_units(functions_, handle, has);
  card.info.matrix_units = card.matrix_units.there();
  card.tells_statistics = wants_statistics() && has(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
  card.has_memory_budget = has(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (base.apiVersion >= VK_API_VERSION_1_3 || has(VK_KHR_MAINTENANCE_4_EXTENSION_NAME)) {
    card.most_bytes_at_once = std::min(card.most_bytes_at_once, largest_buffer(handle));
  }
  if (has(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME)) card.import_grain = import_grain(handle);
  return card;
}

/// REQUIRES: the card has Vulkan 1.3 or VK_KHR_maintenance4.
VkDeviceSize Instance::largest_buffer(VkPhysicalDevice handle) const {
  VkPhysicalDeviceMaintenance4PropertiesKHR limits{};
  properties_with(functions_, handle, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES_KHR, limits);
  return limits.maxBufferSize;
}

/// REQUIRES: the card has VK_EXT_external_memory_host.
Bytes Instance::import_grain(VkPhysicalDevice handle) const {
  VkPhysicalDeviceExternalBufferInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO;
  info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT;
  info.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  VkExternalBufferProperties buffers{};
  buffers.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES;
  functions_.GetPhysicalDeviceExternalBufferProperties(handle, &info, &buffers);
  const VkExternalMemoryFeatureFlags features = buffers.externalMemoryProperties.externalMemoryFeatures;
  if ((features & VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT) == 0) return 0;
  VkPhysicalDeviceExternalMemoryHostPropertiesEXT host{};
  properties_with(functions_, handle, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT, host);
  return host.minImportedHostPointerAlignment;
}

VkDeviceSize Instance::available_bytes(const Card& card, std::uint32_t heap) const {
  const VkDeviceSize size = card.memory.memoryHeaps[heap].size;
  if (!card.has_memory_budget) return size;
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{};
  budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
  VkPhysicalDeviceMemoryProperties2 memory{};
  memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  memory.pNext = &budget;
  functions_.GetPhysicalDeviceMemoryProperties2(card.handle, &memory);
  const VkDeviceSize free =
      budget.heapBudget[heap] > budget.heapUsage[heap] ? budget.heapBudget[heap] - budget.heapUsage[heap] : 0;
  return std::min(size, free);
}

}  // namespace rondo::devices::vulkan
