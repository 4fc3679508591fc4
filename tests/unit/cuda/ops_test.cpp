// Every op on a CUDA device through the contract, against the reference: on the fake card everywhere, on the first real
// card where there is one.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "fake_card.h"
#include "fake_driver.h"
#include "op_case.h"
#include "rondo/devices/cuda/cuda_device.h"
#include "rondo/devices/reference/reference.h"
#include "tolerance.h"

namespace rondo::devices::testing {
namespace {

std::chrono::steady_clock::time_point patience() { return std::chrono::steady_clock::now() + std::chrono::seconds(60); }

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
    ASSERT_EQ(timeline_->wait(value_, patience()), absl::OkStatus());
  }
  void run(const OpList& list) {
    auto program = device_.compile(list, plan_arena(list));
    ASSERT_EQ(program.status(), absl::OkStatus());
    device_.queue(QueueRole::kCompute).run(**program, bindings_, {}, {timeline_.get(), ++value_}, {"op"});
    ASSERT_EQ(timeline_->wait(value_, patience()), absl::OkStatus());
  }
  void download(const CaseMemory& memory) {
    for (TensorId id = 0; id < list_.tensors.size(); ++id) {
      device_.queue(QueueRole::kDown)
          .copy(bindings_.tensors[id], memory.bindings().tensors[id], {}, {timeline_.get(), ++value_}, {"download"});
    }
    ASSERT_EQ(timeline_->wait(value_, patience()), absl::OkStatus());
  }

 private:
  Device& device_;
  const OpList& list_;
  std::vector<Buffer> buffers_;
  Bindings bindings_;
  std::unique_ptr<Timeline> timeline_;
  std::uint64_t value_ = 0;
};

void expect_close(const OpCase& op_case, const Op& op, TensorId id, const CaseMemory& got, const CaseMemory& want) {
  const TensorDesc& desc = op_case.list.tensors[id];
  if (desc.dtype == DType::kInt32 || desc.encoding != Encoding::kPlain) {
    EXPECT_EQ(std::memcmp(got.data(id), want.data(id), desc.bytes()), 0) << desc.name;
    return;
  }
  double squares = 0;
  for (std::int64_t i = 0; i < desc.elements(); ++i) squares += want.get(id, i) * want.get(id, i);
  const double rms = std::sqrt(squares / static_cast<double>(desc.elements()));
  double absolute = units_of(op.kind) * 0x1.0p-24 * std::sqrt(static_cast<double>(op_case.reduction));
  const bool narrow = op_case.list.tensors[op.reads[0]].dtype == DType::kBfloat16;
  if (op.kind == OpKind::kCrossEntropy && narrow) absolute += kNarrowEntropyGradient;
  for (std::int64_t i = 0; i < desc.elements(); ++i) {
    const double allowed = rounding_of(desc.dtype) * std::abs(want.get(id, i)) + absolute * rms;
    ASSERT_LE(std::abs(got.get(id, i) - want.get(id, i)), allowed)
        << name_of(op.kind) << ": '" << desc.name << "' element " << i << " is " << got.get(id, i) << ", expected "
        << want.get(id, i) << ", rms " << rms;
  }
}

/// Every op of the case alone, on the reference's own inputs.
void check_case(Device& device, const OpCase& op_case) {
  ASSERT_EQ(validate(op_case.list), absl::OkStatus());
  if (op_case.list.ops[0].kind == OpKind::kExpand) {
    const absl::Status status = device.compile(op_case.list, plan_arena(op_case.list)).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    GTEST_SKIP() << "not yet: " << status.message();
  }
  absl::StatusOr<CaseMemory> want = CaseMemory::make(op_case, 1);
  absl::StatusOr<CaseMemory> got = CaseMemory::make(op_case, 2);
  ASSERT_EQ(want.status(), absl::OkStatus());
  ASSERT_EQ(got.status(), absl::OkStatus());
  Loaded loaded(device, op_case.list);
  for (std::size_t place = 0; place < op_case.list.ops.size(); ++place) {
    const OpList list = single_op(op_case.list, place);
    ASSERT_NO_FATAL_FAILURE(loaded.upload(*want));
    ASSERT_NO_FATAL_FAILURE(loaded.run(list));
    ASSERT_NO_FATAL_FAILURE(loaded.download(*got));
    ASSERT_EQ(run_reference(list, want->bindings()), absl::OkStatus());
    const Op& op = op_case.list.ops[place];
    for (const TensorId id : op.writes) expect_close(op_case, op, id, *got, *want);
    for (const TensorId id : op.reads) {  // the caches are written as well, nothing else is
      if (list.tensors[id].dtype != DType::kUInt64) expect_close(op_case, op, id, *got, *want);
    }
  }
}

using Parameter = std::tuple<std::size_t, DType>;
std::string name_of_case(const ::testing::TestParamInfo<Parameter>& instance) {
  return std::string(op_descriptions()[std::get<0>(instance.param)].name) + "_" + name_of(std::get<1>(instance.param));
}
const auto kAllCases = ::testing::Combine(::testing::Range<std::size_t>(0, op_descriptions().size()),
                                          ::testing::Values(DType::kFloat32, DType::kBfloat16));

OpCase case_of(const Parameter& parameter, Scale scale) {
  return op_descriptions()[std::get<0>(parameter)].make(std::get<1>(parameter), scale);
}

class CudaOps : public ::testing::TestWithParam<Parameter> {};

TEST_P(CudaOps, OnTheFakeCard_AgreeWithTheReference) {
  cuda::testing::reset_fake();
  auto device = cuda::testing::open_fake({});
  ASSERT_EQ(device.status(), absl::OkStatus());
  check_case(**device, case_of(GetParam(), Scale::kOdd));
}
INSTANTIATE_TEST_SUITE_P(, CudaOps, kAllCases, name_of_case);

class CudaOpsOnHardware : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    const absl::StatusOr<std::uint32_t> cards = cuda::count_cuda();
    if (!cards.ok() || *cards == 0) {
      GTEST_SKIP() << "no card: " << (cards.ok() ? "the driver shows none" : std::string(cards.status().message()));
    }
    auto opened = cuda::open_cuda({});
    ASSERT_EQ(opened.status(), absl::OkStatus());
    device_ = *std::move(opened);
  }
  std::unique_ptr<Device> device_;
};

TEST_P(CudaOpsOnHardware, AtOddSizes_AgreeWithTheReference) { check_case(*device_, case_of(GetParam(), Scale::kOdd)); }
INSTANTIATE_TEST_SUITE_P(, CudaOpsOnHardware, kAllCases, name_of_case);

}  // namespace
}  // namespace rondo::devices::testing
