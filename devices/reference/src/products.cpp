// Matrix products and what is summed over tokens.
//
// Sums over tokens run in double here, so that the chunks in which kernels add them make no difference.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "rondo/devices/fp8.h"
#include "values.h"

namespace rondo::devices::reference {

namespace {

/// What the numbers of an operand are turned into.
enum class Code { kNone, kE4m3, kE5m2 };
Code code_of_left(const Op& op) {
  if (!is_fp8(op)) return Code::kNone;
  return is_left_e5m2(op) ? Code::kE5m2 : Code::kE4m3;
}
Code code_of_right(const Op& op) { return is_fp8(op) ? Code::kE4m3 : Code::kNone; }

/// An operand of a product as it is multiplied: element i of row r along the extent that is summed over.
class Operand {
 public:
  /// `columns`: that extent is the tensor's first.
  Operand(const Values& values, std::int64_t rows, std::int64_t inner, bool columns, Code code)
      : inner_(inner), numbers_(static_cast<std::size_t>(rows * inner)) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < inner; ++i) at(r, i) = values[columns ? i * rows + r : r * inner + i];
      if (code != Code::kNone) round(r, code == Code::kE5m2);
    }
  }
  double operator()(std::int64_t r, std::int64_t i) const { return numbers_[static_cast<std::size_t>(r * inner_ + i)]; }

 private:
  void round(std::int64_t r, bool e5m2) {
    float largest = 0;
    for (std::int64_t i = 0; i < inner_; ++i) {
      const float magnitude = std::abs(static_cast<float>(at(r, i)));
      largest = std::isfinite(magnitude) ? std::max(largest, magnitude) : std::numeric_limits<float>::infinity();
    }
    const float scale = fp8_scale(largest, e5m2 ? kE5m2Top : kE4m3Top);
    for (std::int64_t i = 0; i < inner_; ++i) {
      const float divided = static_cast<float>(at(r, i)) / scale;
      const float rounded = e5m2 ? e5m2_rounded(divided) : e4m3_rounded(divided);
      at(r, i) = static_cast<double>(rounded) * static_cast<double>(scale);
    }
  }
  double& at(std::int64_t r, std::int64_t i) { return numbers_[static_cast<std::size_t>(r * inner_ + i)]; }

  std::int64_t inner_;
  std::vector<double> numbers_;
};

}  // namespace

void matmul(const Call& call) {
  const auto& attributes = call.attributes<MatMulAttributes>();
  const std::int64_t rows = call.in(0).rows();
  const std::int64_t inner = call.in(1).extent(1);
  const std::int64_t columns = call.in(1).extent(0);
  const Operand x(call.in(0), rows, inner, false, code_of_left(call.op));
  const Operand w(call.in(1), columns, inner, false, code_of_right(call.op));
  Values y = call.out(0);
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t n = 0; n < columns; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < inner; ++k) sum += x(t, k) * w(n, k);
      sum *= static_cast<double>(attributes.alpha);
      if (attributes.has_bias) sum += call.in(2)[n];
      if (attributes.has_addend) sum += call.at(call.op.reads.back())[t * columns + n];
      y.set(t * columns + n, sum);
    }
  }
}

void matmul_input_gradient(const Call& call) {
  const auto& attributes = call.attributes<MatMulAttributes>();
  const std::int64_t rows = call.in(0).rows();
  const std::int64_t inner = call.in(1).extent(0);
  const std::int64_t columns = call.in(1).extent(1);
  const Operand dy(call.in(0), rows, inner, false, code_of_left(call.op));
  const Operand w(call.in(1), columns, inner, true, code_of_right(call.op));
  Values dx = call.out(0);
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t k = 0; k < columns; ++k) {
      double sum = 0;
      for (std::int64_t n = 0; n < inner; ++n) sum += dy(t, n) * w(k, n);
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
