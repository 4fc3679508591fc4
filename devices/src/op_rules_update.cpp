// The rules of an optimizer's ops.
#include "op_checker.h"
#include "rondo/devices/moment_tables.h"
#include "rondo/devices/update.h"

namespace rondo::devices {
namespace {

void check_add_rows(Checker& c) {
  if (c.attributes<AddRowsAttributes>() == nullptr || !c.counts(2, 1)) return;
  c.rank(c.in(1), 2);
  c.rank(c.out(0), 2);
  if (!c.good()) return;
  c.shape(c.in(0), {c.in(1).shape[0] + 1});
  c.dtype(c.in(0), DType::kInt32);
  c.dtype(c.in(1), DType::kFloat32);
  c.matrix(c.out(0), c.out(0).shape[0], c.in(1).shape[1]);
  c.dtype(c.out(0), DType::kFloat32);
}

/// Numbers of whole blocks. How many blocks.
std::int64_t check_flat(Checker& c, const TensorDesc& tensor) {
  constexpr auto kBlock = static_cast<std::int64_t>(kUpdateBlock);
  c.rank(tensor, 1);
  if (c.good() && tensor.shape[0] % kBlock != 0) {
    c.complain(fmt::format("tensor '{}' has {} elements, no whole blocks of {}", tensor.name, tensor.shape[0], kBlock));
  }
  return c.good() ? tensor.shape[0] / kBlock : 0;
}

void check_sum_of_squares(Checker& c) {
  if (!c.counts(1, 1)) return;
  const std::int64_t blocks = check_flat(c, c.in(0));
  c.dtype(c.in(0), DType::kFloat32);
  c.shape(c.out(0), {blocks});
  c.dtype(c.out(0), DType::kFloat64);
}

void check_adamw(Checker& c) {
  const bool coded = c.op().kind == OpKind::kAdamW8;
  if (!c.counts(coded ? 10 : 7, c.writes() == 0 ? 0 : 1)) return;
  const std::int64_t blocks = check_flat(c, c.in(0));
  c.dtype(c.in(0), DType::kFloat32);
  c.rank(c.in(2), 1);
  if (!c.good()) return;
  c.wide(c.in(1), {c.in(2).shape[0], kUpdateFactors});
  c.dtype(c.in(2), DType::kUInt64);
  c.shape(c.in(3), {blocks, 2});
  c.dtype(c.in(3), DType::kInt32);
  c.alike(c.in(4), c.in(0));
  for (std::size_t i = 4; i < (coded ? 9 : 7); ++i) {
    c.state(c.in(i));
  }
  if (coded) {
    for (const std::size_t i : {5U, 7U}) {
      c.shape(c.in(i), {c.in(0).shape[0] / 4});
      c.dtype(c.in(i), DType::kInt32);
      c.wide(c.in(i + 1), {c.in(0).shape[0] / static_cast<std::int64_t>(kMomentBlock)});
    }
    c.shape(c.in(9), {kMomentTableWords});
    c.dtype(c.in(9), DType::kInt32);
  } else {
    for (const std::size_t i : {5U, 6U}) c.alike(c.in(i), c.in(0));
  }
  if (c.writes() == 0) return;
  c.shape(c.out(0), c.in(0).shape);
  if (c.out(0).dtype != DType::kBfloat16 && c.out(0).dtype != DType::kFloat16) {
    c.complain(fmt::format("tensor '{}' is {}, expected bf16 or fp16", c.out(0).name, name_of(c.out(0).dtype)));
  }
}

}  // namespace

void check_update(Checker& c) {
  switch (c.op().kind) {
    case OpKind::kAddRows:
      return check_add_rows(c);
    case OpKind::kSumOfSquares:
      return check_sum_of_squares(c);
    default:
      return check_adamw(c);
  }
}

}  // namespace rondo::devices
