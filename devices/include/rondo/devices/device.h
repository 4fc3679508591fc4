// The device contract: memory, programs, queues and timelines.
//
// Order is explicit: work on a queue takes lists of points to wait for and a point to signal. A wait names only what is
// already enqueued on this device or complete. Enqueuing does not fail; a failure poisons the timeline it would have
// signalled, and work that waits on a poisoned timeline is skipped and poisons its own. Nothing allocates after
// compile(), but for what a backend makes in the first runs of a program for those that recur.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/mutex.h"
#include "rondo/base/units.h"
#include "rondo/devices/op.h"
#include "rondo/devices/tensor.h"

namespace rondo::devices {

/// What all drivers of a card call it by: VkPhysicalDeviceIDProperties::deviceUUID, cuDeviceGetUuid().
using CardUuid = std::array<std::uint8_t, 16>;

enum class MemoryKind : std::uint8_t {
  kDevice,  // the device's own
  kPinned,  // host memory that the device copies from and to at full speed
};

/// A block of memory. Base of what backends allocate; see Buffer for the owner.
class Memory {
 public:
  /// What a device holds to reach host memory by itself; ends before the memory does.
  class Tie {
   public:
    virtual ~Tie() = default;
  };

  Memory(Bytes size, std::byte* host) : size_(size), host_(host) {}
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Bytes size() const { return size_; }
  /// Null when the host cannot address it, or when it stands for memory that does not exist (timed devices).
  std::byte* host() const { return host_; }
  /// One by `owner` at most: a second is dropped. Thread-safe.
  void tie(const void* owner, std::unique_ptr<Tie> tie);
  /// Null when there is none. Thread-safe.
  const Tie* tied(const void* owner) const;

 protected:
  /// For destructors, before the bytes go.
  void untie();

 private:
  const Bytes size_;
  std::byte* const host_;
  mutable Mutex mutex_;
  std::vector<std::pair<const void*, std::unique_ptr<Tie>>> ties_ ABSL_GUARDED_BY(mutex_);
};

/// Part of a Memory. Passed by value; dies with its owner.
struct BufferView {
  Memory* memory = nullptr;
  Bytes offset = 0;
  Bytes size = 0;

  std::byte* host() const { return memory == nullptr || memory->host() == nullptr ? nullptr : memory->host() + offset; }
  BufferView part(Bytes from, Bytes length) const { return {memory, offset + from, length}; }
};

/// Owner of a Memory.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}
  BufferView view() const { return {memory_.get(), 0, memory_ ? memory_->size() : 0}; }
  Bytes size() const { return memory_ ? memory_->size() : 0; }
  explicit operator bool() const { return memory_ != nullptr; }

 private:
  std::unique_ptr<Memory> memory_;
};

/// Plain host memory, 64-byte aligned, zeroed; counted by `purpose` in the host's account (host_memory.h).
/// Errors: ResourceExhausted with the numbers.
absl::StatusOr<Buffer> allocate_host(Bytes size, const char* purpose);
/// The same on pages that nothing else lies on, however small.
absl::StatusOr<Buffer> allocate_host_pages(Bytes size, const char* purpose);
/// As allocate_host() for what stands for page-locked memory or a card's own: all of it is resident from the start.
absl::StatusOr<Buffer> allocate_resident_host(Bytes size, const char* purpose);
/// Stands for host memory of that size without having any: for pools that take time but do no arithmetic.
Buffer phantom_host(Bytes size);
/// That, or allocate_host().
absl::StatusOr<Buffer> allocate_host_unless(bool phantom, Bytes size, const char* purpose);

/// Counts upward as work completes. Thread-safe.
class Timeline {
 public:
  virtual ~Timeline() = default;
  virtual std::uint64_t completed() const = 0;
  /// Blocks until `value` is reached: OK; poisoned: its error; deadline passed: DeadlineExceeded.
  virtual absl::Status wait(std::uint64_t value, std::chrono::steady_clock::time_point deadline) = 0;
  /// By the host; `value` must be larger than any signalled before.
  virtual void signal(std::uint64_t value) = 0;
  /// The first error stands; later ones are ignored.
  virtual void poison(const absl::Status& error) = 0;
  /// Back to 0 and not poisoned. REQUIRES: nothing in flight names it.
  virtual void reset() = 0;
};

struct Point {
  Timeline* timeline = nullptr;
  std::uint64_t value = 0;
};

/// A compiled OpList. Immutable: may be in flight several times with other bindings (but not with the same scratch).
class Program {
 public:
  virtual ~Program() = default;
  virtual const OpList& ops() const = 0;
};

/// What a run is bound to. Must stay as it is until the run's point is reached.
struct Bindings {
  std::vector<BufferView> tensors;  // by TensorId; those of scratch tensors are ignored
  BufferView scratch;               // at least the ArenaLayout's size
  std::uint32_t layer = 0;          // enters the random numbers (dropout)
  /// Gradients count as zero before the run, whatever is there. REQUIRES: caps().sets_gradients.
  bool sets_gradients = false;
};

/// For traces: who asked for this work. Backends hand it to the recorder with begin and end of execution.
struct WorkTag {
  const char* name = "";
  std::uint32_t step = 0;
  std::uint32_t slot = 0;
  std::uint32_t microbatch = 0;
};

enum class QueueRole : std::uint8_t { kCompute, kUp, kDown };

class Queue {
 public:
  virtual ~Queue() = default;
  /// REQUIRES: the signallers of `waits` are enqueued on this device already, or complete. `program` and `bindings`
  /// outlive the run.
  virtual void run(const Program& program, const Bindings& bindings, std::span<const Point> waits, Point signal,
                   const WorkTag& tag) = 0;
  /// Sizes are equal; either side may be host memory.
  virtual void copy(BufferView from, BufferView to, std::span<const Point> waits, Point signal, const WorkTag& tag) = 0;
  /// Sets memory of this device to zero bytes.
  virtual void clear(BufferView view, std::span<const Point> waits, Point signal, const WorkTag& tag) = 0;
};

/// Told of every piece of work that a queue has executed; called from the queue's thread, must not block or allocate.
class WorkObserver {
 public:
  virtual ~WorkObserver() = default;
  virtual void on_work(QueueRole role, const WorkTag& tag, std::chrono::steady_clock::time_point begin,
                       std::chrono::steady_clock::time_point end) = 0;
};

struct DeviceCaps {
  std::string name;         // unique in the pool: "cpu:0", "emulated:rtx4090:1"
  std::string backend;      // "cpu", "emulated", "timed", "null"; for people, never to branch on
  std::string description;  // "AMD EPYC, 2 threads, AVX2"
  Bytes memory_bytes = 0;
  Bytes most_block_bytes = ~Bytes{0};  // of this the most that allocate() gives at once
  bool unified_memory = false;         // programs may be bound to host memory in place: nothing need be copied
  /// Programs read weights where they lie in main memory, see use_in_place(); everything else is copied.
  bool weights_in_place = false;
  bool memory_in_process = false;  // its memory is this process's: resident memory counts it
  bool does_arithmetic = true;     // timed devices: false; their memory may be phantom
  std::vector<DType> compute_dtypes;
  std::vector<DType> matrix_dtypes;  // of these, those that matrix units multiply
  bool multiplies_by_units(DType dtype) const { return std::ranges::find(matrix_dtypes, dtype) != matrix_dtypes.end(); }
  bool fp8 = false;             // multiplies numbers of eight bits, see MatMulAttributes
  bool updates = false;         // has the ops of an optimizer, kAddRows to kAdamW8
  bool sets_gradients = false;  // heeds Bindings::sets_gradients; elsewhere they have to be cleared before the run
  std::uint32_t copy_engines = 0;
  std::uint32_t hardware_queues = 1;
  /// So long may a driver take over a program when it first runs: some translate shaders only then.
  double first_use_seconds = 0;
  /// Of host memory, more than other backends' libraries come to hold: code, copies of operands.
  Bytes library_bytes = 0;
  /// Of host memory, what a library comes to hold of code for the products of microbatches of one bucket in a dtype of
  /// `matrix_dtypes`, adapters' among them, and for those of each other bucket; whatever the number of devices.
  Bytes product_code_bytes = 0;
  Bytes more_product_code_bytes = 0;
  /// Devices of one class give the same bits: backend, kernel set, architecture, library version.
  std::string numerics_class;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceCaps& caps() const = 0;
  /// Before the run only. Errors: ResourceExhausted with asked, free and total bytes.
  virtual absl::StatusOr<Buffer> allocate(Bytes size, MemoryKind kind) = 0;
  /// Before the run only. Copies from this host memory (kUp) or to it (kDown) will come again and again, which the
  /// device may make ready for; they work without as well.
  virtual void expect_copies(BufferView /*host*/, QueueRole /*direction*/) {}
  /// Before the run only. Programs are going to be bound to views of this host memory as weights, which they only read.
  /// REQUIRES: caps().weights_in_place. Errors: ResourceExhausted when the driver does not take it.
  virtual absl::Status use_in_place(BufferView /*host*/) {
    return absl::UnimplementedError(caps().name + " reads no weights in main memory");
  }
  /// Before the run only. Errors: Unimplemented naming the op and why this backend has it not.
  virtual absl::StatusOr<std::unique_ptr<Program>> compile(const OpList& list, const ArenaLayout& layout) = 0;
  virtual absl::StatusOr<std::unique_ptr<Timeline>> timeline() = 0;
  virtual Queue& queue(QueueRole role) = 0;
  /// At most one; null takes it away. REQUIRES: no work in flight.
  virtual void observe(WorkObserver* observer) = 0;
  /// Bytes allocated now and the most at any time.
  virtual Bytes allocated_bytes() const = 0;
  virtual Bytes peak_bytes() const = 0;
};

}  // namespace rondo::devices
