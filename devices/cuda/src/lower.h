// From an OpList to the steps of a card: which kernels, over which grids, with which workspace. Pure: no card is asked.
#pragma once

#include "products.h"
#include "rondo/devices/op.h"
#include "steps.h"

namespace rondo::devices::cuda {

/// What the card offers.
struct LowerOptions {
  ProductEngine* engine = nullptr;  // null: products by our own kernel alone
  bool float16_units = false;       // m16n8k16 products of fp16, or halves of them: sm_75 and later
  bool bfloat16_units = false;      // m16n8k16 products of bf16: sm_80 and later
  bool warpgroups = false;          // products of whole warpgroups: sm_90a
  bool fp8 = false;                 // products of eight bits: sm_89 and later
  bool fp8_scales = false;          // the library puts the powers of two to their sums, where it can
  std::int64_t multiprocessors = 1;
  Bytes most_shared = 48_KiB;  // shared memory of a block
  Bytes logits = 0;            // of a chunk of tokens over the whole vocabulary, see logits_chunk()

  /// Whether the card has m16n8k16 products of such numbers.
  bool has_units(DType dtype) const {
    return (dtype == DType::kFloat16 && float16_units) || (dtype == DType::kBfloat16 && bfloat16_units);
  }
};

/// Tokens whose logits exist at one time: as many chunks of cross_entropy_chunk() as `room` bytes hold, one at least.
/// Products of few rows leave most of a card idle.
std::int64_t logits_chunk(std::int64_t vocabulary, Bytes room);

/// REQUIRES: validate(list). Errors: Unimplemented naming the op, the tensor and what there is.
absl::StatusOr<Steps> lower(const OpList& list, const LowerOptions& options);

}  // namespace rondo::devices::cuda
