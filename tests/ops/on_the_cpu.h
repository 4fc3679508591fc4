// Ops on the CPU against the reference.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "comparison.h"
#include "op_case.h"
#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/reference/reference.h"

namespace rondo::devices::testing {

/// Each op of the case, which is of `storage`, alone, on the reference's own inputs, which `change` may make others of.
inline void expect_reference_on_the_cpu(const OpCase& op_case, DType storage,
                                        const std::function<void(CaseMemory&)>& change = nullptr) {
  ASSERT_EQ(validate(op_case.list), absl::OkStatus());
  ThreadPool threads(2);
  cpu::CpuExecutor executor(threads);
  absl::StatusOr<CaseMemory> want = CaseMemory::make(op_case, 1);
  absl::StatusOr<CaseMemory> got = CaseMemory::make(op_case, 2);
  ASSERT_EQ(want.status(), absl::OkStatus());
  ASSERT_EQ(got.status(), absl::OkStatus());
  if (change) change(*want);
  const bool multiplies_bfloat16 = executor.numerics_class().find("-bf16") != std::string::npos;
  for (std::size_t place = 0; place < op_case.list.ops.size(); ++place) {
    const OpList list = single_op(op_case.list, place);
    got->copy_from(*want);
    auto program = executor.compile(list, plan_arena(list));
    ASSERT_EQ(program.status(), absl::OkStatus());
    ASSERT_EQ(executor.execute(**program, got->bindings()), absl::OkStatus());
    ASSERT_EQ(run_reference(list, want->bindings()), absl::OkStatus());
    const Op& op = op_case.list.ops[place];
    const bool narrow = multiplies_bfloat16 && storage == DType::kBfloat16;
    const Compared compared{op_case, op, narrow, narrow};
    for (const TensorId id : op.writes) expect_close(compared, id, *got, *want);
    for (const TensorId id : op.reads) {  // the caches are written as well, nothing else is
      if (list.tensors[id].dtype != DType::kUInt64) expect_close(compared, id, *got, *want);
    }
  }
}

}  // namespace rondo::devices::testing
