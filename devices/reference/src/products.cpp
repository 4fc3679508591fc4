// Matrix products and what is summed over tokens.
//
// Sums over tokens run in double here, so that the chunks in which kernels add them make no difference.
#include "values.h"

namespace rondo::devices::reference {

void matmul(const Call& call) {
  const auto& attributes = call.attributes<MatMulAttributes>();
  const Values x = call.in(0);
  const Values w = call.in(1);
  Values y = call.out(0);
  const std::int64_t inner = w.extent(1);
  const std::int64_t columns = w.extent(0);
  for (std::int64_t t = 0; t < x.rows(); ++t) {
    for (std::int64_t n = 0; n < columns; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < inner; ++k) sum += x[t * inner + k] * w[n * inner + k];
      sum *= static_cast<double>(attributes.alpha);
      if (attributes.has_bias) sum += call.in(2)[n];
      if (attributes.has_addend) sum += call.at(call.op.reads.back())[t * columns + n];
      y.set(t * columns + n, sum);
    }
  }
}

void matmul_input_gradient(const Call& call) {
  const auto& attributes = call.attributes<MatMulAttributes>();
  const Values dy = call.in(0);
  const Values w = call.in(1);
  Values dx = call.out(0);
  const std::int64_t inner = w.extent(0);
  const std::int64_t columns = w.extent(1);
  for (std::int64_t t = 0; t < dy.rows(); ++t) {
    for (std::int64_t k = 0; k < columns; ++k) {
      double sum = 0;
      for (std::int64_t n = 0; n < inner; ++n) sum += dy[t * inner + n] * w[n * columns + k];
      sum *= static_cast<double>(attributes.alpha);
      if (attributes.has_addend) sum += call.in(2)[t * columns + k];
      dx.set(t * columns + k, sum);
    }
  }
}

void matmul_weight_gradient(const Call& call) {
  const double alpha = static_cast<double>(call.attributes<MatMulAttributes>().alpha);
  const Values dy = call.in(0);
  const Values x = call.in(1);
  Values dw = call.out(0);
  for (std::int64_t n = 0; n < dy.columns(); ++n) {
    for (std::int64_t k = 0; k < x.columns(); ++k) {
      double sum = 0;
      for (std::int64_t t = 0; t < x.rows(); ++t) sum += dy[t * dy.columns() + n] * x[t * x.columns() + k];
      dw.add(n * x.columns() + k, alpha * sum);
    }
  }
}

void bias_gradient(const Call& call) {
  const Values dy = call.in(0);
  Values db = call.out(0);
  for (std::int64_t n = 0; n < dy.columns(); ++n) {
    double sum = 0;
    for (std::int64_t t = 0; t < dy.rows(); ++t) sum += dy[t * dy.columns() + n];
    db.add(n, sum);
  }
}

}  // namespace rondo::devices::reference
