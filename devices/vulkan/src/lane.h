// What moves bytes for one logical queue: a command buffer that is recorded anew for each copy, and staging memory.
//
// Thread rule: used by one thread at a time, that of its host queue. Nothing allocates after make().
#pragma once

#include <memory>

#include "commands.h"
#include "context.h"
#include "rondo/devices/device.h"

namespace rondo::devices::vulkan {

/// Recorded commands begin and end with these, so that what ran before is seen and what they wrote can be.
void begin_barrier(const DeviceFunctions& vk, VkCommandBuffer commands);
void compute_barrier(const DeviceFunctions& vk, VkCommandBuffer commands);
void end_barrier(const DeviceFunctions& vk, VkCommandBuffer commands);

class Lane {
 public:
  static absl::StatusOr<std::unique_ptr<Lane>> make(std::shared_ptr<Context> context, HardwareQueue& queue);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// At least one side is memory of this card, the other may be the host's.
  absl::Status copy(BufferView from, BufferView to);
  absl::Status clear(BufferView view);
  absl::Status copy_blocks(const Block& from, Bytes from_offset, const Block& to, Bytes to_offset, Bytes size);

 private:
  Lane(std::shared_ptr<Context> context, HardwareQueue& queue) : context_(std::move(context)), queue_(queue) {}
  absl::Status prepare();
  absl::Status begin();
  absl::Status finish();
  absl::Status copy_buffers(VkBuffer from, Bytes from_offset, const Block& to, Bytes to_offset, Bytes size);
  absl::Status upload(BufferView from, const Block& to, Bytes offset);
  absl::Status download(const Block& from, Bytes offset, std::byte* to, Bytes size);

  const std::shared_ptr<Context> context_;
  HardwareQueue& queue_;
  Block staging_;  // empty where the host reaches the card's memory both ways
  Block zeros_;    // for the ends of a clear() that are no whole words
  Commands commands_;
};

}  // namespace rondo::devices::vulkan
