// Which matrix units a card has and what enabling them takes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "loader.h"
#include "matrix_units.h"

namespace rondo::devices::vulkan {

/// Whether the card has an extension.
using HasExtension = std::function<bool(const char* name)>;

/// None where the card lacks something that the kernel needs, see matmul_cooperative.comp: besides matrices of 16 bits
/// with sums of 32 in a subgroup's scope, subgroups of a size that can be required, and Vulkan's memory model.
MatrixUnits find_matrix_units(const InstanceFunctions& functions, VkPhysicalDevice card, const HasExtension& has);

/// The features to be enabled with a device that uses `units`, chained to one another, and their extensions. Neither
/// copied nor moved: it points into itself.
class UnitFeatures {
 public:
  explicit UnitFeatures(const MatrixUnits& units);
  UnitFeatures(const UnitFeatures&) = delete;
  UnitFeatures& operator=(const UnitFeatures&) = delete;

  /// Puts the chain before `next`.
  void* before(void* next);
  void add_extensions(std::vector<const char*>& extensions) const;

 private:
  const MatrixUnits units_;
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR khr_{};
  VkPhysicalDeviceCooperativeMatrixFeaturesNV nv_{};
  VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16_{};
  VkPhysicalDeviceSubgroupSizeControlFeaturesEXT sizes_{};
};

}  // namespace rondo::devices::vulkan
