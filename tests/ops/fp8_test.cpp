// Products of eight bits on the CPU against the reference: what operands are rounded to is the same, sums are fp32 and
// come in another order.
#include <gtest/gtest.h>

#include <string>

#include "fp8_case.h"
#include "on_the_cpu.h"

namespace rondo::devices::testing {
namespace {

TEST(CpuFp8, OfEverySize_AgreesWithTheReference) {
  for (const Fp8Case& one : fp8_cases()) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16}) {
      for (const Fp8Format format : {Fp8Format::kE4m3, Fp8Format::kHybrid}) {
        SCOPED_TRACE(std::string(one.name) + " " + name_of(storage) + (format == Fp8Format::kHybrid ? " hybrid" : ""));
        expect_reference_on_the_cpu(case_of(one, storage, format), storage);
      }
    }
  }
}

TEST(CpuFp8, RowsAndColumnsOfUnlikeSizes_HavePowersOfTheirOwn) {
  const OpCase op_case = case_of(kUnlike, DType::kFloat32);
  expect_reference_on_the_cpu(op_case, DType::kFloat32, [&](CaseMemory& memory) { make_unlike(op_case, memory); });
}

}  // namespace
}  // namespace rondo::devices::testing
