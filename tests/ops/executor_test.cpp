// What the executor refuses, and what it says about its memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "op_case.h"
#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/host_memory.h"

namespace rondo::devices::testing {
namespace {

using ::testing::HasSubstr;

const OpDescription& description_of(const std::string& name) {
  for (const OpDescription& description : op_descriptions()) {
    if (name == description.name) return description;
  }
  ADD_FAILURE() << "no op case " << name;
  return op_descriptions().front();
}

class CpuExecutorTest : public ::testing::Test {
 protected:
  absl::Status run(const OpCase& op_case, const Bindings& bindings) {
    auto program = executor_.compile(op_case.list, plan_arena(op_case.list));
    return program.ok() ? executor_.execute(**program, bindings) : program.status();
  }

  ThreadPool threads_{2};
  cpu::CpuExecutor executor_{threads_};
};

TEST_F(CpuExecutorTest, ScratchOfAllPrograms_IsTheLargestOfThoseThatAreLeftAndIsCounted) {
  const OpCase small = description_of("MatMul").make(DType::kBfloat16, Scale::kOdd);
  cpu::CpuExecutor other(threads_);
  ASSERT_EQ(other.compile(small.list, plan_arena(small.list)).status(), absl::OkStatus());
  const Bytes before = host_memory_account()["cpu scratch"].now;
  const OpCase large = description_of("MatMul_SeveralChunks").make(DType::kBfloat16, Scale::kOdd);
  auto program = executor_.compile(large.list, plan_arena(large.list));
  ASSERT_EQ(program.status(), absl::OkStatus());
  const Bytes needed = executor_.scratch_bytes();
  EXPECT_GT(needed, other.scratch_bytes());
  const bool converts = executor_.numerics_class().find("-bf16") == std::string::npos;
  EXPECT_GT(needed, converts ? Bytes{1280} * 150 * 4 : 0);  // at least the converted activations
  ASSERT_EQ(executor_.compile(small.list, plan_arena(small.list)).status(), absl::OkStatus());
  EXPECT_EQ(executor_.scratch_bytes(), needed);
  EXPECT_EQ(host_memory_account()["cpu scratch"].now - before, needed);
  program->reset();
  ASSERT_EQ(executor_.compile(small.list, plan_arena(small.list)).status(), absl::OkStatus());
  EXPECT_EQ(executor_.scratch_bytes(), other.scratch_bytes());
  EXPECT_EQ(host_memory_account()["cpu scratch"].now - before, other.scratch_bytes());
}

/// Programs of all layers, phases and buckets have the same products, and objects of them for each thread.
TEST_F(CpuExecutorTest, ProductsOfSeveralPrograms_ArePreparedOnce) {
  const OpCase op_case = description_of("MatMul").make(DType::kBfloat16, Scale::kOdd);
  const auto prepared = [] { return host_memory_account()["prepared products"].now; };
  const Bytes before = prepared();
  {
    cpu::CpuExecutor executor(threads_);
    const auto first = executor.compile(op_case.list, plan_arena(op_case.list));
    ASSERT_EQ(first.status(), absl::OkStatus());
    const Bytes of_one = prepared() - before;
    const bool prepares = executor.numerics_class().find("-bf16") != std::string::npos;
    EXPECT_EQ(of_one > 0, prepares);
    const auto second = executor.compile(op_case.list, plan_arena(op_case.list));
    ASSERT_EQ(second.status(), absl::OkStatus());
    EXPECT_EQ(prepared() - before, of_one);
  }
  EXPECT_EQ(prepared(), before);
}

TEST_F(CpuExecutorTest, Programs_AreCountedWhileTheyAreThere) {
  const OpCase op_case = description_of("MatMul").make(DType::kFloat32, Scale::kOdd);
  const auto counted = [] { return host_memory_account()[kPrograms].now; };
  const Bytes before = counted();
  {
    const auto program = executor_.compile(op_case.list, plan_arena(op_case.list));
    ASSERT_EQ(program.status(), absl::OkStatus());
    EXPECT_GT(counted(), before);
  }
  EXPECT_EQ(counted(), before);
}

TEST_F(CpuExecutorTest, MissingTensor_IsRefusedByName) {
  const OpCase op_case = description_of("MatMul").make(DType::kFloat32, Scale::kOdd);
  auto memory = CaseMemory::make(op_case, 1);
  ASSERT_EQ(memory.status(), absl::OkStatus());
  Bindings bindings = memory->bindings();
  bindings.tensors[1].size -= 1;
  const absl::Status status = run(op_case, bindings);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'w'"));
}

TEST_F(CpuExecutorTest, IdPastTheTable_IsRefused) {
  const OpCase op_case = description_of("Embedding").make(DType::kFloat32, Scale::kOdd);
  auto memory = CaseMemory::make(op_case, 1);
  ASSERT_EQ(memory.status(), absl::OkStatus());
  const TensorId ids = op_case.list.ops[0].reads[0];
  reinterpret_cast<std::int32_t*>(memory->data(ids))[3] = 131;
  const absl::Status status = run(op_case, memory->bindings());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("token 3 has id 131"));
}

}  // namespace
}  // namespace rondo::devices::testing
