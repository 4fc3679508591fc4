// DoRA: rows of W + alpha B A by their length, and the scale of a product's columns that follows from it.
#include <cmath>
#include <vector>

#include "values.h"

namespace rondo::devices::reference {

void magnitude_scale(const Call& call) {
  const Values w = call.in(0);
  const Values a = call.in(1);
  const Values b = call.in(2);
  const Values m = call.in(3);
  const auto alpha = static_cast<double>(call.attributes<MagnitudeAttributes>().alpha);
  Values scale = call.out(0);
  Values inverse = call.out(1);
  const std::int64_t width = w.extent(1);
  const std::int64_t rank = a.extent(0);
  for (std::int64_t row = 0; row < w.extent(0); ++row) {
    double squares = 0;
    for (std::int64_t column = 0; column < width; ++column) {
      double low = 0;
      for (std::int64_t r = 0; r < rank; ++r) low += b[row * rank + r] * a[r * width + column];
      const double element = w[row * width + column] + alpha * low;
      squares += element * element;
    }
    const double norm = std::sqrt(squares);
    scale.set(row, norm == 0 ? 0.0 : m[row] / norm);
    inverse.set(row, norm == 0 ? 0.0 : 1.0 / norm);
  }
}

void column_scale(const Call& call) {
  const auto& attributes = call.attributes<ColumnScaleAttributes>();
  const Values x = call.in(0);
  const Values scale = call.in(1);
  Values y = call.out(0);
  const std::int64_t width = x.columns();
  const std::int64_t each = width / scale.size();  // columns of a scale
  for (std::int64_t i = 0; i < x.size(); ++i) {
    double value = x[i] * scale[i % width / each];
    if (attributes.has_bias) value += call.in(2)[i % width];
    if (attributes.has_addend) value += call.in(attributes.has_bias ? 3 : 2)[i];
    y.set(i, value);
  }
}

void column_scale_backward(const Call& call) {
  const Values x = call.in(0);
  const Values scale = call.in(1);
  const bool has_inverse = call.op.reads.size() > 3;
  const Values dy = call.in(has_inverse ? 3 : 2);
  Values dx = call.out(0);
  const std::int64_t width = x.columns();
  std::vector<double> sums(static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < x.size(); ++i) {
    dx.set(i, dy[i] * scale[i % width]);
    sums[static_cast<std::size_t>(i % width)] += dy[i] * x[i];
  }
  for (std::int64_t column = 0; column < width; ++column) {
    const double inverse = has_inverse ? call.in(2)[column] : 1.0;
    call.out(1).add(column, inverse * sums[static_cast<std::size_t>(column)]);
  }
}

void head_scale_gradient(const Call& call) {
  const Values x = call.in(0);
  const Values dy = call.in(1);
  std::vector<double> sums(static_cast<std::size_t>(x.extent(1)));
  for (std::int64_t i = 0; i < x.size(); ++i) {
    sums[static_cast<std::size_t>(i % x.columns() / x.extent(2))] += dy[i] * x[i];
  }
  for (std::size_t head = 0; head < sums.size(); ++head) call.out(0).add(static_cast<std::int64_t>(head), sums[head]);
}

}  // namespace rondo::devices::reference
