// What the driver says of the machine code that it made of a pipeline: registers, spills, instructions.
// Source: VK_KHR_pipeline_executable_properties.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "context.h"

namespace rondo::devices::vulkan {

/// Whether the environment asks for it: RONDO_VULKAN_STATISTICS names the file that lines are added to.
bool wants_statistics();

class Statistics {
 public:
  /// Null unless asked for, and on cards whose driver has nothing to say.
  static std::unique_ptr<Statistics> make(std::shared_ptr<Context> context);

  /// What pipelines are to be made with.
  static constexpr VkPipelineCreateFlags kFlags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
  /// Adds a line: the shader, its constants, then each of the driver's figures after its name. Errors: the driver's.
  absl::Status add(const char* shader, std::span<const std::uint32_t> constants, VkPipeline pipeline);

 private:
  Statistics(std::shared_ptr<Context> context, std::string file)
      : context_(std::move(context)), file_(std::move(file)) {}
  const std::shared_ptr<Context> context_;
  const std::string file_;
};

}  // namespace rondo::devices::vulkan
