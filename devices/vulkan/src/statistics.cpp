// Behind statistics.h.
#include "statistics.h"

#include <cstdlib>
#include <fstream>
#include <vector>

#include "fmt/ranges.h"
#include "rondo/base/status.h"

namespace rondo::devices::vulkan {
namespace {

constexpr const char* kVariable = "RONDO_VULKAN_STATISTICS";

std::string text_of(const VkPipelineExecutableStatisticKHR& statistic) {
  switch (statistic.format) {
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
      return statistic.value.b32 == VK_TRUE ? "yes" : "no";
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
      return fmt::format("{}", statistic.value.i64);
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
      return fmt::format("{}", statistic.value.u64);
    default:
      return fmt::format("{}", statistic.value.f64);
  }
}

}  // namespace

bool wants_statistics() { return std::getenv(kVariable) != nullptr; }

std::unique_ptr<Statistics> Statistics::make(std::shared_ptr<Context> context) {
  const char* const file = std::getenv(kVariable);
  if (!context->card().tells_statistics || file == nullptr) return nullptr;
  return std::unique_ptr<Statistics>(new Statistics(std::move(context), file));
}

absl::Status Statistics::add(const char* shader, std::span<const std::uint32_t> constants, VkPipeline pipeline) {
  const DeviceFunctions& vk = context_->functions();
  const VkDevice device = context_->device();
  VkPipelineInfoKHR info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR;
  info.pipeline = pipeline;
  std::vector<VkPipelineExecutablePropertiesKHR> executables;
  RONDO_RETURN_IF_ERROR(context_->check(
      list_all(VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR, executables,
               [&](auto* count, auto* to) { return vk.GetPipelineExecutablePropertiesKHR(device, &info, count, to); }),
      kVariable));
  std::ofstream file(file_, std::ios::app);
  VkPipelineExecutableInfoKHR which{};
  which.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR;
  which.pipeline = pipeline;
  for (const auto& executable : executables) {
    std::vector<VkPipelineExecutableStatisticKHR> statistics;
    RONDO_RETURN_IF_ERROR(context_->check(list_all(VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR, statistics,
                                                   [&](auto* count, auto* to) {
                                                     return vk.GetPipelineExecutableStatisticsKHR(device, &which, count,
                                                                                                  to);
                                                   }),
                                          kVariable));
    file << fmt::format("{}({}) {}: subgroup {}", shader, fmt::join(constants, ","), executable.name,
                        executable.subgroupSize);
    for (const auto& statistic : statistics) file << ", " << statistic.name << " " << text_of(statistic);
    file << "\n";
    ++which.executableIndex;
  }
  return absl::OkStatus();
}

}  // namespace rondo::devices::vulkan
