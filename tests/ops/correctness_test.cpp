// Every op on the CPU against the reference, in fp32 and bf16, each op on the reference's own inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "op_case.h"
#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/reference/reference.h"
#include "tolerance.h"

namespace rondo::devices::testing {
namespace {

struct Compared {
  const OpCase& op_case;
  const Op& op;
  bool narrow_products;
};

void expect_close(const Compared& compared, TensorId id, const CaseMemory& got, const CaseMemory& want) {
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

class EveryOp : public ::testing::TestWithParam<std::tuple<std::size_t, DType>> {};

TEST_P(EveryOp, OnTheCpu_AgreesWithTheReference) {
  const OpDescription& description = op_descriptions()[std::get<0>(GetParam())];
  const OpCase op_case = description.make(std::get<1>(GetParam()), Scale::kOdd);
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
    const Compared compared{op_case, op_case.list.ops[place],
                            executor.numerics_class().find("-bf16") != std::string::npos};
    for (const TensorId id : compared.op.writes) expect_close(compared, id, *got, *want);
    for (const TensorId id : compared.op.reads) {  // the caches are written as well, nothing else is
      if (list.tensors[id].dtype != DType::kUInt64) expect_close(compared, id, *got, *want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryOp,
                         ::testing::Combine(::testing::Range<std::size_t>(0, op_descriptions().size()),
                                            ::testing::Values(DType::kFloat32, DType::kBfloat16)),
                         [](const auto& instance) {
                           return std::string(op_descriptions()[std::get<0>(instance.param)].name) + "_" +
                                  name_of(std::get<1>(instance.param));
                         });

}  // namespace
}  // namespace rondo::devices::testing
