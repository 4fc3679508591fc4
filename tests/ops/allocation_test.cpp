// A run allocates nothing: operator new is counted while programs execute.
#include <gtest/gtest.h>

#include "allocation_count.h"
#include "op_case.h"
#include "rondo/devices/cpu/cpu_device.h"

namespace rondo::devices::testing {
namespace {

TEST(CpuExecutor_Execute, AnyOp_AllocatesNothing) {
  ThreadPool threads(2);
  cpu::CpuExecutor executor(threads);
  if (executor.numerics_class().find("-bf16") != std::string::npos) {
    GTEST_SKIP() << "never: oneDNN's bf16 primitives build an argument map at every call";
  }
  for (const OpDescription& description : op_descriptions()) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
      const OpCase op_case = description.make(storage, Scale::kOdd);
      absl::StatusOr<CaseMemory> memory = CaseMemory::make(op_case, 1);
      ASSERT_EQ(memory.status(), absl::OkStatus());
      auto program = executor.compile(op_case.list, plan_arena(op_case.list));
      ASSERT_EQ(program.status(), absl::OkStatus());
      // The first run may still make what lives once a thread (oneDNN's kernels are generated at their first use).
      ASSERT_EQ(executor.execute(**program, memory->bindings()), absl::OkStatus());
      const std::uint64_t before = rondo::allocation::allocations_so_far();
      ASSERT_EQ(executor.execute(**program, memory->bindings()), absl::OkStatus());
      EXPECT_EQ(rondo::allocation::allocations_so_far(), before) << description.name << " in " << name_of(storage);
    }
  }
}

}  // namespace
}  // namespace rondo::devices::testing
