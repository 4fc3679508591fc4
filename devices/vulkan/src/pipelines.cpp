// Behind pipelines.h.
#include "pipelines.h"

#include <array>

#include "cooperative_code.h"
#include "rondo/base/status.h"

namespace rondo::devices::vulkan {
namespace {

// constant_id in shaders/common.glsl
constexpr std::uint32_t kPart = 30;
constexpr std::uint32_t kBackwards = 31;

}  // namespace

bool uses_matrix_units(Shader shader) {
  return shader == Shader::kMatMulCooperative || shader == Shader::kAttentionUnits ||
         shader == Shader::kAttentionQueryUnits || shader == Shader::kAttentionKeyUnits;
}

Pipelines::~Pipelines() {
  // A cache that cannot be written costs the next start some time and is no reason to fail.
  if (cache_ != nullptr && !made_.empty()) cache_->save().IgnoreError();
  const DeviceFunctions& vk = context_->functions();
  for (const auto& [key, pipeline] : made_) vk.DestroyPipeline(context_->device(), pipeline, nullptr);
  if (layout_ != VK_NULL_HANDLE) vk.DestroyPipelineLayout(context_->device(), layout_, nullptr);
}

absl::Status Pipelines::prepare() {
  RONDO_ASSIGN_OR_RETURN(cache_, PipelineCache::open(context_, folder_));
  statistics_ = Statistics::make(context_);
  VkDescriptorSetLayout sets = VK_NULL_HANDLE;
  if (context_->card().fetches_panels) {
    RONDO_ASSIGN_OR_RETURN(panel_, Panel::make(context_));
    sets = panel_->set_layout();
  }
  VkPushConstantRange range{};
  range.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  range.size = sizeof(Push);
  VkPipelineLayoutCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  info.setLayoutCount = panel_ == nullptr ? 0 : 1;
  info.pSetLayouts = &sets;
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &range;
  return context_->check(context_->functions().CreatePipelineLayout(context_->device(), &info, nullptr, &layout_),
                         "making a pipeline layout");
}

absl::StatusOr<VkPipeline> Pipelines::get(Shader shader, const Constants& constants, bool part) {
  const MutexLock lock(mutex_);
  const Key key(shader, constants, part);
  if (const auto found = made_.find(key); found != made_.end()) return found->second;
  RONDO_ASSIGN_OR_RETURN(VkPipeline pipeline, make(shader, constants, part));
  made_.emplace(key, pipeline);
  if (statistics_ != nullptr) RONDO_RETURN_IF_ERROR(statistics_->add(name_of(shader), constants, pipeline));
  RONDO_RETURN_IF_ERROR(translate(pipeline));
  return pipeline;
}

/// Mesa's llvmpipe makes machine code of a pipeline when it is first dispatched, and holds megabytes from then on. A
/// dispatch of no workgroups does as well, so that no step waits for it and nothing is held that was not seen before
/// the run.
absl::Status Pipelines::translate(VkPipeline pipeline) {
  constexpr const char* kWhat = "recording an empty dispatch";
  const DeviceFunctions& vk = context_->functions();
  if (translating_.get() == VK_NULL_HANDLE) {
    RONDO_RETURN_IF_ERROR(translating_.make(context_, context_->compute().family(), Commands::Use::kOnce));
  }
  RONDO_RETURN_IF_ERROR(translating_.begin(kWhat));
  const VkCommandBuffer commands = translating_.get();
  bind_panel(commands);
  vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  const Push push;
  vk.CmdPushConstants(commands, layout_, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(push), &push);
  vk.CmdDispatch(commands, 0, 0, 0);
  RONDO_RETURN_IF_ERROR(translating_.end(kWhat));
  return context_->compute().run(std::array{commands});
}

void Pipelines::bind_panel(VkCommandBuffer commands) const {
  if (panel_ == nullptr) return;
  const VkDescriptorSet set = panel_->set();
  context_->functions().CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout_, 0, 1, &set, 0,
                                              nullptr);
}

absl::StatusOr<VkPipeline> Pipelines::make(Shader shader, const Constants& constants, bool part) {
  const DeviceFunctions& vk = context_->functions();
  const MatrixUnits& units = context_->card().matrix_units;
  std::span<const std::uint32_t> code = code_of(shader);
  std::vector<std::uint32_t> translated;
  if (uses_matrix_units(shader) && units.api == MatrixUnits::Api::kKhr) {
    const UnitConstants& at = shader == Shader::kMatMulCooperative ? kProductConstants : kAttentionConstants;
    const bool bfloat16 = constants[at.type] == kBfloat16Storage && constants[at.scaled] == 0;
    RONDO_ASSIGN_OR_RETURN(translated, khr_cooperative_code(code, bfloat16));
    code = translated;
  }
  VkShaderModuleCreateInfo module_info{};
  module_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  module_info.codeSize = code.size_bytes();
  module_info.pCode = code.data();
  VkShaderModule module = VK_NULL_HANDLE;
  RONDO_RETURN_IF_ERROR(
      context_->check(vk.CreateShaderModule(context_->device(), &module_info, nullptr, &module), name_of(shader)));
  std::vector<VkSpecializationMapEntry> entries;
  for (std::uint32_t i = 0; i < constants.size(); ++i) entries.push_back({i, i * 4, 4});
  Constants all = constants;
  for (const auto& [constant, on] : {std::pair{kPart, part}, std::pair{kBackwards, backwards_}}) {
    if (!on) continue;
    entries.push_back({constant, static_cast<std::uint32_t>(all.size() * 4), 4});
    all.push_back(1);
  }
  VkSpecializationInfo special{};
  special.mapEntryCount = static_cast<std::uint32_t>(entries.size());
  special.pMapEntries = entries.data();
  special.dataSize = all.size() * 4;
  special.pData = all.data();
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &special;
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT required{};
  required.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT;
  required.requiredSubgroupSize = units.subgroup_size;
  if (uses_matrix_units(shader)) {
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT;
    info.stage.pNext = &required;
  }
  info.layout = layout_;
  info.flags = statistics_ == nullptr ? 0 : Statistics::kFlags;
  if (part) info.flags |= VK_PIPELINE_CREATE_DISPATCH_BASE_BIT;
  VkPipeline pipeline = VK_NULL_HANDLE;
  const VkResult result = vk.CreateComputePipelines(context_->device(), cache_->handle(), 1, &info, nullptr, &pipeline);
  vk.DestroyShaderModule(context_->device(), module, nullptr);
  RONDO_RETURN_IF_ERROR(context_->check(result, name_of(shader)));
  return pipeline;
}

}  // namespace rondo::devices::vulkan
