// Opening a card, loading the kernels, allocating; what the driver's errors mean for it.
#include "context.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "rondo/base/status.h"

namespace rondo::devices::cuda {

absl::StatusOr<std::shared_ptr<Context>> Context::open(const Driver& driver, const KernelImage& image,
                                                       std::uint32_t ordinal) {
  if (image.data == nullptr) {
    return unimplemented("this build has no CUDA kernels: configure it with RONDO_CUDA=ON (preset cuda)");
  }
  RONDO_RETURN_IF_ERROR(status_of(driver, driver.init(0), "cuInit"));
  int version = 0;
  RONDO_RETURN_IF_ERROR(status_of(driver, driver.driver_version(&version), "cuDriverGetVersion"));
  if (version / 1000 < image.toolkit / 1000) {
    return unimplemented("the NVIDIA driver is for CUDA {}.{}, the kernels need {}.0 or later: update the driver",
                         version / 1000, version % 1000 / 10, image.toolkit / 1000);
  }
  int count = 0;
  RONDO_RETURN_IF_ERROR(status_of(driver, driver.device_count(&count), "cuDeviceGetCount"));
  if (ordinal >= static_cast<std::uint32_t>(std::max(count, 0))) {
    return invalid_input("no CUDA card {}: the driver shows {}", ordinal, count);
  }
  DeviceHandle device = 0;
  RONDO_RETURN_IF_ERROR(status_of(driver, driver.device_get(&device, static_cast<int>(ordinal)), "cuDeviceGet"));
  const std::shared_ptr<Context> context(new Context(driver, device));
  RONDO_RETURN_IF_ERROR(context->read_facts());
  RONDO_RETURN_IF_ERROR(
      status_of(driver, driver.context_retain(&context->handle_, device), "cuDevicePrimaryCtxRetain"));
  RONDO_RETURN_IF_ERROR(context->enter());
  RONDO_RETURN_IF_ERROR(context->load(image));
  return context;
}

Context::~Context() {
  if (handle_ == nullptr) return;
  // Of no use to anybody here: the results of taking apart what is given up.
  if (driver_.context_set(handle_) == kSuccess && module_ != nullptr) (void)driver_.module_unload(module_);
  (void)driver_.context_release(device_);
}

absl::Status Context::read_facts() {
  std::array<char, 256> name{};
  RONDO_RETURN_IF_ERROR(check(driver_.device_name(name.data(), 255, device_), "cuDeviceGetName"));
  facts_.name = name.data();
  int integrated = 0;
  for (const auto& [attribute, value] :
       {std::pair{kAttributeMajor, &facts_.major}, std::pair{kAttributeMinor, &facts_.minor},
        std::pair{kAttributeMultiprocessors, &facts_.multiprocessors},
        std::pair{kAttributeCopyEngines, &facts_.copy_engines}, std::pair{kAttributeMostShared, &facts_.most_shared},
        std::pair{kAttributeClockKhz, &facts_.clock_khz}, std::pair{kAttributeMemoryClockKhz, &facts_.memory_clock_khz},
        std::pair{kAttributeMemoryBusBits, &facts_.memory_bus_bits}, std::pair{kAttributeIntegrated, &integrated}}) {
    RONDO_RETURN_IF_ERROR(check(driver_.device_attribute(value, attribute, device_), "cuDeviceGetAttribute"));
  }
  facts_.integrated = integrated != 0;
  return absl::OkStatus();
}

absl::Status Context::load(const KernelImage& image) {
  const Result loaded = driver_.module_load(&module_, image.data);
  if (loaded == kNoBinaryForGpu) {
    return unimplemented("{} is of architecture sm_{}{}, for which the kernels of this build are not compiled ({})",
                         facts_.name, facts_.major, facts_.minor, image.architectures);
  }
  RONDO_RETURN_IF_ERROR(check(loaded, "cuModuleLoadData"));
  facts_.warpgroups = facts_.major == 9 && std::string_view(image.architectures).find("sm_90a") != std::string::npos;
  for (int i = 0; i < kKernels; ++i) {
    const char* entry = entry_of(static_cast<KernelId>(i));
    const Result found = driver_.module_function(&functions_[static_cast<std::size_t>(i)], module_, entry);
    if (found != kSuccess) return with_context(check(found, "cuModuleGetFunction"), entry);
    // These may take as much shared memory as a block can have.
    const auto id = static_cast<KernelId>(i);
    if (!(facts_.warpgroups && is_of_groups(id)) && !is_wide(id)) continue;
    RONDO_RETURN_IF_ERROR(check(
        driver_.function_attribute(functions_[static_cast<std::size_t>(i)], kFunctionMostShared, facts_.most_shared),
        "cuFuncSetAttribute"));
  }
  return absl::OkStatus();
}

absl::Status Context::check(Result result, const char* call) {
  if (result == kSuccess) return absl::OkStatus();
  const absl::Status status = status_of(driver_, result, call);
  if (!is_lost(result)) return status;
  const MutexLock lock(mutex_);
  if (lost_.ok()) lost_ = with_context(status, "the card is lost");
  return lost_;
}

absl::Status Context::lost() const {
  const MutexLock lock(mutex_);
  return lost_;
}

absl::StatusOr<Context::FreeMemory> Context::free_memory() {
  RONDO_RETURN_IF_ERROR(enter());
  std::size_t free = 0;
  std::size_t total = 0;
  RONDO_RETURN_IF_ERROR(check(driver_.memory_info(&free, &total), "cuMemGetInfo"));
  return FreeMemory{free, total};
}

absl::StatusOr<std::unique_ptr<CardMemory>> CardMemory::make(std::shared_ptr<Context> context,
                                                             std::shared_ptr<MemoryBudget> budget, Bytes size) {
  RONDO_RETURN_IF_ERROR(context->lost());
  RONDO_RETURN_IF_ERROR(context->enter());
  if (budget != nullptr) RONDO_RETURN_IF_ERROR(budget->take(size));
  DevicePointer address = 0;
  const Result result = size == 0 ? kSuccess : context->driver().memory_allocate(&address, size);
  if (result != kSuccess) {
    if (budget != nullptr) budget->give_back(size);
    const absl::StatusOr<Context::FreeMemory> memory = context->free_memory();
    const absl::Status status = context->check(result, "cuMemAlloc");
    if (result != kOutOfMemory || !memory.ok()) return status;
    return resource_exhausted("{} bytes asked of {}, {} free of {}: lower memory_limit or end what else uses the card",
                              size, context->facts().name, memory->free, memory->total);
  }
  return std::unique_ptr<CardMemory>(new CardMemory(std::move(context), std::move(budget), size, address));
}

CardMemory::~CardMemory() {
  if (address_ != 0 && context_->enter().ok()) (void)context_->driver().memory_free(address_);
  if (budget_ != nullptr) budget_->give_back(size());
}

absl::StatusOr<std::unique_ptr<PinnedMemory>> PinnedMemory::make(std::shared_ptr<Context> context, Bytes size) {
  RONDO_RETURN_IF_ERROR(context->lost());
  RONDO_RETURN_IF_ERROR(context->enter());
  void* host = nullptr;
  const Result result = context->driver().host_allocate(&host, std::max<Bytes>(size, 1), kHostPortable);
  if (result == kOutOfMemory) return resource_exhausted("{} bytes of pinned host memory cannot be had", size);
  RONDO_RETURN_IF_ERROR(context->check(result, "cuMemHostAlloc"));
  std::memset(host, 0, size);
  return std::unique_ptr<PinnedMemory>(new PinnedMemory(std::move(context), size, static_cast<std::byte*>(host)));
}

PinnedMemory::~PinnedMemory() {
  if (context_->enter().ok()) (void)context_->driver().host_free(host());
}

void PageLocked::lock(const std::shared_ptr<Context>& context, const BufferView& host) {
  /// What is less is copied through memory of the driver's as quickly.
  constexpr Bytes kWorthwhile = 64_KiB;
  if (host.host() == nullptr || host.memory->size() < kWorthwhile || host.memory->tied(context.get()) != nullptr)
    return;
  if (!context->enter().ok()) return;
  // Another card of the pool may have locked it: portable, so that this one knows, too.
  std::byte* const begin = host.memory->host();
  if (context->driver().host_register(begin, host.memory->size(), kHostPortable) != kSuccess) return;
  host.memory->tie(context.get(), std::unique_ptr<PageLocked>(new PageLocked(context, begin)));
}

PageLocked::~PageLocked() {
  if (context_->enter().ok()) (void)context_->driver().host_unregister(begin_);
}

absl::StatusOr<DevicePointer> address_of(const BufferView& view, const Context& context) {
  const auto* memory = dynamic_cast<const CardMemory*>(view.memory);
  if (memory == nullptr || memory->context() != &context) {
    return internal_error("bound to memory that is not this card's");
  }
  return memory->address() + view.offset;
}

}  // namespace rondo::devices::cuda
