// Kernels by number, as the host names them.
#pragma once

#include "storage.h"

namespace rondo::devices::cuda {

enum class KernelId : std::uint16_t {
#define RONDO_KERNEL_ENTRY(name, kernel, params) k_##name,
#include "kernels.def"
#undef RONDO_KERNEL_ENTRY
  kCount
};
inline constexpr int kKernels = static_cast<int>(KernelId::kCount);

/// Entry of the module.
inline const char* entry_of(KernelId id) {
  static constexpr const char* kEntries[] = {
#define RONDO_KERNEL_ENTRY(name, kernel, params) "rondo_" #name,
#include "kernels.def"
#undef RONDO_KERNEL_ENTRY
  };
  return kEntries[static_cast<int>(id)];
}

/// The kernel of a family for a storage: `fp32` names the family.
constexpr KernelId of_storage(KernelId fp32, Storage storage) {
  return static_cast<KernelId>(static_cast<int>(fp32) + static_cast<int>(storage));
}

/// The kernel of a family for a two-byte storage: `bf16` names the family.
constexpr KernelId of_narrow(KernelId bf16, Storage storage) {
  return static_cast<KernelId>(static_cast<int>(bf16) + (storage == Storage::kFloat16 ? 1 : 0));
}

/// The kernel of a family of matrix_tiles.h: `bf16_64` names the family. REQUIRES: two-byte storage, heads of 64 or
/// 128.
constexpr KernelId of_matrix(KernelId bf16_64, Storage storage, int head_dim) {
  return static_cast<KernelId>(static_cast<int>(bf16_64) + (storage == Storage::kFloat16 ? 2 : 0) +
                               (head_dim == 128 ? 1 : 0));
}

/// The kernel of a family of wide_tiles.h: `bf16_128` names the family. REQUIRES: two-byte storage, kernel's heads of
/// 128, 256 or 512, see wide_head().
constexpr KernelId of_wide(KernelId bf16_128, Storage storage, int head) {
  return static_cast<KernelId>(static_cast<int>(bf16_128) + (storage == Storage::kFloat16 ? 3 : 0) +
                               (head == 512   ? 2
                                : head == 256 ? 1
                                              : 0));
}

/// Whether it is one of product.h.
constexpr bool is_product(KernelId id) { return id >= KernelId::k_product_fp32 && id <= KernelId::k_product_e5m2; }

/// Whether it takes GroupedGradientParams.
constexpr bool is_grouped_gradient(KernelId id) {
  return (id >= KernelId::k_grouped_gradient_fp32 && id <= KernelId::k_grouped_gradient_fp16) ||
         (id >= KernelId::k_matrix_grouped_gradient_bf16 && id <= KernelId::k_matrix_grouped_gradient_fp16);
}

/// Whether warpgroups multiply in it (group_products.h).
constexpr bool is_of_groups(KernelId id) {
  return id >= KernelId::k_group_attention_bf16_64 && id <= KernelId::k_group_queries_fp16_128;
}

/// Whether it is of wide_tiles.h.
constexpr bool is_wide(KernelId id) {
  return id >= KernelId::k_wide_attention_bf16_128 && id <= KernelId::k_wide_queries_fp16_512;
}

}  // namespace rondo::devices::cuda
