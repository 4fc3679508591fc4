// Kernels with cooperative matrices are compiled as SPV_NV_cooperative_matrix, which every glslc knows; here they
// become what other cards take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace rondo::devices::vulkan {

/// `code`: a SPIR-V module with cooperative matrices of SPV_NV_cooperative_matrix whose elements have 16 or 32 bits.
/// The same module by SPV_KHR_cooperative_matrix; with `bfloat16` its type of 16 bits becomes bf16 (SPV_KHR_bfloat16),
/// which then nothing but matrices may be of. Errors: InvalidArgument when it is no such module. Sources: the two
/// extensions' specifications and SPIR-V 1.5, 2.3 (physical layout).
absl::StatusOr<std::vector<std::uint32_t>> khr_cooperative_code(std::span<const std::uint32_t> code, bool bfloat16);

}  // namespace rondo::devices::vulkan
