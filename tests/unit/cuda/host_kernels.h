// Kernels run on the host, block by block.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/kernel_ids.h"

namespace rondo::devices::cuda::testing {

struct HostLaunch {
  KernelId kernel{};
  std::uint32_t grid_x = 1;
  std::uint32_t grid_y = 1;
  std::uint32_t threads = 1;
  std::uint32_t shared = 0;
};

/// Runs all blocks, the last one first: none may depend on one before it.
void run_on_host(const HostLaunch& launch, const void* params);
/// False when there is no such entry.
bool find_kernel(const std::string& entry, KernelId& kernel);
/// Bytes of the kernel's parameters.
std::size_t params_size(KernelId kernel);

}  // namespace rondo::devices::cuda::testing
