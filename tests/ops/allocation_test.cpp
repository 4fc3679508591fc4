// A run allocates nothing: operator new is counted while programs execute.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "op_case.h"
#include "rondo/devices/cpu/cpu_device.h"

namespace {
std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* place = std::malloc(size > 0 ? size : 1)) return place;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* place) noexcept { std::free(place); }
void operator delete[](void* place) noexcept { std::free(place); }
void operator delete(void* place, std::size_t) noexcept { std::free(place); }
void operator delete[](void* place, std::size_t) noexcept { std::free(place); }

namespace rondo::devices::testing {
namespace {

TEST(CpuExecutor_Execute, AnyOp_AllocatesNothing) {
  ThreadPool threads(2);
  cpu::CpuExecutor executor(threads);
  if (executor.numerics_class().find("-bf16") != std::string::npos) {
    GTEST_SKIP() << "never: oneDNN's bf16 primitives build an argument map at every call";
  }
  for (const OpDescription& description : op_descriptions()) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16}) {
      const OpCase op_case = description.make(storage, Scale::kOdd);
      absl::StatusOr<CaseMemory> memory = CaseMemory::make(op_case, 1);
      ASSERT_EQ(memory.status(), absl::OkStatus());
      auto program = executor.compile(op_case.list, plan_arena(op_case.list));
      ASSERT_EQ(program.status(), absl::OkStatus());
      // The first run may still make what lives once a thread (oneDNN's kernels are generated at their first use).
      ASSERT_EQ(executor.execute(**program, memory->bindings()), absl::OkStatus());
      const std::int64_t before = allocations.load();
      ASSERT_EQ(executor.execute(**program, memory->bindings()), absl::OkStatus());
      EXPECT_EQ(allocations.load() - before, 0) << description.name << " in " << name_of(storage);
    }
  }
}

}  // namespace
}  // namespace rondo::devices::testing
