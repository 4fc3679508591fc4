// A card opened for use: the logical device, its hardware queues, and blocks of its memory.
//
// Thread rule: everything may be called from any thread. Memory, programs and the device share the context, so that it
// ends with the last of them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "block.h"
#include "instance.h"
#include "rondo/base/mutex.h"
#include "rondo/base/units.h"

namespace rondo::devices::vulkan {

class Context;

/// A VkQueue, and the timeline semaphore that counts what it has completed. Several threads may submit.
class HardwareQueue {
 public:
  HardwareQueue(Context& context, std::uint32_t family, VkQueue queue, VkSemaphore semaphore)
      : context_(context), family_(family), queue_(queue), semaphore_(semaphore) {}

  /// Submits each by itself, in order. Returns what wait() takes. Does not allocate. Errors: Unavailable when the card
  /// is lost.
  absl::StatusOr<std::uint64_t> submit(std::span<const VkCommandBuffer> commands);
  /// Blocks until the card is through with what was submitted as `value`. What that has written can then be seen by the
  /// host and by any later submission. Errors and allocation as submit().
  absl::Status wait(std::uint64_t value);
  /// Both.
  absl::Status run(std::span<const VkCommandBuffer> commands);
  /// Waits for all that was submitted.
  absl::Status settle();
  std::uint32_t family() const { return family_; }
  VkSemaphore semaphore() const { return semaphore_; }
  std::uint64_t completed() const { return completed_.load(std::memory_order_acquire); }

 private:
  Context& context_;
  const std::uint32_t family_;
  const VkQueue queue_;
  const VkSemaphore semaphore_;
  Mutex mutex_;  // of the VkQueue, which wants one caller at a time
  std::uint64_t submitted_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint64_t> completed_{0};
};

class Context {
 public:
  /// What the host does with the card's memory by itself.
  struct HostAccess {
    bool reaches = true;                         // false: nothing, as if it could not
    std::optional<Bytes> card_copies_from = {};  // see VulkanOptions
  };
  static absl::StatusOr<std::shared_ptr<Context>> make(std::shared_ptr<Instance> instance, Card card, std::string name,
                                                       HostAccess access);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const std::string& name() const { return name_; }
  const Card& card() const { return card_; }
  const Instance& instance() const { return *instance_; }
  const DeviceFunctions& functions() const { return functions_; }
  VkDevice device() const { return device_; }

  HardwareQueue& compute() { return *queues_[0]; }
  /// Where copies to (`up`) and from the card run; the compute queue where the card has no others.
  HardwareQueue& transfer(bool up) { return *queues_[up ? up_ : down_]; }
  std::size_t hardware_queues() const { return queues_.size(); }
  /// Semaphores and values of all queues but `own`: waiting for them makes their completed writes visible. Fills at
  /// most the array's four and returns how many.
  std::size_t others(const HardwareQueue& own, std::span<VkSemaphore> semaphores,
                     std::span<std::uint64_t> values) const;

  /// What the host can do with device memory without the card's help.
  bool host_writes_device() const { return host_writes_; }
  bool host_reads_device() const { return host_reads_; }
  /// Whether `size` bytes that the card can read where they lie are for the card to copy, not for the host to write.
  bool card_copies(Bytes size) const { return !host_writes_ || size >= card_copies_from_; }
  /// Device memory is part of this process's own.
  bool memory_in_process() const { return card_.info.software && host_writes_; }
  /// From now on all blocks for kernels are pieces of one buffer, which a view of texels reaches whole, where the card
  /// fetches texels and `needed` bytes (and what programs work in beside them) are no more than such a view reaches.
  /// Before any block is made.
  void gather(Bytes needed);
  /// That buffer; null where every block is one of its own.
  const DriverBlock* gathered() const { return gathered_ == nullptr ? nullptr : &gathered_->driver; }
  /// How often the driver was asked for memory.
  std::size_t allocations() const { return allocations_.load(std::memory_order_relaxed); }
  /// Whether there are so few allocations that one may be had for what can do without: half of what the driver gives is
  /// for blocks.
  bool has_to_spare() const {
    return held_.load(std::memory_order_relaxed) < card_.limits.maxMemoryAllocationCount / 2;
  }

  /// Errors: ResourceExhausted with the numbers where a block of `size` is more than `most`.
  absl::Status check_at_once(Bytes size, Bytes most) const;
  /// The heap of Kind::kDevice.
  std::uint32_t device_heap() const { return card_.memory.memoryTypes[device_type_].heapIndex; }

  /// OK, or the error in words. A lost card is remembered: from then on lost() says so.
  absl::Status check(VkResult result, const char* what);
  absl::Status lost() const;

 private:
  friend class Block;
  friend class SmallBlocks;
  friend class Imported;
  Context(std::shared_ptr<Instance> instance, Card card, std::string name, HostAccess access)
      : instance_(std::move(instance)), card_(std::move(card)), name_(std::move(name)), access_(access) {}
  absl::Status open();
  absl::StatusOr<std::uint32_t> types_for_blocks();
  absl::Status choose_memory();
  VkBufferCreateInfo buffer_info(Bytes size, VkBufferUsageFlags usage) const;
  absl::Status make_block(Bytes size, Block::Kind kind, DriverBlock& block);
  void free_block(DriverBlock& block);
  VkResult allocate(const VkMemoryAllocateInfo& info, VkDeviceMemory& memory);
  VkDeviceAddress address_of(VkBuffer buffer) const;
  absl::Status create_device(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& queues);

  const std::shared_ptr<Instance> instance_;
  const Card card_;
  const std::string name_;
  const HostAccess access_;
  VkDevice device_ = VK_NULL_HANDLE;
  DeviceFunctions functions_;
  std::vector<std::unique_ptr<HardwareQueue>> queues_;  // the first computes
  std::size_t up_ = 0;
  std::size_t down_ = 0;
  std::vector<std::uint32_t> families_;
  std::uint32_t device_type_ = 0;
  std::uint32_t staging_type_ = 0;
  bool host_writes_ = false;
  bool host_reads_ = false;
  Bytes card_copies_from_ = 0;
  std::unique_ptr<SharedBlock> gathered_;
  SmallBlocks small_staging_{Block::Kind::kStaging};
  SmallBlocks small_device_{Block::Kind::kDevice};
  // Relaxed: they order nothing.
  std::atomic<std::size_t> allocations_{0};
  std::atomic<std::size_t> held_{0};  // of them
  std::atomic<bool> lost_{false};
};

}  // namespace rondo::devices::vulkan
