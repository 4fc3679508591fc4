#include "noise_case.h"

#include "case_sizes.h"

namespace rondo::devices::testing {

OpCase noise_case(DType storage, Scale scale) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape shape = {s.tokens, s.hidden};
  const auto third = static_cast<std::int32_t>(s.tokens / 3);
  b.sequences({third, 1, third});
  const TensorId keys = b.keys();
  const TensorId x = b.input("x", shape), y = b.output("y", shape);
  b.op(OpKind::kNoise, {x, keys, b.bounds()}, {y}, NoiseAttributes{5.0F, 5});
  return b.result();
}

}  // namespace rondo::devices::testing
