// Steps of matrix products.
#include <algorithm>

#include "kernels/fp8.h"
#include "lowering.h"

namespace rondo::devices::cuda {
namespace {

/// dw += alpha dy^T x.
absl::Status lower_weight_gradient(Lowering& op) {
  RONDO_RETURN_IF_ERROR(op.same_dtype(op.in(0), op.in(1)));
  Lowering::Product product;
  product.shape.rows = Lowering::columns_of(op.in(0));
  product.shape.columns = Lowering::columns_of(op.in(1));
  product.shape.inner = op.in(0).shape[0];
  product.shape.a_transposed = true;
  product.shape.operands = Lowering::storage_of(op.in(0));
  product.alpha = op.attributes<MatMulAttributes>().alpha;
  product.a = op.read(0);
  product.b = op.read(1);
  product.addend = op.write(0);
  product.c = op.write(0);
  return op.product(product);
}

/// Codes of a matrix and the powers of two of its rows along the extent that is summed over.
struct Codes {
  Place codes;
  Place scales;
};
enum class Extent { kSecond, kFirst };
/// kFirst: that extent is the matrix's first; the codes, of E4M3, are transposed.
Codes encode(Lowering& op, std::size_t operand, Extent extent, Storage code) {
  const TensorDesc& desc = op.in(operand);
  Arguments<Fp8Params> arguments;
  Fp8Params& p = arguments.params;
  p.rows = desc.shape[0];
  p.columns = Lowering::columns_of(desc);
  const Codes to{op.workspace(static_cast<Bytes>(desc.elements())),
                 op.workspace(static_cast<Bytes>(extent == Extent::kFirst ? p.columns : p.rows) * sizeof(float))};
  arguments.at(&Fp8Params::from, op.read(operand)).at(&Fp8Params::codes, to.codes).at(&Fp8Params::scales, to.scales);
  const Storage storage = Lowering::storage_of(desc);
  if (extent == Extent::kSecond) {
    const KernelId rows = code == Storage::kE5m2 ? KernelId::k_fp8_rows_e5m2_fp32 : KernelId::k_fp8_rows_fp32;
    // Several numbers for each thread, of which all are on their way at once.
    const std::int64_t warps =
        std::clamp<std::int64_t>(divide_up(p.columns, kWarp * kVector * 4), 2, kMostThreads / kWarp);
    op.launch(of_storage(rows, storage), {p.rows, 1, static_cast<int>(warps) * kWarp, 0}, arguments);
    return to;
  }
  const std::int64_t chunks = divide_up(p.rows, kFp8Chunk);
  const std::int64_t groups = divide_up(p.columns, kFp8Columns);
  arguments.at(&Fp8Params::largest, op.workspace(static_cast<Bytes>(chunks * p.columns) * sizeof(float)));
  op.launch(of_storage(KernelId::k_fp8_largest_fp32, storage), {groups, chunks, kMostThreads, kFp8LargestShared},
            arguments);
  op.launch(of_storage(KernelId::k_fp8_columns_fp32, storage),
            {groups, divide_up(p.rows, kFp8Rows), kMostThreads, kFp8ColumnsShared}, arguments);
  return to;
}

/// Sums of products of codes, in fp32, then what a product is of them.
absl::Status lower_fp8(Lowering& op, const Lowering::Product& product) {
  if (!op.options().fp8) {
    return unimplemented("op {}: '{}' is to be multiplied in fp8, which takes compute capability 8.9",
                         name_of(op.op().kind), op.in(1).name);
  }
  const std::int64_t elements = product.shape.rows * product.shape.columns;
  const Storage of_left = is_left_e5m2(op.op()) ? Storage::kE5m2 : Storage::kE4m3;
  const Codes left = encode(op, 0, Extent::kSecond, of_left);
  const Codes right = encode(op, 1, product.shape.b_transposed ? Extent::kSecond : Extent::kFirst, Storage::kE4m3);
  Lowering::Product coded = product;
  coded.shape.b_transposed = true;
  coded.shape.operands = of_left;
  coded.a = left.codes;
  coded.b = right.codes;
  coded.row_scales = left.scales;
  coded.column_scales = right.scales;
  if (op.options().fp8_scales) {
    RONDO_ASSIGN_OR_RETURN(const bool done, op.by_library(coded));
    if (done) return absl::OkStatus();
  }
  Lowering::Product sums;
  sums.shape = coded.shape;
  sums.shape.result = Storage::kFloat32;
  sums.a = coded.a;
  sums.b = coded.b;
  sums.c = op.workspace(static_cast<Bytes>(elements) * sizeof(float));
  RONDO_RETURN_IF_ERROR(op.product(sums));
  Arguments<Fp8ResultParams> arguments;
  Fp8ResultParams& p = arguments.params;
  p.elements = elements;
  p.columns = product.shape.columns;
  p.alpha = product.alpha;
  p.bias_storage = product.bias_storage;
  p.addend_storage = product.addend_storage;
  using P = Fp8ResultParams;
  arguments.at(&P::sums, sums.c).at(&P::row_scales, left.scales).at(&P::column_scales, right.scales);
  arguments.at(&P::bias, product.bias).at(&P::addend, product.addend).at(&P::y, product.c);
  op.launch(of_storage(KernelId::k_fp8_result_fp32, product.shape.result),
            {divide_up(elements, kElementsOfBlock), 1, kMostThreads, 0}, arguments);
  return absl::OkStatus();
}

/// Of op(x) w or its gradient; what it is added to included.
absl::StatusOr<Lowering::Product> product_of(const Lowering& op) {
  RONDO_RETURN_IF_ERROR(op.same_dtype(op.in(0), op.in(1)));
  const auto& attributes = op.attributes<MatMulAttributes>();
  const bool forward = op.op().kind == OpKind::kMatMul;
  const Shape& w = op.in(1).shape;
  Lowering::Product product;
  product.shape.rows = op.in(0).shape[0];
  product.shape.columns = forward ? w[0] : w[1];
  product.shape.inner = forward ? w[1] : w[0];
  product.shape.b_transposed = forward;
  product.shape.operands = Lowering::storage_of(op.in(0));
  product.shape.result = Lowering::storage_of(op.out(0));
  product.alpha = attributes.alpha;
  product.a = op.read(0);
  product.b = op.read(1);
  product.c = op.write(0);
  if (attributes.has_bias) {
    product.bias = op.read(2);
    product.bias_storage = Lowering::storage_of(op.in(2));
  }
  if (attributes.has_addend) {
    product.addend = op.read(op.op().reads.size() - 1);
    product.addend_storage = Lowering::storage_of(op.in(op.op().reads.size() - 1));
  }
  return product;
}

absl::Status multiply(Lowering& op, const Lowering::Product& product) {
  const bool coded = op.attributes<MatMulAttributes>().fp8 != Fp8Format::kNone;
  return coded ? lower_fp8(op, product) : op.product(product);
}

}  // namespace

absl::Status lower_product(Lowering& op) {
  if (op.op().kind == OpKind::kMatMulWeightGradient) return lower_weight_gradient(op);
  RONDO_ASSIGN_OR_RETURN(const Lowering::Product product, product_of(op));
  return multiply(op, product);
}

bool can_pair(const OpList& list, const ProductPair& pair) {
  const Op& first = list.ops[pair.first];
  // A gradient that an adapter's part is missing from is as good as any other of its roundings; the passes over results
  // that this would take are spared.
  if (first.kind != OpKind::kMatMul || list.ops[pair.second].kind != OpKind::kMatMul) return false;
  const DType result = list.tensors[list.ops[pair.second].writes[0]].dtype;
  // Of fp32 nothing is lost that counts.
  if (result == DType::kFloat32 || list.tensors[first.writes[0]].dtype != result) return false;
  const bool adds = std::get<MatMulAttributes>(first.attributes).has_addend;
  return !adds || list.tensors[first.reads.back()].dtype == result;
}

absl::Status lower_product_pair(Lowering& op, const Op& narrow, const Op& wide) {
  const Op& second = op.op();
  const Place result = op.write(0);
  const std::int64_t elements = op.out(0).elements();
  const Storage storage = Lowering::storage_of(op.out(0));
  Place addend;  // of the first, none
  const auto make = [&](const Op& one, const Place& onto) -> absl::Status {
    op.turn_to(one);
    RONDO_ASSIGN_OR_RETURN(Lowering::Product product, product_of(op));
    if (&one != &second) addend = product.addend;
    product.c = result;
    product.addend = onto;
    product.addend_storage = storage;
    return multiply(op, product);
  };
  RONDO_RETURN_IF_ERROR(make(narrow, {}));
  RONDO_RETURN_IF_ERROR(make(wide, result));
  if (addend.kind != Place::Kind::kNull) add_elements(op, storage, elements, result, addend, result);
  return absl::OkStatus();
}

}  // namespace rondo::devices::cuda
