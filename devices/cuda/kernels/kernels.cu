// The entries that the host looks up by name, one of each line of kernels.def.
#include "all_kernels.h"

namespace rondo::devices::cuda {

#define RONDO_KERNEL_ENTRY(name, kernel, params)                                                     \
  extern "C" __global__ void __launch_bounds__(kMostThreads) rondo_##name(const __grid_constant__ params p) { \
    DeviceBlock block;                                                                               \
    kernel::run(block, p);                                                                           \
  }
#include "kernels.def"
#undef RONDO_KERNEL_ENTRY

}  // namespace rondo::devices::cuda
