// A compiled OpList: command buffers recorded once, replayed with other addresses in its table.
//
// Thread rule: begin() and finish() are called by one thread, the device sees to it.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "commands.h"
#include "context.h"
#include "lowering.h"
#include "pipelines.h"
#include "rondo/devices/device.h"
#include "submissions.h"

namespace rondo::devices::vulkan {

class VulkanProgram final : public Program {
 public:
  /// How it is recorded.
  struct Style {
    double most_work = kMostWork;    // of a submission, and of a dispatch
    bool short_submissions = false;  // every dispatch has one of its own
    std::uint32_t parts = 1;         // of every dispatch at least, see Cut
    bool backwards = false;          // what may be under way at the same time, see by_levels()
  };
  /// Errors: Unimplemented naming an op; ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<VulkanProgram>> make(std::shared_ptr<Context> context,
                                                             std::shared_ptr<Pipelines> pipelines, const OpList& list,
                                                             const ArenaLayout& layout, const Style& style);

  const OpList& ops() const override { return list_; }
  const Context* owner() const { return context_.get(); }
  /// As they are recorded: parts count one by one.
  std::size_t dispatches() const { return dispatches_; }
  std::size_t submissions() const { return replays_[0].submitted.size(); }
  /// Memory beyond the arena that its ops work in.
  Bytes workspace_bytes() const { return workspace_bytes_; }
  /// Of the panel, from its beginning.
  Bytes panel_bytes() const { return panel_bytes_; }
  /// Submits, and gives what finish() takes. Two runs of a program at most are under way at a time. Does not allocate.
  /// Errors: Internal naming the tensor that is not bound; Unavailable when the card is lost.
  absl::StatusOr<std::uint64_t> begin(const Bindings& bindings, VkDeviceAddress workspace) const;
  /// Blocks until the card is through. Does not allocate. Errors: Internal naming the token whose id, target or
  /// position is out of range; Unavailable when the card is lost.
  absl::Status finish(std::uint64_t begun) const;

 private:
  VulkanProgram(std::shared_ptr<Context> context, std::shared_ptr<Pipelines> pipelines, const OpList& list,
                const ArenaLayout& layout, const Style& style)
      : context_(std::move(context)), pipelines_(std::move(pipelines)), list_(list), layout_(layout), style_(style) {}
  absl::Status prepare();
  absl::Status place_constants(const Lowering& lowering);
  /// What a run has to itself while it is under way.
  struct Replay {
    Block staging;  // the report, then the table as the host writes it
    Block table;    // the table as kernels read it
    std::vector<std::unique_ptr<Commands>> recorded;
    std::vector<VkCommandBuffer> submitted;  // the same
    std::uint64_t value = 0;                 // of the run that was last submitted
  };
  absl::Status record(std::span<const Dispatch> dispatches, Replay& replay);
  absl::Status record_submission(std::span<const Dispatch> dispatches, const Dispatch* before, bool last,
                                 Replay& replay);
  absl::Status record_dispatch(const Dispatch& dispatch, const Replay& replay, VkCommandBuffer commands,
                               VkPipeline& bound);
  absl::Status bind(const Bindings& bindings, VkDeviceAddress workspace, const Replay& replay) const;
  VkDeviceAddress address_of(const TensorDesc& tensor, const BufferView& view) const;
  static absl::Status report(const Replay& replay);

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
  Block constants_;                        // empty when no op has any
  mutable std::array<Replay, 2> replays_;  // used in turn
  mutable std::size_t next_ = 0;
};

}  // namespace rondo::devices::vulkan
