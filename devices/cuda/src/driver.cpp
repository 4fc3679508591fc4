// Finding the driver at run time, and its errors in words.
#include "driver.h"

#include <dlfcn.h>

#include "rondo/base/status.h"

namespace rondo::devices::cuda {
namespace {

/// The interface asked of cuGetProcAddress: every function above is as it was in CUDA 12.0.
constexpr int kInterface = 12000;

}  // namespace

absl::Status fill_driver(Driver& driver, LookUp look_up, const std::string& missing) {
  if (!missing.empty()) {
    return unimplemented(
        "no NVIDIA driver on this machine ({}); install the driver of the card, or choose other devices", missing);
  }
  if (look_up == nullptr) {
    return unimplemented("the NVIDIA driver is too old: it lacks cuGetProcAddress_v2, found from CUDA 12.0 on");
  }
#define RONDO_DRIVER_FIND(member, name, parameters)                                                   \
  {                                                                                                   \
    void* function = nullptr;                                                                         \
    int found = 0;                                                                                    \
    if (look_up(name, &function, kInterface, 0, &found) != kSuccess || function == nullptr) {         \
      return unimplemented("the NVIDIA driver is too old or broken: it lacks {} of CUDA 12.0", name); \
    }                                                                                                 \
    driver.member = reinterpret_cast<decltype(driver.member)>(function);                              \
  }
  RONDO_DRIVER_FUNCTIONS(RONDO_DRIVER_FIND)
#undef RONDO_DRIVER_FIND
  bool has_graphs = true;
#define RONDO_GRAPH_FIND(member, name, parameters)                                                              \
  {                                                                                                             \
    void* function = nullptr;                                                                                   \
    int found = 0;                                                                                              \
    if (look_up(name, &function, kInterface, 0, &found) != kSuccess || function == nullptr) has_graphs = false; \
    driver.member = reinterpret_cast<decltype(driver.member)>(function);                                        \
  }
  RONDO_GRAPH_FUNCTIONS(RONDO_GRAPH_FIND)
#undef RONDO_GRAPH_FIND
  if (has_graphs) return absl::OkStatus();
#define RONDO_GRAPH_FORGET(member, name, parameters) driver.member = nullptr;
  RONDO_GRAPH_FUNCTIONS(RONDO_GRAPH_FORGET)
#undef RONDO_GRAPH_FORGET
  return absl::OkStatus();
}

absl::StatusOr<const Driver*> find_driver() {
  struct Found {
    Driver driver;
    absl::Status status;
  };
  // Never closed: the driver keeps threads of its own.
  static const Found* const found = [] {
    auto* result = new Found;
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const char* why = library == nullptr ? dlerror() : nullptr;
    LookUp look_up = library == nullptr ? nullptr : reinterpret_cast<LookUp>(dlsym(library, "cuGetProcAddress_v2"));
    const std::string missing = library != nullptr ? "" : (why != nullptr ? why : "libcuda.so.1 is not there");
    result->status = fill_driver(result->driver, look_up, missing);
    return result;
  }();
  if (!found->status.ok()) return found->status;
  return &found->driver;
}

absl::Status status_of(const Driver& driver, Result result, const char* call) {
  if (result == kSuccess) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.error_name(result, &name) != kSuccess || name == nullptr) name = "an unknown error";
  if (driver.error_text(result, &text) != kSuccess || text == nullptr) text = "no description";
  if (result == kOutOfMemory) return resource_exhausted("{}: {}: {}", call, name, text);
  return internal_error("{}: {} ({}): {}", call, name, result, text);
}

bool is_lost(Result result) {
  switch (result) {
    case 4:    // CUDA_ERROR_DEINITIALIZED
    case 214:  // ECC_UNCORRECTABLE
    case 220:  // NVLINK_UNCORRECTABLE
    case 226:  // CONTAINED
    case 700:  // ILLEGAL_ADDRESS
    case 702:  // LAUNCH_TIMEOUT
    case 709:  // CONTEXT_IS_DESTROYED
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case 719:  // LAUNCH_FAILED
    case 721:  // TENSOR_MEMORY_LEAK
    case 999:  // UNKNOWN
      return true;
    default:
      return false;
  }
}

}  // namespace rondo::devices::cuda
