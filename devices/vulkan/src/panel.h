// The panel: memory that kernels fetch by texels of four floats, where products lay out their operands on processors
// that pose as cards (shaders/panel.comp). One a device, of a fixed size; programs, which run one at a time, share it.
//
// Thread rule: immutable once made, but for hold(), of which there is one caller at a time.
#pragma once

#include <memory>

#include "context.h"
#include "panel_size.h"

namespace rondo::devices::vulkan {

class Panel {
 public:
  /// Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<Panel>> make(std::shared_ptr<Context> context);
  ~Panel();
  Panel(const Panel&) = delete;
  Panel& operator=(const Panel&) = delete;

  /// Makes the first `bytes` resident; what programs may use is so before they run.
  void hold(Bytes bytes);
  VkDeviceAddress address() const { return block_.address(); }
  VkDescriptorSetLayout set_layout() const { return set_layout_; }
  VkDescriptorSet set() const { return set_; }

 private:
  explicit Panel(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  absl::Status prepare();

  const std::shared_ptr<Context> context_;
  Block block_;
  Bytes held_ = 0;
  VkBufferView view_ = VK_NULL_HANDLE;
  VkDescriptorSetLayout set_layout_ = VK_NULL_HANDLE;
  VkDescriptorPool pool_ = VK_NULL_HANDLE;
  VkDescriptorSet set_ = VK_NULL_HANDLE;
};

}  // namespace rondo::devices::vulkan
