// Behind lane.h: the host copies by itself where it can address the card's memory, else through staging memory.
#include "lane.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "imported.h"
#include "memory.h"
#include "rondo/base/status.h"

namespace rondo::devices::vulkan {
namespace {

constexpr Bytes kPart = 2_MiB;  // of staging memory, half
constexpr Bytes kWord = 4;      // what vkCmdFillBuffer fills

void barrier(const DeviceFunctions& vk, VkCommandBuffer commands, VkPipelineStageFlags from, VkAccessFlags written,
             VkPipelineStageFlags to, VkAccessFlags access) {
  VkMemoryBarrier memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  memory.srcAccessMask = written;
  memory.dstAccessMask = access;
  vk.CmdPipelineBarrier(commands, from, to, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

}  // namespace

void begin_barrier(const DeviceFunctions& vk, VkCommandBuffer commands) {
  barrier(vk, commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_WRITE_BIT,
          VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
}

void compute_barrier(const DeviceFunctions& vk, VkCommandBuffer commands) {
  constexpr VkAccessFlags kAll = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
  barrier(vk, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
          VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, kAll);
}

void end_barrier(const DeviceFunctions& vk, VkCommandBuffer commands) {
  barrier(vk, commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_WRITE_BIT, VK_PIPELINE_STAGE_HOST_BIT,
          VK_ACCESS_HOST_READ_BIT);
}

absl::StatusOr<std::unique_ptr<Lane>> Lane::make(std::shared_ptr<Context> context, HardwareQueue& queue) {
  auto lane = std::unique_ptr<Lane>(new Lane(std::move(context), queue));
  RONDO_RETURN_IF_ERROR(lane->prepare());
  return lane;
}

absl::Status Lane::prepare() {
  for (std::size_t i = 0; i < halves_.size(); ++i) {
    halves_[i].begin = i * kPart;
    RONDO_RETURN_IF_ERROR(halves_[i].commands.make(context_, queue_.family(), Commands::Use::kOnce));
  }
  if (!context_->host_writes_device() || !context_->host_reads_device()) {
    RONDO_ASSIGN_OR_RETURN(staging_, Block::make(context_, halves_.size() * kPart, Block::Kind::kStaging));
  }
  RONDO_ASSIGN_OR_RETURN(zeros_, Block::make_small(context_, kWord, Block::Kind::kStaging));
  std::memset(zeros_.host(), 0, zeros_.size());
  return absl::OkStatus();
}

absl::Status Lane::begin(Half& half) {
  RONDO_RETURN_IF_ERROR(half.commands.begin("recording a copy"));
  begin_barrier(context_->functions(), half.commands.get());
  return absl::OkStatus();
}

absl::Status Lane::submit(Half& half) {
  end_barrier(context_->functions(), half.commands.get());
  RONDO_RETURN_IF_ERROR(half.commands.end("recording a copy"));
  RONDO_ASSIGN_OR_RETURN(half.value, queue_.submit(std::array{half.commands.get()}));
  return absl::OkStatus();
}

/// Waits for what is under way.
absl::Status Lane::settle(Half& half) {
  const std::uint64_t value = std::exchange(half.value, 0);
  return value == 0 ? absl::OkStatus() : queue_.wait(value);
}

absl::Status Lane::start(Half& half, VkBuffer from, VkBuffer to, const VkBufferCopy& region) {
  RONDO_RETURN_IF_ERROR(begin(half));
  context_->functions().CmdCopyBuffer(half.commands.get(), from, to, 1, &region);
  return submit(half);
}

absl::Status Lane::copy_blocks(const Block& from, Bytes from_offset, const Block& to, Bytes to_offset, Bytes size) {
  return copy_buffers(from.buffer(), from.begin() + from_offset, to, to_offset, size);
}

absl::Status Lane::copy_buffers(VkBuffer from, Bytes from_offset, const Block& to, Bytes to_offset, Bytes size) {
  RONDO_RETURN_IF_ERROR(start(halves_[0], from, to.buffer(), {from_offset, to.begin() + to_offset, size}));
  return settle(halves_[0]);
}

Lane::Half& Lane::half_of(Bytes done) { return halves_[done / kPart % halves_.size()]; }

absl::Status Lane::stage_up(const std::byte* from, const Block& to, Bytes offset, Bytes size) {
  absl::Status status;
  for (Bytes done = 0; status.ok() && done < size; done += kPart) {
    Half& half = half_of(done);
    status = settle(half);
    if (!status.ok()) break;
    const Bytes part = std::min(kPart, size - done);
    std::memcpy(staging_.host() + half.begin, from + done, part);
    status =
        start(half, staging_.buffer(), to.buffer(), {staging_.begin() + half.begin, to.begin() + offset + done, part});
  }
  for (Half& half : halves_) status.Update(settle(half));
  return status;
}

absl::Status Lane::stage_down(const Block& from, Bytes offset, std::byte* to, Bytes size) {
  const auto read = [&](Bytes done) {
    Half& half = half_of(done);
    RONDO_RETURN_IF_ERROR(settle(half));
    std::memcpy(to + done, staging_.host() + half.begin, std::min(kPart, size - done));
    return absl::OkStatus();
  };
  absl::Status status;
  for (Bytes done = 0; status.ok() && done < size + kPart; done += kPart) {
    if (done < size) {
      Half& half = half_of(done);
      status = start(half, from.buffer(), staging_.buffer(),
                     {from.begin() + offset + done, staging_.begin() + half.begin, std::min(kPart, size - done)});
    }
    if (status.ok() && done >= kPart) status = read(done - kPart);
  }
  for (Half& half : halves_) status.Update(settle(half));
  return status;
}

absl::Status Lane::upload(BufferView from, const Block& to, Bytes offset) {
  const Bytes size = from.size;
  const Imported* const imported = context_->card_copies(size) ? Imported::of(*from.memory, *context_) : nullptr;
  if (imported != nullptr) {
    for (Bytes done = 0; done < size;) {
      const Imported::Part part = imported->part(from.host() + done, size - done);
      RONDO_RETURN_IF_ERROR(copy_buffers(part.buffer, part.offset, to, offset + done, part.size));
      done += part.size;
    }
    return absl::OkStatus();
  }
  if (to.host() != nullptr && context_->host_writes_device()) {
    std::memcpy(to.host() + offset, from.host(), size);
    return context_->lost();
  }
  return stage_up(from.host(), to, offset, size);
}

absl::Status Lane::download(const Block& from, Bytes offset, std::byte* to, Bytes size) {
  if (from.host() != nullptr && context_->host_reads_device()) {
    std::memcpy(to, from.host() + offset, size);
    return context_->lost();
  }
  return stage_down(from, offset, to, size);
}

absl::Status Lane::copy(BufferView from, BufferView to) {
  RONDO_RETURN_IF_ERROR(context_->lost());
  const Block* source = block_of(from, *context_);
  const Block* target = block_of(to, *context_);
  if (source != nullptr && target != nullptr) return copy_blocks(*source, from.offset, *target, to.offset, to.size);
  if (target != nullptr && from.host() != nullptr) {
    const Block* pinned = block_of(from, *context_, true);
    if (pinned != nullptr && context_->card_copies(to.size)) {
      return copy_blocks(*pinned, from.offset, *target, to.offset, to.size);
    }
    return upload(from, *target, to.offset);
  }
  if (source != nullptr && to.host() != nullptr) {
    const Block* pinned = block_of(to, *context_, true);
    if (pinned != nullptr && !context_->host_reads_device()) {
      return copy_blocks(*source, from.offset, *pinned, to.offset, to.size);
    }
    return download(*source, from.offset, to.host(), to.size);
  }
  if (source == nullptr && target == nullptr) return internal_error("neither side of the copy is memory of this card");
  return internal_error("the other side of the copy is memory of another card, or not within it");
}

absl::Status Lane::clear(BufferView view) {
  RONDO_RETURN_IF_ERROR(context_->lost());
  const Block* block = block_of(view, *context_);
  if (block == nullptr) return internal_error("what is to be cleared is not memory of this card");
  if (view.size == 0) return absl::OkStatus();
  const DeviceFunctions& vk = context_->functions();
  const Bytes end = view.offset + view.size;
  const Bytes first = std::min(round_up(view.offset, kWord), end);
  const Bytes last = std::max(first, end / kWord * kWord);
  Half& half = halves_[0];
  RONDO_RETURN_IF_ERROR(begin(half));
  if (last > first) vk.CmdFillBuffer(half.commands.get(), block->buffer(), block->begin() + first, last - first, 0);
  for (const auto& [from, to] : {std::pair{view.offset, first}, std::pair{last, end}}) {
    if (to <= from) continue;
    const VkBufferCopy region{zeros_.begin(), block->begin() + from, to - from};
    vk.CmdCopyBuffer(half.commands.get(), zeros_.buffer(), block->buffer(), 1, &region);
  }
  RONDO_RETURN_IF_ERROR(submit(half));
  return settle(half);
}

}  // namespace rondo::devices::vulkan
