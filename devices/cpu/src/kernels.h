// The vectorised kernels of the CPU backend other than matrix products, on raw pointers.
//
// Storage is fp32, bf16 or fp16 (`Storage`), arithmetic fp32. Every kernel cuts its work into tasks that follow from
// sizes alone and runs them on the host's pool; results do not depend on the number of threads. None allocates: scratch
// is handed in. Kernels are compiled for AVX2 and AVX-512 and chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "rondo/devices/op.h"
#include "rondo/devices/thread_pool.h"

namespace rondo::devices::cpu {

enum class Storage : std::uint8_t { kFloat32, kBfloat16, kFloat16 };

constexpr std::int64_t size_of(Storage storage) { return storage == Storage::kFloat32 ? 4 : 2; }
/// REQUIRES: one of the three.
constexpr Storage storage_of(DType dtype) {
  return dtype == DType::kBfloat16  ? Storage::kBfloat16
         : dtype == DType::kFloat16 ? Storage::kFloat16
                                    : Storage::kFloat32;
}

/// Name of the instruction set that the kernels run with: "AVX2", "AVX3" (AVX-512), ...
std::string kernel_target();

/// As OpKind::kNorm.  x, y: [rows, width], w and bias: [width], null where there is none.
void norm_forward(ThreadPool& pool, Storage storage, const void* x, const void* w, const void* bias, void* y,
                  std::int64_t rows, std::int64_t width, const NormAttributes& norm);

/// dx (+ addend) and dw. w, addend and dw may be null. dw fp32 [width] is added to: rows in chunks of kTokenChunk, each
/// chunk's sum added in rising order. scratch: norm_backward_scratch(rows, width) bytes.
void norm_backward(ThreadPool& pool, Storage storage, const void* x, const void* w, const void* dy, const void* addend,
                   void* dx, float* dw, std::int64_t rows, std::int64_t width, const NormAttributes& norm,
                   std::byte* scratch);
std::size_t norm_backward_scratch(std::int64_t rows, std::int64_t width);

/// x, y: [tokens, heads, head_dim]; positions [tokens]; bounds as BatchTensor::kBounds (used by dynamic scaling).
/// scratch: tokens * head_dim floats (cosine and sine of each token).
void rope(ThreadPool& pool, Storage storage, const void* x, const std::int32_t* positions, const std::int32_t* bounds,
          void* y, std::int64_t tokens, std::int64_t heads, std::int64_t head_dim, const RopeAttributes& attributes,
          std::byte* scratch);

struct AttentionShape {
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
};
struct TileUnits;  // kernels/tile_units.h
/// Causal attention within the sequences of `bounds`; no T x T matrix is ever held. Padding tokens give o = 0 and lse =
/// 0. `units` multiply in bf16, softmax and its gradient being rounded to it; null: fp32 in vectors, of any storage.
void attention(ThreadPool& pool, Storage storage, const TileUnits* units, const AttentionShape& shape,
               const AttentionAttributes& attributes, const void* q, const void* k, const void* v,
               const std::int32_t* bounds, void* o, float* lse, std::byte* scratch);
std::size_t attention_scratch(const AttentionShape& shape, const TileUnits* units, std::uint32_t threads);
void attention_backward(ThreadPool& pool, Storage storage, const TileUnits* units, const AttentionShape& shape,
                        const AttentionAttributes& attributes, const void* q, const void* k, const void* v,
                        const void* o, const float* lse, const void* d_o, const std::int32_t* bounds, void* dq,
                        void* dk, void* dv, std::byte* scratch);
std::size_t attention_backward_scratch(const AttentionShape& shape, const TileUnits* units, std::uint32_t threads);
/// Writes k and v into the caches [capacity, kv_heads, head_dim] at `positions`, then attends; o and lse as above.
/// shape.tokens: of q. Only the first bounds[bounds[0] + 1] tokens are real.
void cached_attention(ThreadPool& pool, Storage storage, const TileUnits* units, const AttentionShape& shape,
                      const AttentionAttributes& attributes, const void* q, const void* k, const void* v,
                      const std::int32_t* positions, const std::int32_t* bounds, void* k_cache, void* v_cache, void* o,
                      float* lse, std::byte* scratch);
std::size_t cached_attention_scratch(const AttentionShape& shape, const TileUnits* units, std::int64_t capacity,
                                     std::uint32_t threads);

/// y = cap * tanh(x / cap) over n elements; y may be x.
void soft_cap(ThreadPool& pool, Storage storage, float cap, const void* x, void* y, std::int64_t n);

/// y = activation(gate) * up over n elements; without up, and then without dup, as if that were 1.
void gated_activation(ThreadPool& pool, Storage storage, const GatedActivationAttributes& activation, const void* gate,
                      const void* up, void* y, std::int64_t n);
void gated_activation_backward(ThreadPool& pool, Storage storage, const GatedActivationAttributes& activation,
                               const void* gate, const void* up, const void* dy, void* dgate, void* dup,
                               std::int64_t n);

/// y[0 ... n) from encoded bytes (encoding.h). `encoding` is not kPlain.
void expand(ThreadPool& pool, Encoding encoding, Storage storage, const std::byte* encoded, void* y, std::int64_t n);
/// Of these two is_hadamard() is true, and n a multiple of kEncodedBlock.
void expand_hadamard(ThreadPool& pool, Encoding encoding, Storage storage, const std::byte* encoded, void* y,
                     std::int64_t n);
void encode(ThreadPool& pool, Encoding encoding, Storage storage, const void* x, std::byte* encoded, std::int64_t n);

/// What an operand of a product in eight bits is rounded to: along its rows, or along its columns.
enum class EightBits : std::uint8_t { kRowsE4m3, kRowsE5m2, kColumnsE4m3 };
/// y [rows, columns] = the nearest codes to x over its powers of two, times these: in bf16, which holds them exactly
/// down to 2^-126. See rondo/devices/fp8.h.
void round_to_eight_bits(ThreadPool& pool, Storage storage, const void* x, std::uint16_t* y, std::int64_t rows,
                         std::int64_t columns, EightBits format);

/// y = a (+ b); b may be null.
void add(ThreadPool& pool, Storage storage, const void* a, const void* b, void* y, std::int64_t n);

/// x, y: [tokens, width]; keys [tokens].
void dropout(ThreadPool& pool, Storage storage, const void* x, const std::uint64_t* keys, void* y, std::int64_t tokens,
             std::int64_t width, std::uint32_t layer, const DropoutAttributes& attributes);
void noise(ThreadPool& pool, Storage storage, const void* x, const std::uint64_t* keys, const std::int32_t* bounds,
           void* y, std::int64_t tokens, std::int64_t width, std::uint32_t layer, const NoiseAttributes& attributes);

/// scale[i] = m[i] / norm and inverse[i] = 1 / norm, norm the length of row i of w [rows, width] + alpha b [rows, rank]
/// a [rank, width]; 0 where it is 0. scratch: magnitude_scratch(rank, threads) bytes.
void magnitude_scale(ThreadPool& pool, Storage storage, const void* w, const void* a, const void* b, const float* m,
                     float alpha, float* scale, float* inverse, std::int64_t rows, std::int64_t width,
                     std::int64_t rank, std::byte* scratch);
std::size_t magnitude_scratch(std::int64_t rank, std::uint32_t threads);

/// y = x * scale [width / each] (+ bias [width]) (+ addend). x, y: [tokens, width]. bias and addend may be null.
/// `each`: columns beside one another that one scale is for.
void column_scale(ThreadPool& pool, Storage storage, const void* x, const float* scale, std::int64_t each,
                  const void* bias, const void* addend, void* y, std::int64_t tokens, std::int64_t width);

/// dx = dy * scale; dm [width] += inverse (null: 1) * sum over tokens of dy x, in chunks of kTokenChunk. scratch:
/// bias_gradient_scratch bytes.
void column_scale_backward(ThreadPool& pool, Storage storage, const void* x, const float* scale, const float* inverse,
                           const void* dy, void* dx, float* dm, std::int64_t tokens, std::int64_t width,
                           std::byte* scratch);

/// A chunk's logits of a part of the vocabulary, or of all of it, capped already.
struct PartLogits {
  const float* logits = nullptr;          // [tokens, rows]
  const std::int32_t* targets = nullptr;  // [tokens] places within the part, negative where it is in another one
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  float cap = 0.0F;  // 0: none
};
/// Their gradient: (softmax - onehot) * scale, with a cap times the slope of a logit before it.
struct PartGradient {
  void* to = nullptr;  // [filled_up, rows], null: not wanted; may be the logits themselves when `storage` is fp32
  Storage storage = Storage::kFloat32;
  float scale = 1.0F;
  std::int64_t filled_up = 0;  // rows from PartLogits::tokens on get zeros
};
/// Adds a part to statistics fp32 [tokens, 3] (maximum, sum of exponentials over it, the target's logit).
void vocabulary_statistics(ThreadPool& pool, const PartLogits& part, float* statistics);
/// Of the last part, after those that `statistics` are of: losses [tokens] and normalisers fp32 [tokens, 2] (maximum,
/// 1 / sum of exponentials over it). Before the first part statistics are -infinity, 0 and 0.
void vocabulary_loss(ThreadPool& pool, const PartLogits& last, const float* statistics, double* losses,
                     float* normalisers, const PartGradient& gradient);
void vocabulary_gradient(ThreadPool& pool, const PartLogits& part, const float* normalisers,
                         const PartGradient& gradient);

/// db[n] += sum over tokens of dy[t, n], in chunks of kTokenChunk. scratch: chunk sums, bias_gradient_scratch bytes.
void bias_gradient(ThreadPool& pool, Storage storage, const void* dy, float* db, std::int64_t tokens,
                   std::int64_t width, std::byte* scratch);
std::size_t bias_gradient_scratch(std::int64_t tokens, std::int64_t width);

/// Between fp32 and `storage` (to nearest, ties to even), n elements.
void to_float32(ThreadPool& pool, Storage storage, const void* x, float* y, std::int64_t n);
void from_float32(ThreadPool& pool, const float* x, Storage storage, void* y, std::int64_t n);

}  // namespace rondo::devices::cpu
