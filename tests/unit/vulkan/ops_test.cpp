// Every op on a Vulkan card against the reference, in fp32 and bf16, each op on the reference's own inputs, under the
// validation layer; and the same bits twice.
#include <gtest/gtest.h>

#include <cstring>

#include "comparison.h"
#include "rondo/devices/reference/reference.h"
#include "vulkan_case.h"

namespace rondo::devices::testing {
namespace {

/// One for all cases: the layer takes longer to start than most of them.
absl::StatusOr<Device*> shared_device() {
  static const auto* const device = new absl::StatusOr<std::unique_ptr<Device>>(open_card(*usable_card(), true));
  if (!device->ok()) return device->status();
  return (*device)->get();
}

class EveryOp : public ::testing::TestWithParam<std::tuple<std::size_t, DType>> {
 protected:
  void SetUp() override {
    if (!usable_card()) GTEST_SKIP() << "no Vulkan card on this machine, or no Vulkan in this build";
  }
};

TEST_P(EveryOp, OnVulkan_AgreesWithTheReference) {
  const auto device = shared_device();
  ASSERT_EQ(device.status(), absl::OkStatus());
  const OpDescription& description = op_descriptions()[std::get<0>(GetParam())];
  const OpCase op_case = description.make(std::get<1>(GetParam()), Scale::kOdd);
  if (op_case.list.ops[0].kind == OpKind::kExpand) {
    const absl::Status status = (*device)->compile(op_case.list, plan_arena(op_case.list)).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    GTEST_SKIP() << "not yet: " << status.message();
  }
  absl::StatusOr<CaseMemory> want = CaseMemory::make(op_case, 1);
  absl::StatusOr<CaseMemory> got = CaseMemory::make(op_case, 2);
  absl::StatusOr<CaseMemory> again = CaseMemory::make(op_case, 2);
  ASSERT_EQ(want.status(), absl::OkStatus());
  ASSERT_EQ(got.status(), absl::OkStatus());
  ASSERT_EQ(again.status(), absl::OkStatus());
  for (std::size_t place = 0; place < op_case.list.ops.size(); ++place) {
    const OpList list = single_op(op_case.list, place);
    got->copy_from(*want);
    again->copy_from(*want);
    ASSERT_EQ(run_on_card(**device, list, *got), absl::OkStatus());
    ASSERT_EQ(run_on_card(**device, list, *again), absl::OkStatus());
    ASSERT_EQ(run_reference(list, want->bindings()), absl::OkStatus());
    const Compared compared{op_case, op_case.list.ops[place], false};
    for (const TensorId id : compared.op.writes) {
      expect_close(compared, id, *got, *want);
      EXPECT_EQ(std::memcmp(got->data(id), again->data(id), op_case.list.tensors[id].bytes()), 0)
          << "'" << op_case.list.tensors[id].name << "' differs from run to run";
    }
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
