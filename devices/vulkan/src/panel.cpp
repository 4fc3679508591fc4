// Behind panel.h.
#include "panel.h"

#include <cstring>

#include "rondo/base/status.h"

namespace rondo::devices::vulkan {

absl::StatusOr<std::unique_ptr<Panel>> Panel::make(std::shared_ptr<Context> context) {
  auto panel = std::unique_ptr<Panel>(new Panel(std::move(context)));
  RONDO_RETURN_IF_ERROR(panel->prepare());
  return panel;
}

Panel::~Panel() {
  const DeviceFunctions& vk = context_->functions();
  const VkDevice device = context_->device();
  if (pool_ != VK_NULL_HANDLE) vk.DestroyDescriptorPool(device, pool_, nullptr);  // and its set
  if (set_layout_ != VK_NULL_HANDLE) vk.DestroyDescriptorSetLayout(device, set_layout_, nullptr);
  if (view_ != VK_NULL_HANDLE) vk.DestroyBufferView(device, view_, nullptr);
}

void Panel::hold(Bytes bytes) {
  if (bytes <= held_ || block_.host() == nullptr) return;
  std::memset(block_.host() + held_, 0, bytes - held_);
  held_ = bytes;
}

absl::Status Panel::prepare() {
  const DeviceFunctions& vk = context_->functions();
  const VkDevice device = context_->device();
  RONDO_ASSIGN_OR_RETURN(block_, Block::make(context_, kPanelBytes, Block::Kind::kTexels));
  VkBufferViewCreateInfo view{};
  view.sType = VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO;
  view.buffer = block_.buffer();
  view.format = VK_FORMAT_R32G32B32A32_SFLOAT;
  view.range = VK_WHOLE_SIZE;
  RONDO_RETURN_IF_ERROR(
      context_->check(vk.CreateBufferView(device, &view, nullptr, &view_), "making a view of the panel"));
  constexpr VkDescriptorType kType = VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER;
  const VkDescriptorSetLayoutBinding binding{0, kType, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
  VkDescriptorSetLayoutCreateInfo layout{};
  layout.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
  layout.bindingCount = 1;
  layout.pBindings = &binding;
  RONDO_RETURN_IF_ERROR(context_->check(vk.CreateDescriptorSetLayout(device, &layout, nullptr, &set_layout_),
                                        "making the panel's descriptors"));
  const VkDescriptorPoolSize size{kType, 1};
  VkDescriptorPoolCreateInfo pool{};
  pool.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
  pool.maxSets = 1;
  pool.poolSizeCount = 1;
  pool.pPoolSizes = &size;
  RONDO_RETURN_IF_ERROR(
      context_->check(vk.CreateDescriptorPool(device, &pool, nullptr, &pool_), "making the panel's descriptors"));
  VkDescriptorSetAllocateInfo allocation{};
  allocation.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
  allocation.descriptorPool = pool_;
  allocation.descriptorSetCount = 1;
  allocation.pSetLayouts = &set_layout_;
  RONDO_RETURN_IF_ERROR(
      context_->check(vk.AllocateDescriptorSets(device, &allocation, &set_), "making the panel's descriptors"));
  VkWriteDescriptorSet write{};
  write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
  write.dstSet = set_;
  write.descriptorCount = 1;
  write.descriptorType = kType;
  write.pTexelBufferView = &view_;
  vk.UpdateDescriptorSets(device, 1, &write, 0, nullptr);
  return absl::OkStatus();
}

}  // namespace rondo::devices::vulkan
