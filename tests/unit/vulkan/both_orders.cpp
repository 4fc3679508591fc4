// Behind both_orders.h.
#include "both_orders.h"

#include <array>
#include <cstring>

#include "comparison.h"
#include "rondo/base/status.h"
#include "rondo/devices/reference/reference.h"
#include "vulkan_case.h"

namespace rondo::devices::testing {
namespace {

absl::StatusOr<BothOrders> open_both(vulkan::VulkanOptions options) {
  const vulkan::CardInfo card = *test::usable_vulkan_card();
  BothOrders both;
  RONDO_ASSIGN_OR_RETURN(both.forwards, open_card(card, true, options));
  options.backwards = true;
  RONDO_ASSIGN_OR_RETURN(both.backwards, open_card(card, true, options));
  return both;
}

/// Closed while its driver is still there.
class SharedDevice : public ::testing::Environment {
 public:
  static absl::StatusOr<const BothOrders*> get(Units units = Units::kNone) {
    absl::StatusOr<BothOrders>& both = opened(units);
    if (both.ok() && both->forwards == nullptr) {
      using vulkan::Use;
      both = open_both({.no_bfloat16_units = units == Units::kForFp16,
                        .matrix_units = units == Units::kNone ? Use::kNever : Use::kAlways});
    }
    if (!both.ok()) return both.status();
    return &*both;
  }
  void TearDown() override {
    for (const Units units : {Units::kNone, Units::kAll, Units::kForFp16}) opened(units) = BothOrders{};
  }

 private:
  static absl::StatusOr<BothOrders>& opened(Units units) {
    static std::array<absl::StatusOr<BothOrders>, 3> opened = {BothOrders{}, BothOrders{}, BothOrders{}};
    return opened[static_cast<std::size_t>(units)];
  }
};
const ::testing::Environment* const kShared = ::testing::AddGlobalTestEnvironment(new SharedDevice);

}  // namespace

absl::StatusOr<const BothOrders*> shared_card(Units units) { return SharedDevice::get(units); }

void expect_reference(const BothOrders& card, const OpCase& op_case, bool narrow,
                      const std::function<void(CaseMemory&)>& change) {
  absl::StatusOr<CaseMemory> want = CaseMemory::make(op_case, 1);
  absl::StatusOr<CaseMemory> got = CaseMemory::make(op_case, 2);
  absl::StatusOr<CaseMemory> again = CaseMemory::make(op_case, 2);
  ASSERT_EQ(want.status(), absl::OkStatus());
  ASSERT_EQ(got.status(), absl::OkStatus());
  ASSERT_EQ(again.status(), absl::OkStatus());
  if (change) change(*want);
  for (std::size_t place = 0; place < op_case.list.ops.size(); ++place) {
    const OpList list = single_op(op_case.list, place);
    got->copy_from(*want);
    again->copy_from(*want);
    ASSERT_EQ(run_on_card(*card.forwards, list, *got), absl::OkStatus());
    ASSERT_EQ(run_on_card(*card.backwards, list, *again), absl::OkStatus());
    ASSERT_EQ(run_reference(list, want->bindings()), absl::OkStatus());
    const bool narrow_attention = narrow && op_case.list.tensors[0].dtype != DType::kFloat32;
    const Compared compared{op_case, op_case.list.ops[place], narrow, narrow_attention};
    for (const TensorId id : compared.op.writes) {
      expect_close(compared, id, *got, *want);
      EXPECT_EQ(std::memcmp(got->data(id), again->data(id), op_case.list.tensors[id].bytes()), 0)
          << "'" << op_case.list.tensors[id].name << "' depends on what comes first";
    }
    for (const TensorId id : compared.op.reads) {  // the caches are written as well, nothing else is
      if (list.tensors[id].dtype != DType::kUInt64) expect_close(compared, id, *got, *want);
    }
  }
}

void OnMatrixUnits::SetUp() {
  if (!test::usable_vulkan_card()) GTEST_SKIP() << test::kNoVulkanCard;
  const auto card = shared_card(Units::kAll);
  ASSERT_EQ(card.status(), absl::OkStatus());
  card_ = *card;
  const DeviceCaps& caps = card_->forwards->caps();
  if (caps.matrix_dtypes.empty()) GTEST_SKIP() << "the driver has no cooperative matrices";
  if (!caps.multiplies_by_units(DType::kBfloat16) || !caps.multiplies_by_units(DType::kFloat16)) return;
  const auto scaling = shared_card(Units::kForFp16);
  ASSERT_EQ(scaling.status(), absl::OkStatus());
  scaling_ = *scaling;
}

void OnMatrixUnits::expect(const OpCase& op_case, const std::function<void(CaseMemory&)>& change) const {
  expect_reference(*card_, op_case, true, change);
  if (scaling_ == nullptr || op_case.list.tensors[0].dtype != DType::kBfloat16) return;
  SCOPED_TRACE("on units for fp16");
  expect_reference(*scaling_, op_case, true, change);
}

}  // namespace rondo::devices::testing
