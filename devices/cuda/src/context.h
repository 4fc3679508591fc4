// A card's context, its kernels, and what is allocated in it. Shared by the device and its memory, which may outlive
// it.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "driver.h"
#include "kernels/kernel_ids.h"
#include "rondo/base/mutex.h"
#include "rondo/devices/device.h"
#include "rondo/devices/memory_budget.h"

namespace rondo::devices::cuda {

/// The kernels as they were compiled into the program.
struct KernelImage {
  const void* data = nullptr;  // null: this build has none
  int toolkit = 0;             // 13000: CUDA 13.0
  const char* architectures = "";
};
KernelImage kernel_image();

/// What the driver tells of a card.
struct CardFacts {
  std::string name;
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  int copy_engines = 0;
  int most_shared = 0;      // bytes of a block
  bool warpgroups = false;  // the card multiplies by whole warpgroups, and the kernels that do are compiled
  int clock_khz = 0;
  int memory_clock_khz = 0;
  int memory_bus_bits = 0;
  bool integrated = false;
};

/// Thread-safe. Every call of the driver needs enter() first on its thread.
class Context : public std::enable_shared_from_this<Context> {
 public:
  /// Errors: as open_cuda().
  static absl::StatusOr<std::shared_ptr<Context>> open(const Driver& driver, const KernelImage& image,
                                                       std::uint32_t ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return driver_; }
  const CardFacts& facts() const { return facts_; }
  FunctionHandle function(KernelId kernel) const { return functions_[static_cast<std::size_t>(kernel)]; }

  /// Makes the context the calling thread's.
  absl::Status enter() { return check(driver_.context_set(handle_), "cuCtxSetCurrent"); }
  /// A result of the driver as a status; an error after which the context is gone is remembered.
  absl::Status check(Result result, const char* call);
  /// OK, or the error after which the card was lost. Nothing is sent to a lost card.
  absl::Status lost() const;

  struct FreeMemory {
    Bytes free = 0;
    Bytes total = 0;
  };
  absl::StatusOr<FreeMemory> free_memory();

 private:
  Context(const Driver& driver, DeviceHandle device) : driver_(driver), device_(device) {}
  absl::Status read_facts();
  absl::Status load(const KernelImage& image);

  const Driver& driver_;
  const DeviceHandle device_;
  ContextHandle handle_ = nullptr;
  ModuleHandle module_ = nullptr;
  CardFacts facts_;
  std::array<FunctionHandle, kKernels> functions_{};
  mutable Mutex mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
};

/// Memory of a card.
class CardMemory final : public Memory {
 public:
  /// `budget` may be null (workspace). Errors: ResourceExhausted with the numbers.
  static absl::StatusOr<std::unique_ptr<CardMemory>> make(std::shared_ptr<Context> context,
                                                          std::shared_ptr<MemoryBudget> budget, Bytes size);
  ~CardMemory() override;
  DevicePointer address() const { return address_; }
  const Context* context() const { return context_.get(); }

 private:
  CardMemory(std::shared_ptr<Context> context, std::shared_ptr<MemoryBudget> budget, Bytes size, DevicePointer address)
      : Memory(size, nullptr), context_(std::move(context)), budget_(std::move(budget)), address_(address) {}

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<MemoryBudget> budget_;
  const DevicePointer address_;
};

/// Host memory that every card copies from and to by itself.
class PinnedMemory final : public Memory {
 public:
  static absl::StatusOr<std::unique_ptr<PinnedMemory>> make(std::shared_ptr<Context> context, Bytes size);
  ~PinnedMemory() override;

 private:
  PinnedMemory(std::shared_ptr<Context> context, Bytes size, std::byte* host)
      : Memory(size, host), context_(std::move(context)) {}

  const std::shared_ptr<Context> context_;
};

/// Host memory of others that cards copy from and to by themselves, since it is held in its place.
class PageLocked final : public Memory::Tie {
 public:
  /// All of the view's memory, once; where the driver does not take it nothing happens.
  static void lock(const std::shared_ptr<Context>& context, const BufferView& host);
  ~PageLocked() override;

 private:
  PageLocked(std::shared_ptr<Context> context, void* begin) : context_(std::move(context)), begin_(begin) {}

  const std::shared_ptr<Context> context_;
  void* const begin_;
};

/// The address of a view on this card. Errors: Internal: it is not this card's memory.
absl::StatusOr<DevicePointer> address_of(const BufferView& view, const Context& context);

}  // namespace rondo::devices::cuda
