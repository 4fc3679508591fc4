// Op cases on a card opened twice, of which the second begins with the last part of the work: each op against the
// reference, on the reference's own inputs, and the same bits on both.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "op_case.h"
#include "rondo/devices/device.h"

namespace rondo::devices::testing {

struct BothOrders {
  std::unique_ptr<Device> forwards;
  std::unique_ptr<Device> backwards;
};

/// Which matrix units a device uses; whether it has any, its capabilities say.
enum class Units : std::uint8_t { kNone, kAll, kForFp16 };

/// One for all cases, under the validation layer, which takes longer to start than most of them. REQUIRES: a usable
/// card.
absl::StatusOr<const BothOrders*> shared_card(Units units = Units::kNone);

/// `narrow`: products are of operands of 16 bits, see Compared. `change`: what to do with the inputs first.
void expect_reference(const BothOrders& card, const OpCase& op_case, bool narrow = false,
                      const std::function<void(CaseMemory&)>& change = nullptr);

/// Cards with matrix units; a processor that poses as a card too, which does without otherwise.
class OnMatrixUnits : public ::testing::Test {
 protected:
  void SetUp() override;

  /// bf16 on units for bf16, where there are such, and on those for fp16.
  void expect(const OpCase& op_case, const std::function<void(CaseMemory&)>& change = nullptr) const;

 private:
  const BothOrders* card_ = nullptr;
  const BothOrders* scaling_ = nullptr;  // null: the card has no other units than one of the two
};

}  // namespace rondo::devices::testing
