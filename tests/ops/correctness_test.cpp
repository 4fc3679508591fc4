// Every op on the CPU against the reference, in fp32, bf16 and fp16, each op on the reference's own inputs.
#include <gtest/gtest.h>

#include "comparison.h"
#include "every_op.h"
#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/reference/reference.h"

namespace rondo::devices::testing {
namespace {

class EveryOp : public OpTest {};

TEST_P(EveryOp, OnTheCpu_AgreesWithTheReference) {
  const OpCase op_case = this->op_case();
  ASSERT_EQ(validate(op_case.list), absl::OkStatus());
  ThreadPool threads(2);
  cpu::CpuExecutor executor(threads);
  absl::StatusOr<CaseMemory> want = CaseMemory::make(op_case, 1);
  absl::StatusOr<CaseMemory> got = CaseMemory::make(op_case, 2);
  ASSERT_EQ(want.status(), absl::OkStatus());
  ASSERT_EQ(got.status(), absl::OkStatus());
  for (std::size_t place = 0; place < op_case.list.ops.size(); ++place) {
    const OpList list = single_op(op_case.list, place);
    got->copy_from(*want);
    auto program = executor.compile(list, plan_arena(list));
    ASSERT_EQ(program.status(), absl::OkStatus());
    ASSERT_EQ(executor.execute(**program, got->bindings()), absl::OkStatus());
    ASSERT_EQ(run_reference(list, want->bindings()), absl::OkStatus());
    const Compared compared{
        op_case, op_case.list.ops[place],
        executor.numerics_class().find("-bf16") != std::string::npos && std::get<1>(GetParam()) == DType::kBfloat16};
    for (const TensorId id : compared.op.writes) expect_close(compared, id, *got, *want);
    for (const TensorId id : compared.op.reads) {  // the caches are written as well, nothing else is
      if (list.tensors[id].dtype != DType::kUInt64) expect_close(compared, id, *got, *want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryOp, every_op(), name_of_op_test);

}  // namespace
}  // namespace rondo::devices::testing
