// What moves bytes for one logical queue: command buffers that are recorded anew for each copy, and staging memory, of
// which the host fills or reads one half while the card copies the other.
//
// Thread rule: used by one thread at a time, that of its host queue. Nothing allocates after make().
#pragma once

#include <array>
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

 private:
  Lane(std::shared_ptr<Context> context, HardwareQueue& queue) : context_(std::move(context)), queue_(queue) {}
  absl::Status prepare();
  struct Half {
    Commands commands;
    Bytes begin = 0;          // in staging_
    std::uint64_t value = 0;  // of what is under way, 0 for nothing
  };
  absl::Status begin(Half& half);
  absl::Status submit(Half& half);
  absl::Status settle(Half& half);
  absl::Status start(Half& half, VkBuffer from, VkBuffer to, const VkBufferCopy& region);
  absl::Status copy_blocks(const Block& from, Bytes from_offset, const Block& to, Bytes to_offset, Bytes size);
  absl::Status copy_buffers(VkBuffer from, Bytes from_offset, const Block& to, Bytes to_offset, Bytes size);
  absl::Status upload(BufferView from, const Block& to, Bytes offset);
  absl::Status download(const Block& from, Bytes offset, std::byte* to, Bytes size);
  Half& half_of(Bytes done);
  absl::Status stage_up(const std::byte* from, const Block& to, Bytes offset, Bytes size);
  absl::Status stage_down(const Block& from, Bytes offset, std::byte* to, Bytes size);

  const std::shared_ptr<Context> context_;
  HardwareQueue& queue_;
  Block staging_;               // empty where the host reaches the card's memory both ways
  Block zeros_;                 // for the ends of a clear() that are no whole words
  std::array<Half, 2> halves_;  // nothing is under way in either between copies
};

}  // namespace rondo::devices::vulkan
