// Behind imported.h.
#include "imported.h"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "rondo/base/status.h"

namespace rondo::devices::vulkan {
namespace {

constexpr VkExternalMemoryHandleTypeFlagBits kHandle = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
/// Below that a copy through pinned memory is as good.
constexpr Bytes kWorthTying = 64_KiB;

constexpr VkBufferUsageFlags kCopies = VK_BUFFER_USAGE_TRANSFER_SRC_BIT;
constexpr VkBufferUsageFlags kKernels =
    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT | kCopies;

Bytes page_size() { return static_cast<Bytes>(::sysconf(_SC_PAGESIZE)); }

/// Of those allowed one whose content both sides see without more; none where there is no such type.
std::optional<std::uint32_t> coherent_type(const VkPhysicalDeviceMemoryProperties& memory, std::uint32_t allowed) {
  for (std::uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
    const bool coherent = (memory.memoryTypes[i].propertyFlags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) != 0;
    if (coherent && (allowed >> i & 1U) != 0) return i;
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Imported> Imported::make(const std::shared_ptr<Context>& context, const Memory& memory, Bytes piece,
                                         VkBufferUsageFlags usage) {
  const Bytes grain = context->card().import_grain;
  const Bytes page = page_size();
  // What begins and ends on pages is the memory's own, or shares them with what nobody touches by it.
  if (grain == 0 || page % grain != 0 || memory.host() == nullptr || piece < page) return nullptr;
  if (context->functions().GetMemoryHostPointerPropertiesEXT == nullptr) return nullptr;
  std::byte* const first = memory.host();
  const Bytes before = reinterpret_cast<std::uintptr_t>(first) % page;
  const Bytes size = round_up(before + memory.size(), page);
  auto imported = std::unique_ptr<Imported>(new Imported(context, first - before));
  imported->piece_ = std::min<Bytes>(size, piece / page * page);
  for (Bytes done = 0; done < size; done += imported->piece_) {
    if (!imported->add(imported->begin_ + done, std::min(imported->piece_, size - done), usage)) return nullptr;
  }
  return imported;
}

void Imported::import(const std::shared_ptr<Context>& context, BufferView host) {
  if (host.host() == nullptr || !context->card_copies(host.size)) return;
  if (host.memory->size() < kWorthTying || of(*host.memory, *context) != nullptr || !context->has_to_spare()) return;
  auto imported = make(context, *host.memory, context->card().most_bytes_at_once, kCopies);
  if (imported != nullptr) host.memory->tie(context.get(), std::move(imported));
}

absl::Status Imported::import_for_kernels(const std::shared_ptr<Context>& context, BufferView host) {
  if (of(*host.memory, *context) != nullptr) return absl::OkStatus();
  auto imported = make(context, *host.memory, context->card().most_bytes_at_once, kKernels);
  // A kernel addresses a tensor as one: it may not lie in two buffers.
  if (imported == nullptr || imported->pieces_.size() > 1) {
    return resource_exhausted(
        "{}: the driver does not let kernels read {} of main memory in place; RONDO_VULKAN_WEIGHTS_IN_PLACE=off copies "
        "weights",
        context->name(), format_bytes(host.memory->size()));
  }
  host.memory->tie(context.get(), std::move(imported));
  return absl::OkStatus();
}

bool Imported::kernels_reach(const std::shared_ptr<Context>& context) {
  const auto page = allocate_host_pages(page_size(), "probing");
  return page.ok() && make(context, *page->view().memory, page_size(), kKernels) != nullptr;
}

const Imported* Imported::of(const Memory& memory, const Context& context) {
  return static_cast<const Imported*>(memory.tied(&context));
}

bool Imported::add(std::byte* from, Bytes size, VkBufferUsageFlags usage) {
  const DeviceFunctions& vk = context_->functions();
  const VkDevice device = context_->device();
  DriverBlock& block = pieces_.emplace_back();
  block.size = size;
  VkExternalMemoryBufferCreateInfo external{};
  external.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO;
  external.handleTypes = kHandle;
  VkBufferCreateInfo info = context_->buffer_info(size, usage);
  info.pNext = &external;
  if (vk.CreateBuffer(device, &info, nullptr, &block.buffer) != VK_SUCCESS) return false;
  VkMemoryRequirements needs{};
  vk.GetBufferMemoryRequirements(device, block.buffer, &needs);
  VkMemoryHostPointerPropertiesEXT pages{};
  pages.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT;
  if (vk.GetMemoryHostPointerPropertiesEXT(device, kHandle, from, &pages) != VK_SUCCESS) return false;
  const auto type = coherent_type(context_->card().memory, needs.memoryTypeBits & pages.memoryTypeBits);
  if (!type || needs.size > size) return false;
  VkImportMemoryHostPointerInfoEXT pointer{};
  pointer.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT;
  pointer.handleType = kHandle;
  pointer.pHostPointer = from;
  const bool addressed = (usage & VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT) != 0;
  VkMemoryAllocateFlagsInfo flags{};
  flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  if (addressed) pointer.pNext = &flags;
  VkMemoryAllocateInfo allocation{};
  allocation.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  allocation.pNext = &pointer;
  allocation.allocationSize = size;
  allocation.memoryTypeIndex = *type;
  if (context_->allocate(allocation, block.memory) != VK_SUCCESS) return false;
  if (vk.BindBufferMemory(device, block.buffer, block.memory, 0) != VK_SUCCESS) return false;
  if (addressed) block.address = context_->address_of(block.buffer);
  return true;
}

Imported::~Imported() {
  for (DriverBlock& block : pieces_) context_->free_block(block);
}

Imported::Part Imported::part(const std::byte* from, Bytes size) const {
  const auto at = static_cast<Bytes>(from - begin_);
  const Bytes within = at % piece_;
  return {pieces_[at / piece_].buffer, within, std::min(size, piece_ - within)};
}

}  // namespace rondo::devices::vulkan
