// Memory of a Vulkan card as the contract sees it.
#pragma once

#include <memory>

#include "context.h"
#include "rondo/devices/device.h"
#include "rondo/devices/memory_budget.h"

namespace rondo::devices::vulkan {

/// The card's own memory, which only the card addresses even where the host could, or host memory that it copies from
/// and to by itself (pinned; without a budget).
class VulkanMemory final : public Memory {
 public:
  VulkanMemory(Bytes size, Block block, const Context* owner, std::shared_ptr<MemoryBudget> budget)
      : Memory(size, budget == nullptr ? block.host() : nullptr),
        block_(std::move(block)),
        owner_(owner),
        budget_(std::move(budget)) {}
  ~VulkanMemory() override {
    if (budget_ != nullptr) budget_->give_back(size());
  }
  const Block& block() const { return block_; }
  const Context* owner() const { return owner_; }
  bool pinned() const { return budget_ == nullptr; }

 private:
  const Block block_;
  const Context* const owner_;
  const std::shared_ptr<MemoryBudget> budget_;  // shared: memory may outlive its device
};

/// The block behind a view of `owner`'s own memory, else null; `pinned` asks for the other kind.
inline const Block* block_of(const BufferView& view, const Context& owner, bool pinned = false) {
  const auto* memory = dynamic_cast<const VulkanMemory*>(view.memory);
  const bool own = memory != nullptr && memory->owner() == &owner && memory->pinned() == pinned &&
                   view.offset <= memory->size() && view.size <= memory->size() - view.offset;
  return own ? &memory->block() : nullptr;
}

}  // namespace rondo::devices::vulkan
