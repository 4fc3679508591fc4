// Ops of a case, one by one, on a CUDA device through the contract, against the reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comparison.h"
#include "cuda_card.h"
#include "fake_card.h"
#include "fake_driver.h"
#include "op_case.h"
#include "patience.h"
#include "rondo/devices/cuda/cuda_device.h"
#include "rondo/devices/reference/reference.h"

namespace rondo::devices::testing {

/// A case's tensors on a device.
class Loaded {
 public:
  Loaded(Device& device, const OpList& list) : device_(device), list_(list) {
    timeline_ = *device.timeline();
    for (const TensorDesc& tensor : list.tensors) {
      buffers_.push_back(*device.allocate(std::max<Bytes>(tensor.bytes(), 1), MemoryKind::kDevice));
      bindings_.tensors.push_back(buffers_.back().view().part(0, tensor.bytes()));
    }
    bindings_.layer = 3;
  }

  void upload(const CaseMemory& memory) {
    for (TensorId id = 0; id < list_.tensors.size(); ++id) {
      device_.queue(QueueRole::kUp)
          .copy(memory.bindings().tensors[id], bindings_.tensors[id], {}, {timeline_.get(), ++value_}, {"upload"});
    }
    ASSERT_EQ(timeline_->wait(value_, test::patience()), absl::OkStatus());
  }
  void run(const OpList& list, bool sets_gradients = false) {
    bindings_.sets_gradients = sets_gradients;
    auto program = device_.compile(list, plan_arena(list));
    ASSERT_EQ(program.status(), absl::OkStatus());
    device_.queue(QueueRole::kCompute).run(**program, bindings_, {}, {timeline_.get(), ++value_}, {"op"});
    ASSERT_EQ(timeline_->wait(value_, test::patience()), absl::OkStatus());
  }
  void download(const CaseMemory& memory) {
    for (TensorId id = 0; id < list_.tensors.size(); ++id) {
      device_.queue(QueueRole::kDown)
          .copy(bindings_.tensors[id], memory.bindings().tensors[id], {}, {timeline_.get(), ++value_}, {"download"});
    }
    ASSERT_EQ(timeline_->wait(value_, test::patience()), absl::OkStatus());
  }

 private:
  Device& device_;
  const OpList& list_;
  std::vector<Buffer> buffers_;
  Bindings bindings_;
  std::unique_ptr<Timeline> timeline_;
  std::uint64_t value_ = 0;
};

/// See Compared.
struct Allowing {
  bool narrow_attention = false;
  bool short_sums = false;
};

/// Every op of the case alone, on the reference's own inputs, which `change` may make others of.
inline void check_case(Device& device, const OpCase& op_case, const Allowing& allowing = {},
                       const std::function<void(CaseMemory&)>& change = nullptr) {
  ASSERT_EQ(validate(op_case.list), absl::OkStatus());
  absl::StatusOr<CaseMemory> want = CaseMemory::make(op_case, 1);
  absl::StatusOr<CaseMemory> got = CaseMemory::make(op_case, 2);
  ASSERT_EQ(want.status(), absl::OkStatus());
  ASSERT_EQ(got.status(), absl::OkStatus());
  if (change) change(*want);
  Loaded loaded(device, op_case.list);
  for (std::size_t place = 0; place < op_case.list.ops.size(); ++place) {
    const OpList list = single_op(op_case.list, place);
    ASSERT_NO_FATAL_FAILURE(loaded.upload(*want));
    ASSERT_NO_FATAL_FAILURE(loaded.run(list));
    ASSERT_NO_FATAL_FAILURE(loaded.download(*got));
    ASSERT_EQ(run_reference(list, want->bindings()), absl::OkStatus());
    const Op& op = op_case.list.ops[place];
    const Compared compared{op_case, op, op_case.list.tensors[op.reads[0]].dtype != DType::kFloat32,
                            allowing.narrow_attention, allowing.short_sums};
    for (const TensorId id : op.writes) expect_close(compared, id, *got, *want);
    for (const TensorId id : op.reads) {  // the caches are written as well, nothing else is
      if (list.tensors[id].dtype != DType::kUInt64) expect_close(compared, id, *got, *want);
    }
  }
}

/// A fake card of that compute capability.
inline auto open_fake_of(int major, int minor) {
  cuda::testing::FakeScript script;
  script.major = major;
  script.minor = minor;
  cuda::testing::reset_fake(script);
  return cuda::testing::open_fake({});
}

/// The first real card, where there is one.
class OnHardware : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = test::no_cuda_card(); !why.empty()) GTEST_SKIP() << why;
    auto opened = cuda::open_cuda({});
    ASSERT_EQ(opened.status(), absl::OkStatus());
    device_ = *std::move(opened);
  }
  std::unique_ptr<Device> device_;
};

}  // namespace rondo::devices::testing
