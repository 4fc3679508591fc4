// Behind context.h: choosing queues and kinds of memory by what the card says it can do.
#include "context.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "find_matrix_units.h"
#include "panel_size.h"
#include "rondo/base/status.h"

namespace rondo::devices::vulkan {
namespace {

constexpr std::size_t kMostQueues = 3;
constexpr Bytes kWorthCopying = 1_MiB;
constexpr VkBufferUsageFlags kBlockUsage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                           VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                           VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;

using QueuePlace = std::pair<std::uint32_t, std::uint32_t>;  // family, index in it

/// Which queues to open: one that computes, then up to two that copy beside it.
std::vector<QueuePlace> choose_queues(const std::vector<VkQueueFamilyProperties>& families) {
  // Families for video and the like may copy too, by whatever they do that with.
  constexpr VkQueueFlags kOfCopies = VK_QUEUE_TRANSFER_BIT | VK_QUEUE_SPARSE_BINDING_BIT | VK_QUEUE_PROTECTED_BIT;
  constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t computing = kNone;
  std::uint32_t copying = kNone;
  for (std::uint32_t i = 0; i < families.size(); ++i) {
    const VkQueueFlags flags = families[i].queueFlags;
    const bool computes = (flags & VK_QUEUE_COMPUTE_BIT) != 0;
    const bool draws = (flags & VK_QUEUE_GRAPHICS_BIT) != 0;
    // A family that does not draw is left alone by whatever shows the desktop.
    if (computes && (computing == kNone || (!draws && (families[computing].queueFlags & VK_QUEUE_GRAPHICS_BIT) != 0))) {
      computing = i;
    }
    const bool only_copies = (flags & VK_QUEUE_TRANSFER_BIT) != 0 && (flags & ~kOfCopies) == 0;
    if (only_copies && copying == kNone) copying = i;
  }
  std::vector<QueuePlace> chosen;
  if (computing == kNone) return chosen;
  chosen.push_back({computing, 0});
  const std::uint32_t family = copying == kNone ? computing : copying;
  const std::uint32_t first = copying == kNone ? 1 : 0;
  for (std::uint32_t i = first; i < families[family].queueCount && chosen.size() < kMostQueues; ++i) {
    chosen.push_back({family, i});
  }
  return chosen;
}

/// Of the `allowed` memory types the one with all of `required` and most of `wished` bits; the first among equals.
/// Types of protected or otherwise special memory are left alone.
std::uint32_t best_type(const VkPhysicalDeviceMemoryProperties& memory, std::uint32_t allowed,
                        VkMemoryPropertyFlags required, VkMemoryPropertyFlags wished, VkMemoryPropertyFlags unwished) {
  constexpr VkMemoryPropertyFlags kSpecial =
      VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT |
      VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD;
  int best = -1000;
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
    const VkMemoryPropertyFlags flags = memory.memoryTypes[i].propertyFlags;
    if ((allowed >> i & 1U) == 0 || (flags & required) != required || (flags & kSpecial) != 0) continue;
    const int score = 2 * __builtin_popcount(flags & wished) - __builtin_popcount(flags & unwished);
    if (score > best) {
      best = score;
      found = i;
    }
  }
  return found;
}

}  // namespace

absl::StatusOr<std::uint64_t> HardwareQueue::submit(std::span<const VkCommandBuffer> commands) {
  RONDO_RETURN_IF_ERROR(context_.lost());
  std::array<VkSemaphore, kMostQueues> semaphores{};
  std::array<std::uint64_t, kMostQueues> values{};
  std::array<VkPipelineStageFlags, kMostQueues> stages{};
  stages.fill(VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
  const auto waits = static_cast<std::uint32_t>(context_.others(*this, semaphores, values));
  const MutexLock lock(mutex_);
  const std::uint64_t value = submitted_ + 1;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const bool last = i + 1 == commands.size();
    VkTimelineSemaphoreSubmitInfo timeline{};
    timeline.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
    timeline.waitSemaphoreValueCount = i == 0 ? waits : 0;
    timeline.pWaitSemaphoreValues = values.data();
    timeline.signalSemaphoreValueCount = last ? 1 : 0;
    timeline.pSignalSemaphoreValues = &value;
    VkSubmitInfo submit{};
    submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    submit.pNext = &timeline;
    submit.waitSemaphoreCount = timeline.waitSemaphoreValueCount;
    submit.pWaitSemaphores = semaphores.data();
    submit.pWaitDstStageMask = stages.data();
    submit.commandBufferCount = 1;
    submit.pCommandBuffers = &commands[i];
    submit.signalSemaphoreCount = timeline.signalSemaphoreValueCount;
    submit.pSignalSemaphores = &semaphore_;
    RONDO_RETURN_IF_ERROR(
        context_.check(context_.functions().QueueSubmit(queue_, 1, &submit, VK_NULL_HANDLE), "submitting work"));
  }
  submitted_ = value;
  return value;
}

absl::Status HardwareQueue::wait(std::uint64_t value) {
  VkSemaphoreWaitInfo wait{};
  wait.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
  wait.semaphoreCount = 1;
  wait.pSemaphores = &semaphore_;
  wait.pValues = &value;
  RONDO_RETURN_IF_ERROR(context_.check(
      context_.functions().WaitSemaphores(context_.device(), &wait, std::numeric_limits<std::uint64_t>::max()),
      "waiting for the card"));
  std::uint64_t seen = completed_.load(std::memory_order_relaxed);
  while (seen < value && !completed_.compare_exchange_weak(seen, value, std::memory_order_release)) {
  }
  return absl::OkStatus();
}

absl::Status HardwareQueue::run(std::span<const VkCommandBuffer> commands) {
  RONDO_ASSIGN_OR_RETURN(const std::uint64_t value, submit(commands));
  return wait(value);
}

absl::Status HardwareQueue::settle() {
  std::uint64_t value = 0;
  {
    const MutexLock lock(mutex_);
    value = submitted_;
  }
  return wait(value);
}

VkBufferCreateInfo Context::buffer_info(Bytes size, VkBufferUsageFlags usage) const {
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.size = size;
  info.usage = usage;
  info.sharingMode = families_.size() > 1 ? VK_SHARING_MODE_CONCURRENT : VK_SHARING_MODE_EXCLUSIVE;
  info.queueFamilyIndexCount = static_cast<std::uint32_t>(families_.size());
  info.pQueueFamilyIndices = families_.data();
  return info;
}

absl::Status Context::check_at_once(Bytes size, Bytes most) const {
  if (size <= most) return absl::OkStatus();
  return resource_exhausted("{}: a block of {} ({} bytes) asked, the driver gives at most {} at once", name_,
                            format_bytes(size), size, most);
}

absl::Status Context::make_block(Bytes size, Block::Kind kind, DriverBlock& block) {
  const DeviceFunctions& vk = functions_;
  block.size = size;
  RONDO_RETURN_IF_ERROR(check_at_once(size, card_.most_bytes_at_once));
  VkBufferCreateInfo info = buffer_info(size, kBlockUsage);
  if (kind == Block::Kind::kTexels) info.usage |= VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT;
  RONDO_RETURN_IF_ERROR(check(vk.CreateBuffer(device_, &info, nullptr, &block.buffer), "making a buffer"));
  VkMemoryRequirements needs{};
  vk.GetBufferMemoryRequirements(device_, block.buffer, &needs);
  VkMemoryAllocateFlagsInfo flags{};
  flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo allocation{};
  allocation.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  allocation.pNext = &flags;
  allocation.allocationSize = needs.size;
  allocation.memoryTypeIndex = kind == Block::Kind::kStaging ? staging_type_ : device_type_;
  const VkResult result = allocate(allocation, block.memory);
  if (result != VK_SUCCESS) {
    const std::uint32_t heap = card_.memory.memoryTypes[allocation.memoryTypeIndex].heapIndex;
    return resource_exhausted("{}: the driver refused {} ({} bytes; {}), {} bytes free of {}", name_,
                              format_bytes(size), size, name_of(result), instance_->available_bytes(card_, heap),
                              card_.memory.memoryHeaps[heap].size);
  }
  RONDO_RETURN_IF_ERROR(check(vk.BindBufferMemory(device_, block.buffer, block.memory, 0), "binding memory"));
  block.address = address_of(block.buffer);
  if (kind == Block::Kind::kStaging || host_writes_) {
    void* mapped = nullptr;
    RONDO_RETURN_IF_ERROR(check(vk.MapMemory(device_, block.memory, 0, VK_WHOLE_SIZE, 0, &mapped), "mapping memory"));
    block.host = static_cast<std::byte*>(mapped);
  }
  return absl::OkStatus();
}

/// `memory` is null where that fails.
VkResult Context::allocate(const VkMemoryAllocateInfo& info, VkDeviceMemory& memory) {
  allocations_.fetch_add(1, std::memory_order_relaxed);
  const VkResult result = functions_.AllocateMemory(device_, &info, nullptr, &memory);
  if (result != VK_SUCCESS) {
    memory = VK_NULL_HANDLE;
  } else {
    held_.fetch_add(1, std::memory_order_relaxed);
  }
  return result;
}

VkDeviceAddress Context::address_of(VkBuffer buffer) const {
  VkBufferDeviceAddressInfo asked{};
  asked.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
  asked.buffer = buffer;
  return functions_.GetBufferDeviceAddress(device_, &asked);
}

void Context::free_block(DriverBlock& block) {
  if (block.buffer != VK_NULL_HANDLE) functions_.DestroyBuffer(device_, block.buffer, nullptr);
  if (block.memory != VK_NULL_HANDLE) {
    functions_.FreeMemory(device_, block.memory, nullptr);  // unmaps as well
    held_.fetch_sub(1, std::memory_order_relaxed);
  }
  block = DriverBlock{};
}

absl::StatusOr<std::shared_ptr<Context>> Context::make(std::shared_ptr<Instance> instance, Card card, std::string name,
                                                       HostAccess access) {
  auto context = std::shared_ptr<Context>(new Context(std::move(instance), std::move(card), std::move(name), access));
  RONDO_RETURN_IF_ERROR(context->open());
  return context;
}

absl::Status Context::open() {
  const std::vector<QueuePlace> places = choose_queues(card_.queue_families);
  if (places.empty()) return unimplemented("{}: {} has no queue that computes", name_, card_.info.name);
  RONDO_RETURN_IF_ERROR(create_device(places));
  std::set<std::uint32_t> families;
  for (const auto& [family, index] : places) {
    families.insert(family);
    VkQueue queue = VK_NULL_HANDLE;
    functions_.GetDeviceQueue(device_, family, index, &queue);
    VkSemaphoreTypeCreateInfo type{};
    type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkSemaphoreCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
    info.pNext = &type;
    VkSemaphore semaphore = VK_NULL_HANDLE;
    RONDO_RETURN_IF_ERROR(
        check(functions_.CreateSemaphore(device_, &info, nullptr, &semaphore), "making a timeline semaphore"));
    queues_.push_back(std::make_unique<HardwareQueue>(*this, family, queue, semaphore));
  }
  families_.assign(families.begin(), families.end());
  up_ = queues_.size() > 1 ? 1 : 0;
  down_ = queues_.size() - 1;
  return choose_memory();
}

absl::Status Context::create_device(const std::vector<QueuePlace>& places) {
  const std::array<float, kMostQueues> priorities = {1.0F, 1.0F, 1.0F};
  std::vector<VkDeviceQueueCreateInfo> queues;
  for (const auto& [family, index] : places) {
    const std::uint32_t wanted = family;
    const auto same = [wanted](const VkDeviceQueueCreateInfo& info) { return info.queueFamilyIndex == wanted; };
    auto found = std::find_if(queues.begin(), queues.end(), same);
    if (found == queues.end()) {
      VkDeviceQueueCreateInfo info{};
      info.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
      info.queueFamilyIndex = family;
      info.pQueuePriorities = priorities.data();
      found = queues.insert(queues.end(), info);
    }
    found->queueCount = std::max(found->queueCount, index + 1);
  }
  VkPhysicalDeviceVulkan12Features features12{};
  features12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  features12.bufferDeviceAddress = VK_TRUE;
  features12.timelineSemaphore = VK_TRUE;
  features12.scalarBlockLayout = VK_TRUE;
  VkPhysicalDeviceVulkan11Features features11{};
  features11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  features11.pNext = &features12;
  features11.storageBuffer16BitAccess = VK_TRUE;
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics{};
  statistics.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR;
  statistics.pipelineExecutableInfo = VK_TRUE;
  if (card_.tells_statistics) features12.pNext = &statistics;
  VkPhysicalDeviceFeatures2 features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &features11;
  features.features.shaderInt64 = VK_TRUE;
  features.features.shaderFloat64 = card_.has_doubles ? VK_TRUE : VK_FALSE;
  UnitFeatures units(card_.matrix_units);
  features12.shaderFloat16 = card_.matrix_units.there() ? VK_TRUE : VK_FALSE;
  features12.vulkanMemoryModel = features12.shaderFloat16;
  features12.vulkanMemoryModelDeviceScope = features12.shaderFloat16;  // barriers of other kernels
  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = units.before(&features);
  info.queueCreateInfoCount = static_cast<std::uint32_t>(queues.size());
  info.pQueueCreateInfos = queues.data();
  std::vector<const char*> extensions;
  if (card_.has_memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (card_.import_grain > 0) extensions.push_back(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  if (card_.tells_statistics) extensions.push_back(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
  units.add_extensions(extensions);
  info.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  const InstanceFunctions& vk = instance_->functions();
  if (const VkResult result = vk.CreateDevice(card_.handle, &info, nullptr, &device_); result != VK_SUCCESS) {
    device_ = VK_NULL_HANDLE;
    return absl::UnavailableError(fmt::format("{}: {} ({}) cannot be opened: {}; is another program holding it?", name_,
                                              card_.info.name, card_.info.driver, name_of(result)));
  }
  return load_functions(vk, device_, functions_);
}

/// The memory types that blocks for kernels can have, as a bit each: the same whatever their size (Vulkan 1.2, 12.7).
absl::StatusOr<std::uint32_t> Context::types_for_blocks() {
  const VkBufferCreateInfo info = buffer_info(64, kBlockUsage | VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT);
  VkBuffer buffer = VK_NULL_HANDLE;
  RONDO_RETURN_IF_ERROR(check(functions_.CreateBuffer(device_, &info, nullptr, &buffer), "making a buffer"));
  VkMemoryRequirements needs{};
  functions_.GetBufferMemoryRequirements(device_, buffer, &needs);
  functions_.DestroyBuffer(device_, buffer, nullptr);
  return needs.memoryTypeBits;
}

absl::Status Context::choose_memory() {
  constexpr VkMemoryPropertyFlags kMapped = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  const auto flags = [this](std::uint32_t type) { return card_.memory.memoryTypes[type].propertyFlags; };
  const auto heap = [this](std::uint32_t type) {
    return card_.memory.memoryHeaps[card_.memory.memoryTypes[type].heapIndex].size;
  };
  RONDO_ASSIGN_OR_RETURN(const std::uint32_t allowed, types_for_blocks());
  // The host's own access is worth having only where it reaches all of the card's memory, not a window of it.
  device_type_ = best_type(card_.memory, allowed, kLocal, 0, kMapped | kCached);
  const std::uint32_t mapped = best_type(card_.memory, allowed, kLocal | kMapped, kCached, 0);
  if ((flags(mapped) & (kLocal | kMapped)) == (kLocal | kMapped) && heap(mapped) >= heap(device_type_)) {
    device_type_ = mapped;
  }
  host_writes_ = (flags(device_type_) & kMapped) == kMapped && access_.reaches;
  host_reads_ = host_writes_ && (flags(device_type_) & kCached) != 0;
  staging_type_ = best_type(card_.memory, allowed, kMapped, kCached, kLocal);
  // Over a bus the host writes at the speed of one thread that waits for it; a queue for copies alone leaves that
  // thread to others, at the price of a submission.
  const bool copies_beside = families_.size() > 1 && !card_.info.software && !card_.info.integrated;
  card_copies_from_ = access_.card_copies_from.value_or(copies_beside ? kWorthCopying : ~Bytes{0});
  return absl::OkStatus();
}

void Context::gather(Bytes needed) {
  constexpr Bytes kBeside = 512_MiB;  // for the panel, tables and what programs share
  if (!card_.fetches_panels) return;
  const Bytes size = std::min({card_.memory.memoryHeaps[device_heap()].size, card_.most_bytes_at_once,
                               Bytes{card_.limits.maxTexelBufferElements} * kTexelBytes}) /
                     Pieces::kGrain * Pieces::kGrain;
  if (size < kBeside || needed > size - kBeside) return;
  DriverBlock block;
  if (make_block(size, Block::Kind::kTexels, block).ok()) {
    gathered_ = std::make_unique<SharedBlock>(block, nullptr);
  } else {
    free_block(block);  // one by one, then
  }
}

Context::~Context() {
  if (device_ != VK_NULL_HANDLE && functions_.DestroyDevice != nullptr) {
    if (!lost_.load(std::memory_order_relaxed)) functions_.DeviceWaitIdle(device_);
    if (gathered_ != nullptr) free_block(gathered_->driver);
    small_staging_.free_all(*this);
    small_device_.free_all(*this);
    for (const auto& queue : queues_) functions_.DestroySemaphore(device_, queue->semaphore(), nullptr);
    functions_.DestroyDevice(device_, nullptr);
  }
}

std::size_t Context::others(const HardwareQueue& own, std::span<VkSemaphore> semaphores,
                            std::span<std::uint64_t> values) const {
  std::size_t count = 0;
  for (const auto& queue : queues_) {
    if (queue.get() == &own) continue;
    semaphores[count] = queue->semaphore();
    values[count++] = queue->completed();
  }
  return count;
}

absl::Status Context::check(VkResult result, const char* what) {
  if (result == VK_SUCCESS) return absl::OkStatus();
  if (result == VK_ERROR_DEVICE_LOST) {
    lost_.store(true, std::memory_order_relaxed);
    return lost();
  }
  if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY) {
    return resource_exhausted("{}: {} failed: {}; lower memory_limit of {} or close other programs", name_, what,
                              name_of(result), name_);
  }
  return internal_error("{}: {} failed: {}", name_, what, name_of(result));
}

absl::Status Context::lost() const {
  if (!lost_.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::UnavailableError(
      fmt::format("{}: the driver has lost the card {} (VK_ERROR_DEVICE_LOST); see the kernel's log (dmesg) for why; "
                  "the run can go on without it, from its last checkpoint",
                  name_, card_.info.name));
}

}  // namespace rondo::devices::vulkan
