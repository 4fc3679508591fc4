// Steps of the ops of an optimizer.
#include "kernels/update.h"
#include "lowering.h"

namespace rondo::devices::cuda {
namespace {

void lower_add_rows(Lowering& op) {
  Arguments<AddRowsParams> arguments;
  arguments.params.width = op.in(1).shape[1];
  arguments.params.height = static_cast<std::int32_t>(op.out(0).shape[0]);
  arguments.params.padding_row = op.attributes<AddRowsAttributes>().padding_row;
  arguments.at(&AddRowsParams::ids, op.read(0)).at(&AddRowsParams::rows, op.read(1));
  arguments.at(&AddRowsParams::table, op.write(0)).at(&AddRowsParams::fault, op.fault());
  op.launch(KernelId::k_add_rows, {op.in(1).shape[0], 1, kMostThreads, 0}, arguments);
}

void lower_sum_of_squares(Lowering& op) {
  Arguments<SumOfSquaresParams> arguments;
  arguments.params.blocks = op.out(0).elements();
  arguments.at(&SumOfSquaresParams::x, op.read(0)).at(&SumOfSquaresParams::sums, op.write(0));
  op.launch(KernelId::k_sum_of_squares,
            {divide_up(arguments.params.blocks, kSquaresOfBlock), 1, kMostThreads, kMostThreads * 8}, arguments);
}

/// What both kinds of moments share; the storage of what is published.
template <typename Params>
Storage begin_update(const Lowering& op, Arguments<Params>& arguments) {
  arguments.at(&Params::gradient, op.read(0)).at(&Params::factors, op.read(1)).at(&Params::keys, op.read(2));
  arguments.at(&Params::owners, op.read(3)).at(&Params::master, op.read(4));
  if (op.op().writes.empty()) return Storage::kFloat32;
  arguments.at(&Params::published, op.write(0));
  return Lowering::storage_of(op.out(0));
}

void lower_adamw(Lowering& op) {
  using P = AdamWParams;
  Arguments<P> arguments;
  const Storage storage = begin_update(op, arguments);
  arguments.at(&P::first, op.read(5)).at(&P::second, op.read(6));
  op.launch(of_storage(KernelId::k_adamw_fp32, storage), {op.in(0).elements() / kElementsOfBlock, 1, kMostThreads, 0},
            arguments);
}

void lower_adamw_8(Lowering& op) {
  using P = AdamW8Params;
  Arguments<P> arguments;
  const Storage storage = begin_update(op, arguments);
  arguments.at(&P::first_codes, op.read(5)).at(&P::first_scales, op.read(6));
  arguments.at(&P::second_codes, op.read(7)).at(&P::second_scales, op.read(8)).at(&P::tables, op.read(9));
  op.launch(of_storage(KernelId::k_adamw8_fp32, storage),
            {op.in(0).elements() / static_cast<std::int64_t>(kUpdateBlock), 1, kMostThreads,
             static_cast<int>(sizeof(MomentTables))},
            arguments);
}

}  // namespace

absl::Status lower_update(Lowering& op) {
  switch (op.op().kind) {
    case OpKind::kAddRows:
      lower_add_rows(op);
      return absl::OkStatus();
    case OpKind::kSumOfSquares:
      lower_sum_of_squares(op);
      return absl::OkStatus();
    case OpKind::kAdamW8:
      lower_adamw_8(op);
      return absl::OkStatus();
    default:
      lower_adamw(op);
      return absl::OkStatus();
  }
}

}  // namespace rondo::devices::cuda
