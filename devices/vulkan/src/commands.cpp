#include "commands.h"

#include <utility>

#include "rondo/base/status.h"

namespace rondo::devices::vulkan {

Commands::~Commands() {
  if (pool_ != VK_NULL_HANDLE) context_->functions().DestroyCommandPool(context_->device(), pool_, nullptr);
}

absl::Status Commands::make(std::shared_ptr<Context> context, std::uint32_t family, Use use) {
  context_ = std::move(context);
  use_ = use;
  const DeviceFunctions& vk = context_->functions();
  VkCommandPoolCreateInfo pool{};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  if (use == Use::kOnce) pool.flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT;
  pool.queueFamilyIndex = family;
  RONDO_RETURN_IF_ERROR(
      context_->check(vk.CreateCommandPool(context_->device(), &pool, nullptr, &pool_), "making a command pool"));
  VkCommandBufferAllocateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  info.commandPool = pool_;
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  return context_->check(vk.AllocateCommandBuffers(context_->device(), &info, &commands_), "making a command buffer");
}

absl::Status Commands::begin(const char* what) {
  const DeviceFunctions& vk = context_->functions();
  RONDO_RETURN_IF_ERROR(context_->check(vk.ResetCommandPool(context_->device(), pool_, 0), what));
  VkCommandBufferBeginInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  if (use_ == Use::kOnce) info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  return context_->check(vk.BeginCommandBuffer(commands_, &info), what);
}

absl::Status Commands::end(const char* what) {
  return context_->check(context_->functions().EndCommandBuffer(commands_), what);
}

}  // namespace rondo::devices::vulkan
