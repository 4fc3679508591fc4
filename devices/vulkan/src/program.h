// A compiled OpList: command buffers recorded once, replayed with other addresses in its table.
//
// Thread rule: run() is called by one thread at a time, the device sees to it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "commands.h"
#include "context.h"
#include "lowering.h"
#include "pipelines.h"
#include "rondo/devices/device.h"

namespace rondo::devices::vulkan {

class VulkanProgram final : public Program {
 public:
  /// How it is recorded.
  struct Style {
    double most_work = kMostWork;  // of a submission
    bool backwards = false;        // what may be under way at the same time, see by_levels()
  };
  /// Errors: Unimplemented naming an op; ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<VulkanProgram>> make(std::shared_ptr<Context> context,
                                                             std::shared_ptr<Pipelines> pipelines, const OpList& list,
                                                             const ArenaLayout& layout, const Style& style);

  const OpList& ops() const override { return list_; }
  const Context* owner() const { return context_.get(); }
  std::size_t dispatches() const { return dispatches_; }
  /// Memory beyond the arena that its ops work in.
  Bytes workspace_bytes() const { return workspace_bytes_; }
  /// Of the panel, from its beginning.
  Bytes panel_bytes() const { return panel_bytes_; }
  /// Blocks until the card is through. Does not allocate. Errors: Internal naming the tensor that is not bound, or the
  /// token whose id, target or position is out of range; Unavailable when the card is lost.
  absl::Status run(const Bindings& bindings, VkDeviceAddress workspace) const;

 private:
  VulkanProgram(std::shared_ptr<Context> context, std::shared_ptr<Pipelines> pipelines, const OpList& list,
                const ArenaLayout& layout, const Style& style)
      : context_(std::move(context)), pipelines_(std::move(pipelines)), list_(list), layout_(layout), style_(style) {}
  absl::Status prepare();
  absl::Status place_constants(const Lowering& lowering);
  absl::Status record(const Lowering& lowering);
  absl::Status record_submission(std::span<const Dispatch> dispatches);
  absl::Status bind(const Bindings& bindings, VkDeviceAddress workspace) const;
  VkDeviceAddress address_of(const TensorDesc& tensor, const BufferView& view) const;
  absl::Status report() const;

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<Pipelines> pipelines_;
  const OpList list_;
  const ArenaLayout layout_;
  const Style style_;
  std::vector<TensorId> used_;       // tensors that ops name
  std::vector<bool> fetched_;        // by tensor: kernels fetch it by texels
  std::vector<Bytes> pieces_;        // of the workspace
  std::vector<Bytes> constants_at_;  // within constants_
  Bytes workspace_bytes_ = 0;
  Bytes panel_bytes_ = 0;
  std::size_t dispatches_ = 0;
  Block staging_;    // the report, then the table as the host writes it
  Block table_;      // the table as kernels read it
  Block constants_;  // empty when no op has any
  std::vector<std::unique_ptr<Commands>> recorded_;
  std::vector<VkCommandBuffer> submitted_;  // the same
};

}  // namespace rondo::devices::vulkan
