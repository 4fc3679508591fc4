// Ops of an optimizer: rows added to a table, sums of squares, AdamW.
#include <algorithm>
#include <cstddef>

#include "lowering.h"
#include "rondo/devices/moment_tables.h"
#include "rondo/devices/update_block.h"

namespace rondo::devices::vulkan {
namespace {

constexpr std::int64_t kSumsOfGroup = 8;                                            // of both kernels for them
constexpr auto kUpdatedOfGroup = static_cast<std::int64_t>(kMomentBlock);           // of adamw.glsl
constexpr std::int64_t kGroupsOfEights = 8;                                         // of adamw_eights.comp
constexpr std::int64_t kGroupsAtOnce = (std::int64_t{1} << 23U) / kUpdatedOfGroup;  // see kMostWork
constexpr std::int64_t kGroupsOfList = 512;
constexpr std::size_t kListSlot = 11;
static_assert(kUpdateBlock == 16384 && kMomentBlock == 256 && kSignedZero == 127, "the kernels have them too");

constexpr std::uint32_t words(std::size_t bytes) { return static_cast<std::uint32_t>(bytes / sizeof(std::uint32_t)); }

void lower_add_rows(OpLowering& op) {
  const std::int64_t rows = op.in(1).shape[0];
  const std::uint32_t step = op.in(1).shape[1] % 2 == 0 ? 2 : 1;
  op.add(Shader::kAddRows, {step}, {op.read(0), op.read(1), op.write(0)},
         {rows, op.in(1).shape[1], op.out(0).shape[0], op.attributes<AddRowsAttributes>().padding_row}, rows);
}

/// First what is quick, then in whole numbers what of that was out of range.
void lower_adamw(OpLowering& op) {
  const bool coded = op.op().kind == OpKind::kAdamW8;
  const bool eights = op.panel() && !coded;
  const std::int64_t groups_of_workgroup = eights ? kGroupsOfEights : 1;
  Constants constants = {op.writes() > 0 ? storage_of(op.out(0)) : kFloat32Storage,
                         coded ? 1U : 0U,
                         kMomentShift,
                         kLowestMoment,
                         kMomentKeys,
                         words(offsetof(MomentTables, sides)),
                         words(sizeof(MomentSide)),
                         words(offsetof(MomentSide, first)),
                         op.careless() ? 1U : 0U,
                         0U};
  const std::int64_t groups = op.in(0).elements() / kUpdatedOfGroup;
  const std::uint32_t list = op.workspace(1 + std::min(groups, kGroupsAtOnce));
  const TensorDesc count{"", {1}, DType::kFloat32};  // 0 has these bits in any dtype
  for (std::int64_t first = 0; first < groups; first += kGroupsAtOnce) {
    const std::int64_t end = std::min(first + kGroupsAtOnce, groups);
    lower_zero(op, list, count);
    for (const std::int64_t workgroups :
         {parts_of(end - first, groups_of_workgroup), std::min(end - first, kGroupsOfList)}) {
      Dispatch& dispatch =
          op.add(eights ? Shader::kAdamWEights : Shader::kAdamW, constants, {}, {first, end}, workgroups);
      std::size_t slot = 0;
      for (; slot < op.reads(); ++slot) dispatch.push.slots[slot] = op.read(slot);
      if (op.writes() > 0) dispatch.push.slots[slot] = op.write(0);
      dispatch.push.slots[kListSlot] = list;
      constants.back() = constants.back() == 0 ? 1 : 0;
    }
  }
}

}  // namespace

void lower_update(OpLowering& op) {
  switch (op.op().kind) {
    case OpKind::kAddRows:
      return lower_add_rows(op);
    case OpKind::kSumOfSquares:
      op.add(op.doubles() ? Shader::kSumOfSquaresDoubles : Shader::kSumOfSquares, {}, {op.read(0), op.write(0)},
             {op.out(0).elements()}, parts_of(op.out(0).elements(), kSumsOfGroup));
      return;
    default:
      return lower_adamw(op);
  }
}

}  // namespace rondo::devices::vulkan
