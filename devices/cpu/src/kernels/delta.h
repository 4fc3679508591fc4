// The kernels of linear attention: a short convolution, and the gated delta rule with its gradient. As those of
// kernels.h: storage is fp32, bf16 or fp16, arithmetic fp32; results do not depend on the number of threads; scratch is
// handed in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace rondo::devices::cpu {

struct ConvolutionShape {
  std::int64_t tokens = 0;
  std::int64_t channels = 0;
  std::int64_t width = 0;
  bool silu = true;
};

/// As OpKind::kConvolution.  x, y: [tokens, channels], w: [channels, width], bias [channels] or null. `positions` and
/// `state` [width - 1, channels] are both null or both there. scratch: convolution_scratch() bytes.
void convolution(ThreadPool& pool, Storage storage, const ConvolutionShape& shape, const void* x, const void* w,
                 const void* bias, const std::int32_t* bounds, const std::int32_t* positions, void* state, void* y,
                 std::byte* scratch);
std::size_t convolution_scratch(const ConvolutionShape& shape);

/// dx, and dw [channels, width], which is added to; dw may be null.
void convolution_backward(ThreadPool& pool, Storage storage, const ConvolutionShape& shape, const void* x,
                          const void* w, const std::int32_t* bounds, const void* dy, void* dx, float* dw,
                          std::byte* scratch);
std::size_t convolution_backward_scratch(const ConvolutionShape& shape, std::uint32_t threads);

struct DeltaShape {
  std::int64_t tokens = 0;
  std::int64_t key_heads = 0;
  std::int64_t heads = 0;
  std::int64_t size = 0;   // of a key
  std::int64_t width = 0;  // of a value
  bool state_space = false;
};

/// What both directions read: q, k [tokens, key_heads, size], v [tokens, heads, width], g, beta [tokens, heads].
struct DeltaOperands {
  const void* q;
  const void* k;
  const void* v;
  const float* g;
  const float* beta;
  const std::int32_t* bounds;
};

/// As OpKind::kDeltaRule without a state.  o [tokens, heads, width], checkpoints [ceil(tokens / kDeltaChunk), heads,
/// size, width].
void delta_rule(ThreadPool& pool, Storage storage, const DeltaShape& shape, const DeltaOperands& operands, void* o,
                float* checkpoints, std::byte* scratch);
/// With a state [heads, size, width], from which the one sequence goes on unless its first token is at position 0.
void delta_rule_from(ThreadPool& pool, Storage storage, const DeltaShape& shape, const DeltaOperands& operands,
                     const std::int32_t* positions, float* state, void* o, std::byte* scratch);
/// Of both.
std::size_t delta_rule_scratch(const DeltaShape& shape, std::uint32_t threads);

struct DeltaGradients {
  void* dq;
  void* dk;
  void* dv;
  float* dg;
  float* dbeta;
};
void delta_rule_backward(ThreadPool& pool, Storage storage, const DeltaShape& shape, const DeltaOperands& operands,
                         const float* checkpoints, const void* d_o, const DeltaGradients& gradients,
                         std::byte* scratch);
std::size_t delta_rule_backward_scratch(const DeltaShape& shape, std::uint32_t threads);

}  // namespace rondo::devices::cpu
