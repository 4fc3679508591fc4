// The matrix products of a 135-million-parameter model: forward, gradient of the input, gradient of the weights.
#include "bench_support.h"

namespace rondo::devices::testing {
namespace {

struct Product {
  std::uint32_t tokens;
  std::int64_t outputs, inputs;
};

constexpr Product kProducts[] = {
    {512, 576, 576}, {512, 192, 576},  {512, 1536, 576},   {512, 576, 1536},  {512, 49152, 576}, {512, 16, 576},
    {512, 576, 16},  {2048, 576, 576}, {2048, 192, 576},   {2048, 1536, 576}, {2048, 576, 1536}, {2048, 16, 576},
    {2048, 576, 16}, {16, 576, 576},   {16, 1536, 576},    {16, 49152, 576},  {1, 576, 576},     {1, 1536, 576},
    {1, 49152, 576}, {32, 576, 576},   {2048, 2048, 2048},
};

OpCase case_of(const Product& product, OpKind kind, DType storage) {
  CaseBuilder b(storage, product.tokens);
  const double spread = 0.05;
  const TensorId w = b.weight("w", {product.outputs, product.inputs}, spread);
  const Shape in = {product.tokens, product.inputs};
  const Shape out = {product.tokens, product.outputs};
  if (kind == OpKind::kMatMul) {
    const TensorId x = b.input("x", in);
    b.op(kind, {x, w}, {b.output("y", out)}, MatMulAttributes{});
  } else if (kind == OpKind::kMatMulInputGradient) {
    const TensorId dy = b.input("dy", out);
    b.op(kind, {dy, w}, {b.output("dx", in)}, MatMulAttributes{});
  } else {
    const TensorId dy = b.input("dy", out);
    const TensorId x = b.input("x", in);
    b.op(kind, {dy, x}, {b.gradient("dw", {product.outputs, product.inputs})}, MatMulAttributes{});
  }
  return b.result();
}

const int registered_products = [] {
  for (const OpKind kind : {OpKind::kMatMul, OpKind::kMatMulInputGradient, OpKind::kMatMulWeightGradient}) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16}) {
      for (const Product& product : kProducts) {
        if (product.tokens < 512 && kind != OpKind::kMatMul) continue;  // generation has no backward
        const std::string name = std::string("Product/") + name_of(kind) + "/" + std::to_string(product.tokens) + "x" +
                                 std::to_string(product.outputs) + "x" + std::to_string(product.inputs) + "/" +
                                 name_of(storage);
        benchmark::RegisterBenchmark(
            name.c_str(),
            [&product, kind, storage](benchmark::State& state) { time_op(state, case_of(product, kind, storage), 0); })
            ->MeasureProcessCPUTime()
            ->UseRealTime();
      }
    }
  }
  return 0;
}();

}  // namespace
}  // namespace rondo::devices::testing
