// Descriptions of tensors: plain data, no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "rondo/base/units.h"

namespace rondo::devices {

enum class DType : std::uint8_t { kFloat32, kBfloat16, kFloat16, kFloat64, kInt32, kUInt64 };

/// Size of one element in bytes.
constexpr Bytes size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBfloat16:
    case DType::kFloat16:
      return 2;
    case DType::kFloat64:
    case DType::kUInt64:
      return 8;
  }
  return 0;
}

/// Of the types that are computed in: fp32, bf16, fp16.
constexpr bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBfloat16 || dtype == DType::kFloat16;
}

/// "fp32", "bf16", ...: the spelling of configuration files.
const char* name_of(DType dtype);

/// How the elements of a tensor lie in memory: one after another, or in codes of blocks (encoding.h) that kExpand turns
/// into numbers.
enum class Encoding : std::uint8_t {
  kPlain,
  kInt8,       // of frozen weights
  kNf4,        // likewise
  kMxfp4,      // likewise, as some are published
  kHadamard8,  // of activations and their gradients between layers
  kHadamard4,  // likewise
};
inline constexpr std::int64_t kEncodedBlock = 64;  // elements that share a scale
inline constexpr std::int64_t kScaleBlock = 256;   // kNf4: blocks whose scales share one
inline constexpr std::int64_t kMxfp4Block = 32;    // kMxfp4: elements that share a scale

/// "plain", "int8", "nf4", "mxfp4", "hadamard8", "hadamard4".
const char* name_of(Encoding encoding);

/// Those that kEncode writes. They hold whole blocks: a row of such a tensor is a multiple of kEncodedBlock long.
constexpr bool is_hadamard(Encoding encoding) {
  return encoding == Encoding::kHadamard8 || encoding == Encoding::kHadamard4;
}

/// Bytes of encoded elements. REQUIRES: not kPlain.
constexpr Bytes encoded_bytes(Encoding encoding, std::int64_t elements) {
  const auto count = static_cast<Bytes>(elements);
  const Bytes blocks = (count + kEncodedBlock - 1) / kEncodedBlock;
  if (encoding == Encoding::kInt8 || encoding == Encoding::kHadamard8) {
    return round_up(count, 64) + round_up(blocks * 4, 64);
  }
  if (encoding == Encoding::kMxfp4) {
    return round_up((count + 1) / 2, 64) + round_up((count + kMxfp4Block - 1) / kMxfp4Block, 64);
  }
  if (encoding == Encoding::kHadamard4) return round_up(blocks * kEncodedBlock / 2, 64) + round_up(blocks * 4, 64);
  const Bytes groups = (blocks + kScaleBlock - 1) / kScaleBlock;
  return round_up((count + 1) / 2, 64) + round_up(blocks, 64) + round_up(groups * 4, 64) + 64;
}

/// Row-major, outermost dimension first.
using Shape = absl::InlinedVector<std::int64_t, 4>;

inline std::int64_t elements_of(const Shape& shape) {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

/// What a tensor of an OpList is to its program. All but kScratch are bound from outside at each run.
enum class TensorRole : std::uint8_t {
  kWeight,    // index: of the layer's parameter
  kGradient,  // index: of the layer's parameter; fp32, added to
  kRows,      // sparse gradient of a lookup table, see OpKind::kEmbeddingBackward; index 0: row ids, 1: rows
  kInput,     // index 0: activation from the layer before, 1: gradient from the layer after
  kOutput,    // index 0: activation for the layer after, or gradient for the layer before
  kSaved,  // index: position in the layer's list of saved tensors; written by a forward program, read by a backward one
  kHeld,   // index likewise: of what gradients of weights read that are computed by a program of their own
  kBatch,  // index: a BatchTensor
  kState,  // index 0: key cache, 1: value cache; of linear attention: state, what came before (1 to 3), second state
  kLoss,   // [1] fp64: sum of -log p over the targets of the microbatch, written
  kLogits,   // [1, V] fp32, written
  kScratch,  // lives in the program's arena
};

/// What describes a microbatch of T tokens (T is the program's bucket; tokens past the last bound are padding).
enum class BatchTensor : std::uint8_t {
  kIds,        // [T] int32
  kPositions,  // [T] int32, from 0 in each sequence
  kTargets,    // [T] int32, the id to predict after this token, negative: none
  kBounds,     // [T + 2] int32: n, then first token of each of the n sequences, then the number of real tokens
  kKeys,       // [T] uint64 of the random numbers
  kLossScale,  // [1] fp32, what gradients are multiplied by on their way (fp16)
  kBlockRows,  // [T, W] of the activations' dtype: what the host has looked up for the layer's block
};
/// Of those that are the same for all layers: without kBlockRows, which comes last.
inline constexpr std::size_t kBatchTensors = 6;

struct TensorDesc {
  std::string name;
  Shape shape;
  DType dtype = DType::kFloat32;
  TensorRole role = TensorRole::kScratch;
  std::uint32_t index = 0;               // meaning: see TensorRole
  Encoding encoding = Encoding::kPlain;  // of weights, inputs and outputs; `dtype` is what they expand to

  std::int64_t elements() const { return elements_of(shape); }
  Bytes bytes() const {
    if (encoding != Encoding::kPlain) return encoded_bytes(encoding, elements());
    return static_cast<Bytes>(elements()) * size_of(dtype);
  }
};

using TensorId = std::uint32_t;

}  // namespace rondo::devices
