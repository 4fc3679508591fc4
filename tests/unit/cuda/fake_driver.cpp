// See fake_driver.h. The functions of the driver but for graphs.
#include "fake_driver.h"

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "fake_streams.h"

namespace rondo::devices::cuda::testing {
namespace {

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

/// Bytes of shared memory that a block can have.
int most_shared_of_card() {
  const int major = card().script.major;
  return (major == 9 ? 227 : major == 7 ? 64 : 99) * 1024;
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
Result fake_device_uuid(CardUuid* uuid, DeviceHandle device) {
  *uuid = card().script.uuid;
  if (*uuid == CardUuid{}) uuid->fill(static_cast<std::uint8_t>(device + 1));
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
    case kAttributeMostShared:
      *value = most_shared_of_card();
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
  if (card().may_not_now()) return kCaptureUnsupported;
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
  (void)card().begin("cuMemFree");
  if (card().may_not_now()) return kCaptureUnsupported;
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
  if (card().may_not_now()) return kCaptureUnsupported;
  *pointer = std::malloc(size);
  ++card().left;
  return kSuccess;
}
Result fake_host_free(void* pointer) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  if (card().may_not_now()) return kCaptureUnsupported;
  std::free(pointer);
  --card().left;
  return kSuccess;
}
Result fake_host_register(void* pointer, std::size_t, unsigned) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  const Result result = card().begin("cuMemHostRegister");
  if (result != kSuccess) return result;
  if (card().may_not_now()) return kCaptureUnsupported;
  if (!card().registered.insert(pointer).second) return 712;  // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
  ++card().left;
  return kSuccess;
}
Result fake_host_unregister(void* pointer) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  if (card().may_not_now()) return kCaptureUnsupported;
  if (card().registered.erase(pointer) == 0) return 713;  // CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
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
  if (card().may_not_now()) return kCaptureUnsupported;
  if (Capture* const capture = card().capture_of(stream_of(stream)); capture != nullptr) {
    capture->broken = true;
    return kCaptureUnsupported;
  }
  while (!stream_of(stream)->idle()) card().changed.wait(lock);
  return card().lost;
}

Result fake_stream_wait(StreamHandle stream, EventHandle event, unsigned) {
  return order("cuStreamWaitEvent", stream, event_of(event), Task::Kind::kWait);
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
  return order("cuEventRecord", stream, event_of(event), Task::Kind::kRecord);
}
Result fake_event_synchronize(EventHandle event) {
  std::unique_lock<std::mutex> lock(card().mutex);
  const Result result = card().begin("cuEventSynchronize");
  if (result != kSuccess) return result;
  if (card().may_not_now()) return kCaptureUnsupported;
  const std::uint64_t wanted = event_of(event)->recorded;
  while (event_of(event)->completed < wanted && card().lost == kSuccess) card().changed.wait(lock);
  return card().lost;
}

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
  if (card().may_not_now()) return kCaptureUnsupported;
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
Result fake_function_attribute(FunctionHandle function, int attribute, int value) {
  if (attribute != kFunctionMostShared || value > most_shared_of_card()) return kInvalidValue;
  const std::lock_guard<std::mutex> lock(card().mutex);
  card().most_shared[function] = static_cast<unsigned>(value);
  return kSuccess;
}
Result fake_launch(FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, StreamHandle stream, void** parameters,
                   void**) {
  constexpr unsigned kMostGridY = 65535;
  constexpr unsigned kMostShared = 48 * 1024;  // unless the function has been given more
  const auto most_shared = [&] {
    const std::lock_guard<std::mutex> lock(card().mutex);
    const auto found = card().most_shared.find(function);
    return found == card().most_shared.end() ? kMostShared : found->second;
  };
  if (grid_x == 0 || grid_y == 0 || grid_y > kMostGridY || grid_z != 1 || block_x == 0 || block_x > kMostThreads ||
      block_y != 1 || block_z != 1 || shared > most_shared()) {
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
  RONDO_GRAPH_FUNCTIONS(RONDO_FAKE)
#undef RONDO_FAKE
  return driver;
}

}  // namespace

const Driver& fake_driver() {
  static const Driver driver = make_driver();
  return driver;
}

KernelImage fake_image() { return {"kernels", 13000, "sm_86, sm_90a"}; }

void reset_fake(const FakeScript& script) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  card().script = script;
  card().calls.fill(0);
  card().launches = 0;
  card().lost = kSuccess;
}

void fail_next(const std::string& name, Result result) {
  const int so_far = calls_of(name);
  const std::lock_guard<std::mutex> lock(card().mutex);
  card().script.fail_call = name;
  card().script.fail_at = so_far + 1;
  card().script.fail_result = result;
}

int registered_memory() {
  const std::lock_guard<std::mutex> lock(card().mutex);
  return static_cast<int>(card().registered.size());
}

int calls_of(const std::string& name) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  for (std::size_t i = 0; i < kFunctions; ++i) {
    if (name == kNames[i]) return card().calls[i];
  }
  return -1;
}

std::map<std::string, int> all_calls() {
  const std::lock_guard<std::mutex> lock(card().mutex);
  std::map<std::string, int> all;
  for (std::size_t i = 0; i < kFunctions; ++i) {
    if (card().calls[i] > 0) all[kNames[i]] = card().calls[i];
  }
  return all;
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
  RONDO_GRAPH_FUNCTIONS(RONDO_LOOK_UP)
#undef RONDO_LOOK_UP
  return 500;
}

void fake_lacks(const std::string& name) { card().lacking = name; }

}  // namespace rondo::devices::cuda::testing
