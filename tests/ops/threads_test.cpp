// No result depends on the number of threads: identical bits with 1, 2 and 3.
#include <gtest/gtest.h>

#include <cstring>

#include "op_case.h"
#include "rondo/devices/cpu/cpu_device.h"

namespace rondo::devices::testing {
namespace {

class EveryOpWithAnyThreads : public ::testing::TestWithParam<std::tuple<std::size_t, DType>> {};

absl::Status run_on(std::uint32_t thread_count, const OpCase& op_case, const CaseMemory& memory) {
  ThreadPool threads(thread_count);
  cpu::CpuExecutor executor(threads);
  auto program = executor.compile(op_case.list, plan_arena(op_case.list));
  return program.ok() ? executor.execute(**program, memory.bindings()) : program.status();
}

TEST_P(EveryOpWithAnyThreads, OnTheCpu_GivesTheSameBits) {
  const OpDescription& description = op_descriptions()[std::get<0>(GetParam())];
  const OpCase op_case = description.make(std::get<1>(GetParam()), Scale::kOdd);
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

INSTANTIATE_TEST_SUITE_P(, EveryOpWithAnyThreads,
                         ::testing::Combine(::testing::Range<std::size_t>(0, op_descriptions().size()),
                                            ::testing::Values(DType::kFloat32, DType::kBfloat16)),
                         [](const auto& instance) {
                           return std::string(op_descriptions()[std::get<0>(instance.param)].name) + "_" +
                                  name_of(std::get<1>(instance.param));
                         });

}  // namespace
}  // namespace rondo::devices::testing
