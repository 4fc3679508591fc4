// Behind find_matrix_units.h.
#include "find_matrix_units.h"

#include <algorithm>

namespace rondo::devices::vulkan {
namespace {

/// A kind of product that the driver lists, as both extensions have it.
struct Listed {
  MatrixUnits::Shape shape;
  std::uint32_t a = 0, b = 0, sum = 0, result = 0;  // VkComponentTypeKHR, of which NV's are the first
  bool in_subgroup = false;
};

bool suits(const MatrixUnits::Shape& shape, const MatrixUnits& units) {
  // In shared memory matrices begin with 16 bytes.
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) return false;
  if (MatrixUnits::kDepth % shape.k != 0 || shape.k % 8 != 0 || shape.n % 4 != 0) return false;
  return units.fits(shape, {MatrixUnits::parts(shape.m), MatrixUnits::parts(shape.n), 2, 2});
}

/// The largest for operands of `type`.
MatrixUnits::Shape best(const std::vector<Listed>& all, std::uint32_t type, const MatrixUnits& units) {
  const auto size = [](const MatrixUnits::Shape& shape) { return shape.m * shape.n * shape.k; };
  MatrixUnits::Shape found;
  for (const Listed& one : all) {
    const bool sums = one.sum == VK_COMPONENT_TYPE_FLOAT32_KHR && one.result == VK_COMPONENT_TYPE_FLOAT32_KHR;
    if (one.a != type || one.b != type || !sums || !one.in_subgroup || !suits(one.shape, units)) continue;
    if (size(one.shape) > size(found)) found = one.shape;
  }
  return found;
}

Listed listed(const VkCooperativeMatrixPropertiesKHR& one) {
  return {{one.MSize, one.NSize, one.KSize},
          static_cast<std::uint32_t>(one.AType),
          static_cast<std::uint32_t>(one.BType),
          static_cast<std::uint32_t>(one.CType),
          static_cast<std::uint32_t>(one.ResultType),
          one.scope == VK_SCOPE_SUBGROUP_KHR && one.saturatingAccumulation == VK_FALSE};
}

Listed listed(const VkCooperativeMatrixPropertiesNV& one) {
  return {{one.MSize, one.NSize, one.KSize},     static_cast<std::uint32_t>(one.AType),
          static_cast<std::uint32_t>(one.BType), static_cast<std::uint32_t>(one.CType),
          static_cast<std::uint32_t>(one.DType), one.scope == VK_SCOPE_SUBGROUP_NV};
}

/// All that the driver lists by `list`, an extension's function, in structures of `type`.
template <typename Properties>
std::vector<Listed> all_listed(VkResult (*list)(VkPhysicalDevice, std::uint32_t*, Properties*), VkStructureType type,
                               VkPhysicalDevice card) {
  std::vector<Properties> properties;
  const auto call = [list, card](std::uint32_t* count, Properties* to) { return list(card, count, to); };
  if (list == nullptr || list_all(type, properties, call) != VK_SUCCESS) return {};
  std::vector<Listed> all;
  for (const Properties& one : properties) all.push_back(listed(one));
  return all;
}

/// What the driver says it has of all that may be asked for here. `bfloat16` and `khr` or `nv` are only asked for where
/// their extensions are there.
struct Found {
  bool base = false;  // fp16, memory model, subgroups
  bool khr = false;
  bool nv = false;
  bool bfloat16 = false;
};

Found ask(const InstanceFunctions& functions, VkPhysicalDevice card, const HasExtension& has) {
  VkPhysicalDeviceVulkan12Features features12{};
  features12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  VkPhysicalDeviceSubgroupSizeControlFeaturesEXT sizes{};
  sizes.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT;
  sizes.pNext = &features12;
  void* next = &sizes;
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR khr{};
  khr.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR;
  if (has(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME)) {
    khr.pNext = next;
    next = &khr;
  }
  VkPhysicalDeviceCooperativeMatrixFeaturesNV nv{};
  nv.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV;
  if (has(VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME)) {
    nv.pNext = next;
    next = &nv;
  }
  VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16{};
  bfloat16.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR;
  if (has(VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME)) {
    bfloat16.pNext = next;
    next = &bfloat16;
  }
  VkPhysicalDeviceFeatures2 features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = next;
  functions.GetPhysicalDeviceFeatures2(card, &features);
  Found found;
  found.base = features12.shaderFloat16 == VK_TRUE && features12.vulkanMemoryModel == VK_TRUE &&
               features12.vulkanMemoryModelDeviceScope == VK_TRUE && sizes.subgroupSizeControl == VK_TRUE &&
               sizes.computeFullSubgroups == VK_TRUE;
  found.khr = khr.cooperativeMatrix == VK_TRUE;
  found.nv = nv.cooperativeMatrix == VK_TRUE;
  found.bfloat16 = bfloat16.shaderBFloat16Type == VK_TRUE && bfloat16.shaderBFloat16CooperativeMatrix == VK_TRUE;
  return found;
}

/// What a workgroup may have, of units not yet known. The smallest subgroups are those that drivers with several sizes
/// multiply matrices with; 0 where the driver does not let a kernel choose.
MatrixUnits limits_of(const InstanceFunctions& functions, VkPhysicalDevice card) {
  VkPhysicalDeviceSubgroupSizeControlPropertiesEXT sizes{};
  const VkPhysicalDeviceLimits limits =
      properties_with(functions, card, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES_EXT, sizes)
          .limits;
  const std::uint32_t size = sizes.minSubgroupSize;
  MatrixUnits units;
  units.shared_bytes = limits.maxComputeSharedMemorySize;
  units.invocations =
      std::min({limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0],
                size * std::min(sizes.maxComputeWorkgroupSubgroups, limits.maxComputeWorkGroupInvocations)});
  const bool settable = (sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
  units.subgroup_size = settable ? size : 0;
  return units;
}

}  // namespace

MatrixUnits find_matrix_units(const InstanceFunctions& functions, VkPhysicalDevice card, const HasExtension& has) {
  if (!has(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)) return {};
  const Found found = ask(functions, card, has);
  MatrixUnits units = limits_of(functions, card);
  if (!found.base || !(found.khr || found.nv) || units.subgroup_size == 0) return {};
  units.api = found.khr ? MatrixUnits::Api::kKhr : MatrixUnits::Api::kNv;
  const std::vector<Listed> all = found.khr ? all_listed(functions.GetPhysicalDeviceCooperativeMatrixPropertiesKHR,
                                                         VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR, card)
                                            : all_listed(functions.GetPhysicalDeviceCooperativeMatrixPropertiesNV,
                                                         VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_NV, card);
  units.float16 = best(all, VK_COMPONENT_TYPE_FLOAT16_KHR, units);
  if (found.khr && found.bfloat16) {
    units.bfloat16 = best(all, static_cast<std::uint32_t>(VK_COMPONENT_TYPE_BFLOAT16_KHR), units);
  }
  return units.float16.there() || units.bfloat16.there() ? units : MatrixUnits{};
}

UnitFeatures::UnitFeatures(const MatrixUnits& units) : units_(units) {
  khr_.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR;
  khr_.cooperativeMatrix = VK_TRUE;
  nv_.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV;
  nv_.cooperativeMatrix = VK_TRUE;
  bfloat16_.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR;
  bfloat16_.shaderBFloat16Type = VK_TRUE;
  bfloat16_.shaderBFloat16CooperativeMatrix = VK_TRUE;
  sizes_.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT;
  sizes_.subgroupSizeControl = VK_TRUE;
  sizes_.computeFullSubgroups = VK_TRUE;
}

void* UnitFeatures::before(void* next) {
  if (!units_.there()) return next;
  sizes_.pNext = next;
  next = &sizes_;
  if (units_.bfloat16.there()) {
    bfloat16_.pNext = next;
    next = &bfloat16_;
  }
  if (units_.api == MatrixUnits::Api::kKhr) {
    khr_.pNext = next;
    return &khr_;
  }
  nv_.pNext = next;
  return &nv_;
}

void UnitFeatures::add_extensions(std::vector<const char*>& extensions) const {
  if (!units_.there()) return;
  extensions.push_back(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  if (units_.bfloat16.there()) extensions.push_back(VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME);
  extensions.push_back(units_.api == MatrixUnits::Api::kKhr ? VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME
                                                            : VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME);
}

}  // namespace rondo::devices::vulkan
