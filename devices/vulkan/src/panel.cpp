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
  for (const VkBufferView view : views_) {
    if (view != VK_NULL_HANDLE) vk.DestroyBufferView(device, view, nullptr);
  }
}

VkDeviceAddress Panel::first_fetched() const {
  const DriverBlock* all = context_->gathered();
  return all == nullptr ? block_.address() : all->address;
}

absl::Status Panel::make_views() {
  VkBufferViewCreateInfo view{};
  view.sType = VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO;
  view.format = VK_FORMAT_R32G32B32A32_SFLOAT;
  view.buffer = block_.buffer();
  view.offset = block_.begin();
  view.range = kPanelBytes;
  for (VkBufferView& made : views_) {
    RONDO_RETURN_IF_ERROR(
        context_->check(context_->functions().CreateBufferView(context_->device(), &view, nullptr, &made),
                        "making a view of memory by texels"));
    const DriverBlock* all = context_->gathered();
    if (all == nullptr) continue;
    view.offset = 0;
    view.range = all->size;
  }
  return absl::OkStatus();
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
  RONDO_RETURN_IF_ERROR(make_views());
  constexpr VkDescriptorType kType = VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER;
  constexpr VkDescriptorType kWritten = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
  const std::array<VkDescriptorSetLayoutBinding, 3> bindings = {
      VkDescriptorSetLayoutBinding{0, kType, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr},
      VkDescriptorSetLayoutBinding{1, kType, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr},
      VkDescriptorSetLayoutBinding{2, kWritten, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr}};
  VkDescriptorSetLayoutCreateInfo layout{};
  layout.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
  layout.bindingCount = static_cast<std::uint32_t>(bindings.size());
  layout.pBindings = bindings.data();
  RONDO_RETURN_IF_ERROR(context_->check(vk.CreateDescriptorSetLayout(device, &layout, nullptr, &set_layout_),
                                        "making the panel's descriptors"));
  const std::array<VkDescriptorPoolSize, 2> sizes = {
      VkDescriptorPoolSize{kType, static_cast<std::uint32_t>(views_.size())}, VkDescriptorPoolSize{kWritten, 1}};
  VkDescriptorPoolCreateInfo pool{};
  pool.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
  pool.maxSets = 1;
  pool.poolSizeCount = static_cast<std::uint32_t>(sizes.size());
  pool.pPoolSizes = sizes.data();
  RONDO_RETURN_IF_ERROR(
      context_->check(vk.CreateDescriptorPool(device, &pool, nullptr, &pool_), "making the panel's descriptors"));
  VkDescriptorSetAllocateInfo allocation{};
  allocation.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
  allocation.descriptorPool = pool_;
  allocation.descriptorSetCount = 1;
  allocation.pSetLayouts = &set_layout_;
  RONDO_RETURN_IF_ERROR(
      context_->check(vk.AllocateDescriptorSets(device, &allocation, &set_), "making the panel's descriptors"));
  for (std::uint32_t i = 0; i < views_.size(); ++i) {
    VkWriteDescriptorSet write{};
    write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    write.dstSet = set_;
    write.dstBinding = i;
    write.descriptorCount = 1;
    write.descriptorType = kType;
    write.pTexelBufferView = &views_[i];
    vk.UpdateDescriptorSets(device, 1, &write, 0, nullptr);
  }
  const VkDescriptorBufferInfo written{block_.buffer(), block_.begin(), kPanelBytes};
  VkWriteDescriptorSet write{};
  write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
  write.dstSet = set_;
  write.dstBinding = 2;
  write.descriptorCount = 1;
  write.descriptorType = kWritten;
  write.pBufferInfo = &written;
  vk.UpdateDescriptorSets(device, 1, &write, 0, nullptr);
  return absl::OkStatus();
}

}  // namespace rondo::devices::vulkan
