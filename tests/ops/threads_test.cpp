// No result depends on the number of threads: identical bits with 1, 2 and 3.
#include <gtest/gtest.h>

#include <cstring>

#include "every_op.h"
#include "rondo/devices/cpu/cpu_device.h"

namespace rondo::devices::testing {
namespace {

class EveryOpWithAnyThreads : public OpTest {};

absl::Status run_on(std::uint32_t thread_count, const OpCase& op_case, const CaseMemory& memory) {
  ThreadPool threads(thread_count);
  cpu::CpuExecutor executor(threads);
  auto program = executor.compile(op_case.list, plan_arena(op_case.list));
  return program.ok() ? executor.execute(**program, memory.bindings()) : program.status();
}

TEST_P(EveryOpWithAnyThreads, OnTheCpu_GivesTheSameBits) {
  const OpCase op_case = this->op_case();
  absl::StatusOr<CaseMemory> expected = CaseMemory::make(op_case, 1);
  ASSERT_EQ(expected.status(), absl::OkStatus());
  ASSERT_EQ(run_on(1, op_case, *expected), absl::OkStatus());
  for (const std::uint32_t threads : {2U, 3U}) {
    absl::StatusOr<CaseMemory> got = CaseMemory::make(op_case, 1);
    ASSERT_EQ(got.status(), absl::OkStatus());
    ASSERT_EQ(run_on(threads, op_case, *got), absl::OkStatus());
    for (TensorId id = 0; id < op_case.list.tensors.size(); ++id) {
      const TensorDesc& desc = op_case.list.tensors[id];
      EXPECT_EQ(std::memcmp(got->data(id), expected->data(id), desc.bytes()), 0)
          << "'" << desc.name << "' with " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryOpWithAnyThreads, every_op(), name_of_op_test);

}  // namespace
}  // namespace rondo::devices::testing
