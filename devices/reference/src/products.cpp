// Matrix products and what is summed over tokens.
//
// Sums over tokens run in double here, so that the chunks in which kernels add them make no difference.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

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

void cross_entropy(const Call& call) {
  const auto& attributes = call.attributes<CrossEntropyAttributes>();
  const Values x = call.in(0);
  const Values w = call.in(1);
  const std::int32_t* targets = call.in(2).integers();
  const double scale = attributes.has_loss_scale ? call.in(3)[0] : 1.0;
  const std::int64_t width = x.columns();
  const std::int64_t vocabulary = w.extent(0);
  std::vector<double> p(static_cast<std::size_t>(vocabulary));
  std::vector<double> dw(attributes.has_weight_gradient ? static_cast<std::size_t>(vocabulary * width) : 0);
  double loss = 0;
  for (std::int64_t t = 0; t < x.rows(); ++t) {
    double maximum = -std::numeric_limits<double>::infinity();
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      double& logit = p[static_cast<std::size_t>(v)];
      logit = 0;
      for (std::int64_t c = 0; c < width; ++c) logit += x[t * width + c] * w[v * width + c];
      maximum = std::max(maximum, logit);
    }
    const bool has_target = targets[t] >= 0;
    double total = 0;
    for (const double logit : p) total += std::exp(logit - maximum);
    if (has_target) loss -= p[static_cast<std::size_t>(targets[t])] - maximum - std::log(total);
    for (std::int64_t v = 0; v < vocabulary; ++v) {  // p becomes the gradient of the logits
      double& value = p[static_cast<std::size_t>(v)];
      value = has_target ? std::exp(value - maximum) / total - (v == targets[t] ? 1.0 : 0.0) : 0.0;
      value *= scale;
    }
    for (std::int64_t c = 0; c < width && attributes.has_input_gradient; ++c) {
      double sum = 0;
      for (std::int64_t v = 0; v < vocabulary; ++v) sum += p[static_cast<std::size_t>(v)] * w[v * width + c];
      call.out(1).set(t * width + c, sum);
    }
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(dw.size()); ++i) {
      dw[static_cast<std::size_t>(i)] += p[static_cast<std::size_t>(i / width)] * x[t * width + i % width];
    }
  }
  call.out(0).set(0, loss);
  for (std::size_t i = 0; i < dw.size(); ++i) {
    call.at(call.op.writes.back()).add(static_cast<std::int64_t>(i), dw[i]);
  }
}

}  // namespace rondo::devices::reference
