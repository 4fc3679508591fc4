// See fake_driver.h. One mutex guards everything; streams run their work outside it.
#include "fake_driver.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "host_kernels.h"
#include "steps.h"

namespace rondo::devices::cuda::testing {
namespace {

constexpr const char* kNames[] = {
#define RONDO_NAME(member, name, parameters) name,
    RONDO_DRIVER_FUNCTIONS(RONDO_NAME)
#undef RONDO_NAME
};
constexpr std::size_t kFunctions = std::size(kNames);

struct Event {
  std::uint64_t recorded = 0;   // how often it was put into a stream
  std::uint64_t completed = 0;  // how often it was reached
};

struct Task {
  enum class Kind { kCopy, kSet, kLaunch, kRecord, kWait } kind = Kind::kCopy;
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t size = 0;
  unsigned char value = 0;
  HostLaunch launch;
  alignas(16) std::array<std::byte, kMostParams> params;
  Event* event = nullptr;
  std::uint64_t count = 0;  // kWait: until the event was reached so often; kRecord: its number
};

class FakeCard;

class Stream {
 public:
  explicit Stream(FakeCard& card) : card_(card), ring_(kRing), thread_([this] { serve(); }) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// A task to fill in, then push(). Called under the card's mutex.
  Task& next(std::unique_lock<std::mutex>& lock);
  void push() { ++count_; }
  bool idle() const { return count_ == 0; }

 private:
  static constexpr std::size_t kRing = 4096;
  void serve();
  void execute(const Task& task);

  FakeCard& card_;
  std::vector<Task> ring_;
  std::size_t head_ = 0;
  std::size_t count_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

class FakeCard {
 public:
  std::mutex mutex;
  std::condition_variable changed;
  FakeScript script;
  std::array<int, kFunctions> calls{};
  std::set<void*> allocations;  // of the card
  std::size_t used = 0;
  int left = 0;
  int launches = 0;
  Result lost = kSuccess;
  std::string lacking;

  /// Counts a call; what the script says it gives.
  Result begin(const char* name) {
    for (std::size_t i = 0; i < kFunctions; ++i) {
      if (std::strcmp(kNames[i], name) != 0) continue;
      ++calls[i];
      if (script.fail_at == calls[i] && script.fail_call == name) return script.fail_result;
    }
    return kSuccess;
  }
};

FakeCard& card() {
  static auto* const only = new FakeCard;
  return *only;
}

Stream::~Stream() {
  {
    const std::lock_guard<std::mutex> lock(card_.mutex);
    stopping_ = true;
    card_.changed.notify_all();
  }
  thread_.join();
}

Task& Stream::next(std::unique_lock<std::mutex>& lock) {
  while (count_ == kRing) card_.changed.wait(lock);
  return ring_[(head_ + count_) % kRing];
}

void Stream::serve() {
  std::unique_lock<std::mutex> lock(card_.mutex);
  for (;;) {
    while (count_ == 0 && !stopping_) card_.changed.wait(lock);
    if (count_ == 0) return;
    const Task& task = ring_[head_];
    if (task.kind == Task::Kind::kWait) {
      while (task.event->completed < task.count && card_.lost == kSuccess) card_.changed.wait(lock);
    } else if (task.kind == Task::Kind::kRecord) {
      task.event->completed = std::max(task.event->completed, task.count);
    } else if (card_.lost == kSuccess) {
      if (task.kind == Task::Kind::kLaunch && ++card_.launches == card_.script.fault_at) {
        card_.lost = card_.script.fault_result;
      } else {
        lock.unlock();
        execute(task);
        lock.lock();
      }
    }
    head_ = (head_ + 1) % kRing;
    --count_;
    card_.changed.notify_all();
  }
}

void Stream::execute(const Task& task) {
  if (task.kind == Task::Kind::kCopy) std::memmove(task.to, task.from, task.size);
  if (task.kind == Task::Kind::kSet) std::memset(task.to, task.value, task.size);
  if (task.kind == Task::Kind::kLaunch) run_on_host(task.launch, task.params.data());
}

Stream* stream_of(StreamHandle handle) { return reinterpret_cast<Stream*>(handle); }
Event* event_of(EventHandle handle) { return reinterpret_cast<Event*>(handle); }
void* pointer_of(DevicePointer address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

/// Whether [address, address + size) lies in one allocation of the card.
bool is_inside(DevicePointer address, std::size_t size) {
  auto* const begin = static_cast<std::byte*>(pointer_of(address));
  auto after = card().allocations.upper_bound(begin);
  if (after == card().allocations.begin()) return false;
  auto* const block = static_cast<std::byte*>(*--after);
  std::size_t length = 0;
  std::memcpy(&length, block - 64, sizeof(length));
  return begin + size <= block + length;
}

// The functions, named after the driver's.

Result fake_init(unsigned) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  return card().begin("cuInit");
}
Result fake_driver_version(int* version) {
  *version = card().script.driver_version;
  return kSuccess;
}
Result fake_device_count(int* count) {
  *count = card().script.cards;
  return kSuccess;
}
Result fake_device_get(DeviceHandle* device, int ordinal) {
  *device = ordinal;
  return kSuccess;
}
Result fake_device_name(char* name, int size, DeviceHandle) {
  std::strncpy(name, "Fake card", static_cast<std::size_t>(size));
  return kSuccess;
}
Result fake_device_attribute(int* value, int attribute, DeviceHandle) {
  switch (attribute) {
    case kAttributeMajor:
      *value = card().script.major;
      break;
    case kAttributeMinor:
      *value = card().script.minor;
      break;
    case kAttributeMultiprocessors:
      *value = 4;
      break;
    case kAttributeCopyEngines:
      *value = 2;
      break;
    case kAttributeIntegrated:
      *value = 0;
      break;
    default:
      *value = 1000000;  // clocks in kHz, bits of the memory's bus
  }
  return kSuccess;
}
Result fake_context_retain(ContextHandle* context, DeviceHandle) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  const Result result = card().begin("cuDevicePrimaryCtxRetain");
  if (result != kSuccess) return result;
  *context = reinterpret_cast<ContextHandle>(&card());
  ++card().left;
  return kSuccess;
}
Result fake_context_release(DeviceHandle) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  --card().left;
  return kSuccess;
}
Result fake_context_set(ContextHandle) { return kSuccess; }
Result fake_memory_info(std::size_t* free, std::size_t* total) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  *total = card().script.memory;
  *free = *total - card().used;
  return card().begin("cuMemGetInfo");
}
Result fake_memory_allocate(DevicePointer* pointer, std::size_t size) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  const Result result = card().begin("cuMemAlloc");
  if (result != kSuccess) return result;
  if (card().used + size > card().script.memory) return kOutOfMemory;
  // The size lies in front of the block.
  const std::size_t whole = (size + 64 + 63) / 64 * 64;
  auto* const block = static_cast<std::byte*>(std::aligned_alloc(64, whole));
  std::memset(block, 0xCD, whole);
  std::memcpy(block, &size, sizeof(size));
  card().allocations.insert(block + 64);
  card().used += size;
  *pointer = reinterpret_cast<std::uintptr_t>(block + 64);
  return kSuccess;
}
Result fake_memory_free(DevicePointer pointer) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  auto* const block = static_cast<std::byte*>(pointer_of(pointer));
  if (card().allocations.erase(block) == 0) return 1;
  std::size_t size = 0;
  std::memcpy(&size, block - 64, sizeof(size));
  card().used -= size;
  std::free(block - 64);
  return kSuccess;
}
Result fake_host_allocate(void** pointer, std::size_t size, unsigned) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  const Result result = card().begin("cuMemHostAlloc");
  if (result != kSuccess) return result;
  *pointer = std::malloc(size);
  ++card().left;
  return kSuccess;
}
Result fake_host_free(void* pointer) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  std::free(pointer);
  --card().left;
  return kSuccess;
}
Result fake_stream_create(StreamHandle* stream, unsigned) {
  {
    const std::lock_guard<std::mutex> lock(card().mutex);
    const Result result = card().begin("cuStreamCreate");
    if (result != kSuccess) return result;
    ++card().left;
  }
  *stream = reinterpret_cast<StreamHandle>(new Stream(card()));
  return kSuccess;
}
Result fake_stream_destroy(StreamHandle stream) {
  delete stream_of(stream);
  const std::lock_guard<std::mutex> lock(card().mutex);
  --card().left;
  return kSuccess;
}
Result fake_stream_synchronize(StreamHandle stream) {
  std::unique_lock<std::mutex> lock(card().mutex);
  const Result result = card().begin("cuStreamSynchronize");
  if (result != kSuccess) return result;
  while (!stream_of(stream)->idle()) card().changed.wait(lock);
  return card().lost;
}

/// Puts a task into a stream.
template <typename Fill>
Result enqueue(const char* name, StreamHandle handle, Fill fill) {
  std::unique_lock<std::mutex> lock(card().mutex);
  const Result result = card().begin(name);
  if (result != kSuccess) return result;
  if (card().lost != kSuccess) return card().lost;
  Stream& stream = *stream_of(handle);
  fill(stream.next(lock));
  stream.push();
  card().changed.notify_all();
  return kSuccess;
}

Result fake_stream_wait(StreamHandle stream, EventHandle event, unsigned) {
  return enqueue("cuStreamWaitEvent", stream, [event](Task& task) {
    task.kind = Task::Kind::kWait;
    task.event = event_of(event);
    task.count = task.event->recorded;
  });
}
Result fake_event_create(EventHandle* event, unsigned) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  const Result result = card().begin("cuEventCreate");
  if (result != kSuccess) return result;
  *event = reinterpret_cast<EventHandle>(new Event);
  ++card().left;
  return kSuccess;
}
Result fake_event_destroy(EventHandle event) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  delete event_of(event);
  --card().left;
  return kSuccess;
}
Result fake_event_record(EventHandle event, StreamHandle stream) {
  return enqueue("cuEventRecord", stream, [event](Task& task) {
    task.kind = Task::Kind::kRecord;
    task.event = event_of(event);
    task.count = ++task.event->recorded;
  });
}
Result fake_event_synchronize(EventHandle event) {
  std::unique_lock<std::mutex> lock(card().mutex);
  const Result result = card().begin("cuEventSynchronize");
  if (result != kSuccess) return result;
  const std::uint64_t wanted = event_of(event)->recorded;
  while (event_of(event)->completed < wanted && card().lost == kSuccess) card().changed.wait(lock);
  return card().lost;
}

constexpr Result kInvalidValue = 1;

Result copy(const char* name, StreamHandle stream, void* to, const void* from, std::size_t size) {
  return enqueue(name, stream, [=](Task& task) {
    task.kind = Task::Kind::kCopy;
    task.to = to;
    task.from = from;
    task.size = size;
  });
}
bool are_inside(DevicePointer a, DevicePointer b, std::size_t size) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  return is_inside(a, size) && is_inside(b, size);
}
Result fake_copy_up(DevicePointer to, const void* from, std::size_t size, StreamHandle stream) {
  if (!are_inside(to, to, size)) return kInvalidValue;
  return copy("cuMemcpyHtoDAsync", stream, pointer_of(to), from, size);
}
Result fake_copy_down(void* to, DevicePointer from, std::size_t size, StreamHandle stream) {
  if (!are_inside(from, from, size)) return kInvalidValue;
  return copy("cuMemcpyDtoHAsync", stream, to, pointer_of(from), size);
}
Result fake_copy_within(DevicePointer to, DevicePointer from, std::size_t size, StreamHandle stream) {
  if (!are_inside(to, from, size)) return kInvalidValue;
  return copy("cuMemcpyDtoDAsync", stream, pointer_of(to), pointer_of(from), size);
}
Result fake_set_bytes(DevicePointer to, unsigned char value, std::size_t size, StreamHandle stream) {
  if (!are_inside(to, to, size)) return kInvalidValue;
  return enqueue("cuMemsetD8Async", stream, [=](Task& task) {
    task.kind = Task::Kind::kSet;
    task.to = pointer_of(to);
    task.value = value;
    task.size = size;
  });
}
Result fake_module_load(ModuleHandle* module, const void*) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  const Result result = card().begin("cuModuleLoadData");
  if (result != kSuccess) return result;
  *module = reinterpret_cast<ModuleHandle>(&card());
  ++card().left;
  return kSuccess;
}
Result fake_module_unload(ModuleHandle) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  --card().left;
  return kSuccess;
}
Result fake_module_function(FunctionHandle* function, ModuleHandle, const char* name) {
  KernelId kernel{};
  if (!find_kernel(name, kernel)) return 500;  // CUDA_ERROR_NOT_FOUND
  // Never null: the kernel's number and one.
  *function = reinterpret_cast<FunctionHandle>(static_cast<std::uintptr_t>(kernel) + 1);
  return kSuccess;
}
Result fake_launch(FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, StreamHandle stream, void** parameters,
                   void**) {
  constexpr unsigned kMostGridY = 65535;
  constexpr unsigned kMostShared = 48 * 1024;
  if (grid_x == 0 || grid_y == 0 || grid_y > kMostGridY || grid_z != 1 || block_x == 0 || block_x > kMostThreads ||
      block_y != 1 || block_z != 1 || shared > kMostShared) {
    return kInvalidValue;
  }
  const auto kernel = static_cast<KernelId>(reinterpret_cast<std::uintptr_t>(function) - 1);
  return enqueue("cuLaunchKernel", stream, [&](Task& task) {
    task.kind = Task::Kind::kLaunch;
    task.launch = {kernel, grid_x, grid_y, block_x, shared};
    std::memcpy(task.params.data(), parameters[0], params_size(kernel));
  });
}
Result fake_error_name(Result error, const char** name) {
  *name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == 700        ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                : "CUDA_ERROR";
  return kSuccess;
}
Result fake_error_text(Result, const char** text) {
  *text = "told to fail";
  return kSuccess;
}

Driver make_driver() {
  Driver driver;
#define RONDO_FAKE(member, name, parameters) driver.member = fake_##member;
  RONDO_DRIVER_FUNCTIONS(RONDO_FAKE)
#undef RONDO_FAKE
  return driver;
}

}  // namespace

const Driver& fake_driver() {
  static const Driver driver = make_driver();
  return driver;
}

KernelImage fake_image() { return {"kernels", 13000, "sm_86"}; }

void reset_fake(const FakeScript& script) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  card().script = script;
  card().calls.fill(0);
  card().launches = 0;
  card().lost = kSuccess;
}

int calls_of(const std::string& name) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  for (std::size_t i = 0; i < kFunctions; ++i) {
    if (name == kNames[i]) return card().calls[i];
  }
  return -1;
}

int things_left() {
  const std::lock_guard<std::mutex> lock(card().mutex);
  return card().left + static_cast<int>(card().allocations.size());
}

Result fake_look_up(const char* name, void** function, int, std::uint64_t, int* found) {
  *found = 0;
  if (card().lacking == name) return 500;
#define RONDO_LOOK_UP(member, driver_name, parameters)         \
  if (std::strcmp(name, driver_name) == 0) {                   \
    *function = reinterpret_cast<void*>(fake_driver().member); \
    return kSuccess;                                           \
  }
  RONDO_DRIVER_FUNCTIONS(RONDO_LOOK_UP)
#undef RONDO_LOOK_UP
  return 500;
}

void fake_lacks(const std::string& name) { card().lacking = name; }

}  // namespace rondo::devices::cuda::testing
