// Compares what a device computed with the reference, within the bounds of tolerance.h.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "op_case.h"
#include "tolerance.h"

namespace rondo::devices::testing {

struct Compared {
  const OpCase& op_case;
  const Op& op;
  bool narrow_products;
};

inline void expect_close(const Compared& compared, TensorId id, const CaseMemory& got, const CaseMemory& want) {
  const TensorDesc& desc = compared.op_case.list.tensors[id];
  if (desc.dtype == DType::kInt32 || desc.encoding != Encoding::kPlain) {
    EXPECT_EQ(std::memcmp(got.data(id), want.data(id), desc.bytes()), 0) << desc.name;
    return;
  }
  double squares = 0;
  for (std::int64_t i = 0; i < desc.elements(); ++i) squares += want.get(id, i) * want.get(id, i);
  const double rms = std::sqrt(squares / static_cast<double>(desc.elements()));
  double absolute = units_of(compared.op.kind) * 0x1.0p-24 * std::sqrt(static_cast<double>(compared.op_case.reduction));
  if (compared.op.kind == OpKind::kCrossEntropy && compared.narrow_products) absolute += kNarrowEntropyGradient;
  for (std::int64_t i = 0; i < desc.elements(); ++i) {
    const double allowed = rounding_of(desc.dtype) * std::abs(want.get(id, i)) + absolute * rms;
    ASSERT_LE(std::abs(got.get(id, i) - want.get(id, i)), allowed)
        << name_of(compared.op.kind) << ": '" << desc.name << "' element " << i << " is " << got.get(id, i)
        << ", expected " << want.get(id, i) << ", rms " << rms;
  }
}

}  // namespace rondo::devices::testing
