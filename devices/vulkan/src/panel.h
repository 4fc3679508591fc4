// The panel: memory that kernels fetch by texels of four floats, where products lay out their operands on processors
// that pose as cards (shaders/products/panel.comp). One a device, of a fixed size; programs, which run one at a time,
// share it. Where the context has gathered all memory into one buffer, kernels fetch any tensor by a second view, of
// all of it.
//
// Thread rule: immutable once made, but for hold(), of which there is one caller at a time.
#pragma once

#include <array>
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
  /// What the second view begins with: all memory, or the panel where memory is not gathered.
  VkDeviceAddress first_fetched() const;
  bool fetches_all() const { return context_->gathered() != nullptr; }
  VkDescriptorSetLayout set_layout() const { return set_layout_; }
  VkDescriptorSet set() const { return set_; }

 private:
  explicit Panel(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  absl::Status prepare();
  absl::Status make_views();

  const std::shared_ptr<Context> context_;
  Block block_;
  Bytes held_ = 0;
  std::array<VkBufferView, 2> views_ = {};  // of the panel, of all memory
  VkDescriptorSetLayout set_layout_ = VK_NULL_HANDLE;
  VkDescriptorPool pool_ = VK_NULL_HANDLE;
  VkDescriptorSet set_ = VK_NULL_HANDLE;
};

}  // namespace rondo::devices::vulkan
