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
  VkPipelineInfoKHR info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR;
  info.pipeline = pipeline;
  std::uint32_t count = 0;
  vk.GetPipelineExecutablePropertiesKHR(context_->device(), &info, &count, nullptr);
  VkPipelineExecutablePropertiesKHR kind{};
  kind.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR;
  std::vector<VkPipelineExecutablePropertiesKHR> executables(count, kind);
  RONDO_RETURN_IF_ERROR(context_->check(
      vk.GetPipelineExecutablePropertiesKHR(context_->device(), &info, &count, executables.data()), kVariable));
  std::ofstream file(file_, std::ios::app);
  for (std::uint32_t i = 0; i < count; ++i) {
    VkPipelineExecutableInfoKHR which{};
    which.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR;
    which.pipeline = pipeline;
    which.executableIndex = i;
    std::uint32_t figures = 0;
    vk.GetPipelineExecutableStatisticsKHR(context_->device(), &which, &figures, nullptr);
    VkPipelineExecutableStatisticKHR empty{};
    empty.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
    std::vector<VkPipelineExecutableStatisticKHR> statistics(figures, empty);
    RONDO_RETURN_IF_ERROR(context_->check(
        vk.GetPipelineExecutableStatisticsKHR(context_->device(), &which, &figures, statistics.data()), kVariable));
    file << fmt::format("{}({}) {}: subgroup {}", shader, fmt::join(constants, ","), executables[i].name,
                        executables[i].subgroupSize);
    for (const auto& statistic : statistics) file << ", " << statistic.name << " " << text_of(statistic);
    file << "\n";
  }
  return absl::OkStatus();
}

}  // namespace rondo::devices::vulkan
