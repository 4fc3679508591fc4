// Holds our declarations of the driver (driver.h) against NVIDIA's. Compiles to nothing.
#include <cuda.h>

#include <type_traits>

#include "driver.h"

namespace rondo::devices::cuda {

/// Handles and enumerations are types of our own: their sizes must do.
template <typename Ours, typename Theirs>
inline constexpr bool kPassesAs = std::is_same_v<Ours, Theirs> ||
                                  (sizeof(Ours) == sizeof(Theirs) &&
                                   std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>);
template <typename Ours, typename Theirs>
inline constexpr bool kCallsAs = false;
template <typename... Ours, typename... Theirs>
inline constexpr bool kCallsAs<Result (*)(Ours...), CUresult (*)(Theirs...)> = [] {
  if constexpr (sizeof...(Ours) == sizeof...(Theirs)) return (kPassesAs<Ours, Theirs> && ...);
  return false;
}();

static_assert(kCallsAs<decltype(Driver::capture_begin), decltype(&cuStreamBeginCapture)>);
static_assert(kCallsAs<decltype(Driver::capture_end), decltype(&cuStreamEndCapture)>);
static_assert(kCallsAs<decltype(Driver::graph_instantiate), decltype(&cuGraphInstantiateWithFlags)>);
static_assert(kCallsAs<decltype(Driver::graph_upload), decltype(&cuGraphUpload)>);
static_assert(kCallsAs<decltype(Driver::graph_launch), decltype(&cuGraphLaunch)>);
static_assert(kCallsAs<decltype(Driver::graph_destroy), decltype(&cuGraphDestroy)>);
static_assert(kCallsAs<decltype(Driver::graph_exec_destroy), decltype(&cuGraphExecDestroy)>);
static_assert(!kCallsAs<decltype(Driver::graph_launch), decltype(&cuStreamBeginCapture)>);
static_assert(sizeof(CardUuid) == sizeof(CUuuid));
static_assert(sizeof(Result) == sizeof(CUresult) && sizeof(DevicePointer) == sizeof(CUdeviceptr));
static_assert(std::is_same_v<DevicePointer, CUdeviceptr> && std::is_same_v<DeviceHandle, CUdevice>);
static_assert(sizeof(StreamHandle) == sizeof(CUstream) && sizeof(EventHandle) == sizeof(CUevent));
static_assert(kSuccess == CUDA_SUCCESS && kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kNoDevice == CUDA_ERROR_NO_DEVICE && kNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kAttributeMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kAttributeIntegrated == CU_DEVICE_ATTRIBUTE_INTEGRATED);
static_assert(kAttributeCopyEngines == CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
static_assert(kAttributeClockKhz == CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
static_assert(kAttributeMemoryClockKhz == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
static_assert(kAttributeMemoryBusBits == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
static_assert(kAttributeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kAttributeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kAttributeMostShared == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kFunctionMostShared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING && kEventBlockingSync == CU_EVENT_BLOCKING_SYNC);
static_assert(sizeof(GraphHandle) == sizeof(CUgraph) && sizeof(GraphExecHandle) == sizeof(CUgraphExec));
static_assert(kCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING && kHostPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kHostPortable == CU_MEMHOSTREGISTER_PORTABLE);

}  // namespace rondo::devices::cuda
