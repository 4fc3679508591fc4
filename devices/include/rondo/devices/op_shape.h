// The few numbers of an op that decide how long a device takes: what measured times are kept under.
#pragma once

#include <cstdint>
#include <tuple>

#include "rondo/devices/op.h"

namespace rondo::devices {

/// What an op is, and how large. Ops of one shape cost the same work (work_of) on the same number of tokens.
struct OpShape {
  OpKind kind = OpKind::kAdd;
  DType dtype = DType::kFloat32;  // of the first floating operand
  std::uint8_t reads = 0;         // how many operands: addends, biases and optional gradients are work too
  std::uint8_t writes = 0;
  std::int64_t rows = 0;     // tokens; DoRA's lengths: rows of w; encoded weights: elements
  std::int64_t columns = 0;  // products: N of w [N, K]; of a vocabulary: a part's mean rows; others: elements a token;
                             // encoded weights: 0
  std::int64_t inner = 0;    // products, vocabularies: K; attention: tokens it looks back over; lengths: R; else 0
  std::int64_t heads = 0;    // of tensors [T, H, D]; grouped products: experts; else 0
  bool fp8 = false;          // products of eight bits

  bool operator==(const OpShape&) const = default;
  bool operator<(const OpShape& other) const {
    return std::tie(kind, dtype, reads, writes, rows, columns, inner, heads, fp8) <
           std::tie(other.kind, other.dtype, other.reads, other.writes, other.rows, other.columns, other.inner,
                    other.heads, other.fp8);
  }
};

/// `sequence_length`: as in cost_of().
OpShape shape_of(const OpList& list, const Op& op, std::uint32_t sequence_length);

/// What a rate counts: FLOPs where an op has any, else bytes.
inline double work_of(const OpCost& cost) { return cost.flops > 0 ? cost.flops : cost.bytes; }

}  // namespace rondo::devices
