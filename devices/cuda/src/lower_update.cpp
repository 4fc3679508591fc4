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

void lower_adamw(Lowering& op) {
  Arguments<AdamWParams> arguments;
  arguments.at(&AdamWParams::gradient, op.read(0)).at(&AdamWParams::factors, op.read(1));
  arguments.at(&AdamWParams::keys, op.read(2)).at(&AdamWParams::owners, op.read(3));
  arguments.at(&AdamWParams::master, op.read(4)).at(&AdamWParams::first, op.read(5));
  arguments.at(&AdamWParams::second, op.read(6));
  const bool publishes = !op.op().writes.empty();
  if (publishes) arguments.at(&AdamWParams::published, op.write(0));
  const Storage storage = publishes ? Lowering::storage_of(op.out(0)) : Storage::kFloat32;
  op.launch(of_storage(KernelId::k_adamw_fp32, storage), {op.in(0).elements() / kElementsOfBlock, 1, kMostThreads, 0},
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
    default:
      lower_adamw(op);
      return absl::OkStatus();
  }
}

}  // namespace rondo::devices::cuda
