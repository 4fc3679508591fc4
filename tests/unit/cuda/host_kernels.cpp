// The kernels compiled for the host.
#include "host_kernels.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/all_kernels.h"

namespace rondo::devices::cuda::testing {
namespace {

/// Shared memory of a block, with a border behind what was asked for.
constexpr std::size_t kMostShared = 227 * 1024;  // of sm_90
constexpr std::size_t kBorder = 64;
constexpr unsigned char kBorderByte = 0xA5;
alignas(1024) thread_local unsigned char shared_memory[kMostShared + kBorder];

template <typename Kernel, typename Params>
void run_blocks(const HostLaunch& launch, const void* params) {
  if (launch.shared > kMostShared || launch.threads > kMostThreads || launch.threads % kWarp != 0) {
    std::fprintf(stderr, "%s: %u threads and %u bytes of shared memory are no launch\n", entry_of(launch.kernel),
                 launch.threads, launch.shared);
    std::abort();
  }
  for (std::uint32_t y = launch.grid_y; y-- > 0;) {
    for (std::uint32_t x = launch.grid_x; x-- > 0;) {
      // Shared memory is not zero on a card either.
      std::memset(shared_memory, 0x7F, launch.shared);
      std::memset(shared_memory + launch.shared, kBorderByte, kBorder);
      HostBlock block(x, y, static_cast<int>(launch.threads), shared_memory);
      Kernel::run(block, *static_cast<const Params*>(params));
      for (std::size_t i = 0; i < kBorder; ++i) {
        if (shared_memory[launch.shared + i] == kBorderByte) continue;
        std::fprintf(stderr, "%s writes past its %u bytes of shared memory\n", entry_of(launch.kernel), launch.shared);
        std::abort();
      }
    }
  }
}

struct Entry {
  const char* name;
  void (*run)(const HostLaunch&, const void*);
  std::size_t params;
};

constexpr Entry kEntries[] = {
#define RONDO_KERNEL_ENTRY(name, kernel, params) {"rondo_" #name, run_blocks<kernel, params>, sizeof(params)},
#include "kernels/kernels.def"
#undef RONDO_KERNEL_ENTRY
};

}  // namespace

void run_on_host(const HostLaunch& launch, const void* params) {
  kEntries[static_cast<std::size_t>(launch.kernel)].run(launch, params);
}

bool find_kernel(const std::string& entry, KernelId& kernel) {
  for (int i = 0; i < kKernels; ++i) {
    if (entry != kEntries[i].name) continue;
    kernel = static_cast<KernelId>(i);
    return true;
  }
  return false;
}

std::size_t params_size(KernelId kernel) { return kEntries[static_cast<std::size_t>(kernel)].params; }

}  // namespace rondo::devices::cuda::testing
