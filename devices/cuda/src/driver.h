// The CUDA driver as this backend uses it: a table of functions, found at run time or given by a test.
//
// The declarations are our own, so that the room compiles on machines without NVIDIA's toolkit; where the toolkit is
// there, driver_check.cpp holds them against cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/devices/device.h"

namespace rondo::devices::cuda {

using Result = int;                        // CUresult
using DeviceHandle = int;                  // CUdevice
using DevicePointer = unsigned long long;  // CUdeviceptr
using ContextHandle = struct CUctx_st*;
using ModuleHandle = struct CUmod_st*;
using FunctionHandle = struct CUfunc_st*;
using StreamHandle = struct CUstream_st*;
using EventHandle = struct CUevent_st*;
using GraphHandle = struct CUgraph_st*;          // what was captured
using GraphExecHandle = struct CUgraphExec_st*;  // what can be launched

inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kNoBinaryForGpu = 209;
inline constexpr Result kNotReady = 600;

inline constexpr int kAttributeMultiprocessors = 16;
inline constexpr int kAttributeIntegrated = 18;
inline constexpr int kAttributeCopyEngines = 40;
inline constexpr int kAttributeClockKhz = 13;
inline constexpr int kAttributeMemoryClockKhz = 36;
inline constexpr int kAttributeMemoryBusBits = 37;
inline constexpr int kAttributeMostShared = 97;  // of a block, for functions that ask for it
inline constexpr int kAttributeMajor = 75;
inline constexpr int kAttributeMinor = 76;

inline constexpr int kFunctionMostShared = 8;  // dynamic shared memory of a launch

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostPortable = 1;
/// While this thread captures it may not do what would not become part of the graph; other threads may.
inline constexpr int kCaptureThreadLocal = 1;

/// X(member, name for the driver, parameters). All return a Result.
#define RONDO_DRIVER_FUNCTIONS(X)                                                                                    \
  X(init, "cuInit", (unsigned flags))                                                                                \
  X(driver_version, "cuDriverGetVersion", (int* version))                                                            \
  X(device_count, "cuDeviceGetCount", (int* count))                                                                  \
  X(device_get, "cuDeviceGet", (DeviceHandle * device, int ordinal))                                                 \
  X(device_name, "cuDeviceGetName", (char* name, int size, DeviceHandle device))                                     \
  X(device_uuid, "cuDeviceGetUuid", (CardUuid * uuid, DeviceHandle device))                                          \
  X(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, DeviceHandle device))                      \
  X(context_retain, "cuDevicePrimaryCtxRetain", (ContextHandle * context, DeviceHandle device))                      \
  X(context_release, "cuDevicePrimaryCtxRelease", (DeviceHandle device))                                             \
  X(context_set, "cuCtxSetCurrent", (ContextHandle context))                                                         \
  X(memory_info, "cuMemGetInfo", (std::size_t * free, std::size_t * total))                                          \
  X(memory_allocate, "cuMemAlloc", (DevicePointer * pointer, std::size_t size))                                      \
  X(memory_free, "cuMemFree", (DevicePointer pointer))                                                               \
  X(host_allocate, "cuMemHostAlloc", (void** pointer, std::size_t size, unsigned flags))                             \
  X(host_free, "cuMemFreeHost", (void* pointer))                                                                     \
  X(host_register, "cuMemHostRegister", (void* pointer, std::size_t size, unsigned flags))                           \
  X(host_unregister, "cuMemHostUnregister", (void* pointer))                                                         \
  X(stream_create, "cuStreamCreate", (StreamHandle * stream, unsigned flags))                                        \
  X(stream_destroy, "cuStreamDestroy", (StreamHandle stream))                                                        \
  X(stream_synchronize, "cuStreamSynchronize", (StreamHandle stream))                                                \
  X(stream_wait, "cuStreamWaitEvent", (StreamHandle stream, EventHandle event, unsigned flags))                      \
  X(event_create, "cuEventCreate", (EventHandle * event, unsigned flags))                                            \
  X(event_destroy, "cuEventDestroy", (EventHandle event))                                                            \
  X(event_record, "cuEventRecord", (EventHandle event, StreamHandle stream))                                         \
  X(event_synchronize, "cuEventSynchronize", (EventHandle event))                                                    \
  X(copy_up, "cuMemcpyHtoDAsync", (DevicePointer to, const void* from, std::size_t size, StreamHandle stream))       \
  X(copy_down, "cuMemcpyDtoHAsync", (void* to, DevicePointer from, std::size_t size, StreamHandle stream))           \
  X(copy_within, "cuMemcpyDtoDAsync", (DevicePointer to, DevicePointer from, std::size_t size, StreamHandle stream)) \
  X(set_bytes, "cuMemsetD8Async", (DevicePointer to, unsigned char value, std::size_t size, StreamHandle stream))    \
  X(module_load, "cuModuleLoadData", (ModuleHandle * module, const void* image))                                     \
  X(module_unload, "cuModuleUnload", (ModuleHandle module))                                                          \
  X(module_function, "cuModuleGetFunction", (FunctionHandle * function, ModuleHandle module, const char* name))      \
  X(function_attribute, "cuFuncSetAttribute", (FunctionHandle function, int attribute, int value))                   \
  X(launch, "cuLaunchKernel",                                                                                        \
    (FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared, StreamHandle stream, void** parameters, void** extra))                       \
  X(error_name, "cuGetErrorName", (Result error, const char** name))                                                 \
  X(error_text, "cuGetErrorString", (Result error, const char** text))

/// The same, of what a driver may do without: all of them are there or none.
#define RONDO_GRAPH_FUNCTIONS(X)                                                      \
  X(capture_begin, "cuStreamBeginCapture", (StreamHandle stream, int mode))           \
  X(capture_end, "cuStreamEndCapture", (StreamHandle stream, GraphHandle * graph))    \
  X(graph_instantiate, "cuGraphInstantiateWithFlags",                                 \
    (GraphExecHandle * executable, GraphHandle graph, unsigned long long flags))      \
  X(graph_upload, "cuGraphUpload", (GraphExecHandle executable, StreamHandle stream)) \
  X(graph_launch, "cuGraphLaunch", (GraphExecHandle executable, StreamHandle stream)) \
  X(graph_destroy, "cuGraphDestroy", (GraphHandle graph))                             \
  X(graph_exec_destroy, "cuGraphExecDestroy", (GraphExecHandle executable))

struct Driver {
#define RONDO_DRIVER_MEMBER(member, name, parameters) Result(*member) parameters = nullptr;
  RONDO_DRIVER_FUNCTIONS(RONDO_DRIVER_MEMBER)
  RONDO_GRAPH_FUNCTIONS(RONDO_DRIVER_MEMBER)
#undef RONDO_DRIVER_MEMBER
  bool has_graphs() const { return graph_launch != nullptr; }
};

/// Finds libcuda.so.1 and its functions. Errors: Unimplemented saying what is missing or too old.
absl::StatusOr<const Driver*> find_driver();

/// The same from a library by another name and a way to look functions up: for tests of what find_driver() says.
/// `look_up`: as cuGetProcAddress, null when the driver is too old to have it; `missing`: "" when the library is there.
using LookUp = Result (*)(const char* name, void** function, int version, std::uint64_t flags, int* found);
absl::Status fill_driver(Driver& driver, LookUp look_up, const std::string& missing);

/// OK, or what the driver says: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory".
absl::Status status_of(const Driver& driver, Result result, const char* call);

/// After such an error the context is gone: every later call fails, and the card is lost to this process.
bool is_lost(Result result);

}  // namespace rondo::devices::cuda
