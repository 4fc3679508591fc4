// Products of eight bits on the CPU against the reference: what operands are rounded to is the same, sums are fp32 and
// come in another order.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "comparison.h"
#include "fp8_case.h"
#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/reference/reference.h"

namespace rondo::devices::testing {
namespace {

void check(const OpCase& op_case, const std::function<void(CaseMemory&)>& change = nullptr) {
  ASSERT_EQ(validate(op_case.list), absl::OkStatus());
  ThreadPool threads(2);
  cpu::CpuExecutor executor(threads);
  absl::StatusOr<CaseMemory> want = CaseMemory::make(op_case, 1);
  absl::StatusOr<CaseMemory> got = CaseMemory::make(op_case, 2);
  ASSERT_EQ(want.status(), absl::OkStatus());
  ASSERT_EQ(got.status(), absl::OkStatus());
  if (change) change(*want);
  got->copy_from(*want);
  auto program = executor.compile(op_case.list, plan_arena(op_case.list));
  ASSERT_EQ(program.status(), absl::OkStatus());
  ASSERT_EQ(executor.execute(**program, got->bindings()), absl::OkStatus());
  ASSERT_EQ(run_reference(op_case.list, want->bindings()), absl::OkStatus());
  for (const Op& op : op_case.list.ops) {
    for (const TensorId id : op.writes) expect_close({op_case, op, false}, id, *got, *want);
  }
}

TEST(CpuFp8, OfEverySize_AgreesWithTheReference) {
  for (const Fp8Case& one : fp8_cases()) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16}) {
      for (const Fp8Format format : {Fp8Format::kE4m3, Fp8Format::kHybrid}) {
        SCOPED_TRACE(std::string(one.name) + " " + name_of(storage) + (format == Fp8Format::kHybrid ? " hybrid" : ""));
        check(case_of(one, storage, format));
      }
    }
  }
}

TEST(CpuFp8, RowsAndColumnsOfUnlikeSizes_HavePowersOfTheirOwn) {
  const OpCase op_case = case_of(kUnlike, DType::kFloat32);
  check(op_case, [&](CaseMemory& memory) { make_unlike(op_case, memory); });
}

}  // namespace
}  // namespace rondo::devices::testing
