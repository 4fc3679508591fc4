#include "rondo/train/error_feedback.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "rondo/base/status.h"
#include "rondo/devices/encoding.h"

namespace rondo::train {
namespace {

using devices::OpKind;
using devices::TensorRole;

constexpr const char* kPurpose = "choosing codes";

std::span<float> floats(devices::BufferView view) {
  return {reinterpret_cast<float*>(view.host()), view.size / sizeof(float)};
}

/// y [rows, columns] = alpha x w (or x w^T) + before.
absl::StatusOr<std::unique_ptr<devices::Program>> product(devices::cpu::CpuExecutor& executor, OpKind kind, float alpha,
                                                          std::int64_t rows, std::int64_t side) {
  devices::OpList list;
  list.tokens = static_cast<std::uint32_t>(rows);
  const auto add = [&list](const char* name, std::int64_t height, std::int64_t width, TensorRole role) {
    list.tensors.push_back({name, {height, width}, devices::DType::kFloat32, role});
  };
  add("x", rows, side, TensorRole::kInput);
  add("w", side, side, TensorRole::kWeight);
  add("before", rows, side, TensorRole::kInput);
  add("y", rows, side, TensorRole::kOutput);
  list.ops.push_back({kind, devices::MatMulAttributes{.alpha = alpha, .has_addend = true}, {0, 1, 2}, {3}});
  RONDO_RETURN_IF_ERROR(devices::validate(list));
  return executor.compile(list, devices::plan_arena(list));
}

}  // namespace

ErrorFeedback::ErrorFeedback(devices::cpu::CpuExecutor& executor, devices::ThreadPool& threads, std::int64_t width)
    : executor_(executor), threads_(threads), width_(width), count_((width + kTile - 1) / kTile) {}

Bytes ErrorFeedback::factor_bytes(std::int64_t width) {
  const std::int64_t count = (width + kTile - 1) / kTile;
  return static_cast<Bytes>((place_of(0, count) + 2 * count) * kTile * kTile) * sizeof(float);
}

Bytes ErrorFeedback::row_bytes(std::int64_t width) {
  const std::int64_t count = (width + kTile - 1) / kTile;
  return static_cast<Bytes>(kRows * (kTile * (count + 1) + width)) * sizeof(float);
}

absl::StatusOr<ErrorFeedback> ErrorFeedback::make(devices::cpu::CpuExecutor& executor, devices::ThreadPool& threads,
                                                  std::span<const float> moments, std::int64_t width) {
  ErrorFeedback feedback(executor, threads, width);
  RONDO_RETURN_IF_ERROR(feedback.allocate());
  RONDO_RETURN_IF_ERROR(feedback.fill(moments));
  RONDO_RETURN_IF_ERROR(feedback.factor());
  return feedback;
}

absl::Status ErrorFeedback::allocate() {
  constexpr Bytes kTileBytes = kTile * kTile * sizeof(float);
  constexpr Bytes kRowBytes = kRows * kTile * sizeof(float);
  const auto count = static_cast<Bytes>(count_);
  RONDO_ASSIGN_OR_RETURN(tiles_,
                         devices::allocate_host(static_cast<Bytes>(place_of(0, count_)) * kTileBytes, kPurpose));
  RONDO_ASSIGN_OR_RETURN(scaled_, devices::allocate_host(count * kTileBytes, kPurpose));
  RONDO_ASSIGN_OR_RETURN(before_, devices::allocate_host(std::max(count * kTileBytes, kRowBytes), kPurpose));
  RONDO_ASSIGN_OR_RETURN(sums_, devices::allocate_host(count * kRowBytes, kPurpose));
  RONDO_ASSIGN_OR_RETURN(errors_, devices::allocate_host(kRowBytes, kPurpose));
  subtractions_.resize(static_cast<std::size_t>(count_));
  diagonal_.resize(static_cast<std::size_t>(count_ * kTile));
  RONDO_ASSIGN_OR_RETURN(addition_, product(executor_, OpKind::kMatMulInputGradient, 1.0F, kRows, kTile));
  return absl::OkStatus();
}

float* ErrorFeedback::tile(std::int64_t row, std::int64_t column) {
  return floats(tiles_.view()).data() + place_of(row, column) * kTile * kTile;
}

devices::BufferView ErrorFeedback::column_of_tiles(std::int64_t column, std::int64_t tiles) const {
  constexpr Bytes kTileBytes = kTile * kTile * sizeof(float);
  return tiles_.view().part(static_cast<Bytes>(place_of(0, column)) * kTileBytes,
                            static_cast<Bytes>(tiles) * kTileBytes);
}

absl::Status ErrorFeedback::fill(std::span<const float> moments) {
  double trace = 0;
  for (std::int64_t k = 0; k < width_; ++k) trace += moments[static_cast<std::size_t>(k * width_ + k)];
  if (!std::isfinite(trace) || trace < 0) return invalid_input("inputs that are not finite");
  const double mean = trace / static_cast<double>(width_);
  const auto damping = static_cast<float>(mean > 0 ? kDamping * mean : 1.0);
  for (std::int64_t column = 0; column < count_; ++column) {
    for (std::int64_t row = 0; row <= column; ++row) {
      float* to = tile(row, column);
      const std::int64_t width = std::min(kTile, width_ - column * kTile);
      for (std::int64_t i = 0; i < std::min(kTile, width_ - row * kTile); ++i) {
        const float* from = moments.data() + (row * kTile + i) * width_ + column * kTile;
        std::copy(from, from + width, to + i * kTile);
      }
    }
  }
  for (std::int64_t k = 0; k < count_ * kTile; ++k) {
    float& element = tile(k / kTile, k / kTile)[k % kTile * kTile + k % kTile];
    element = k < width_ ? element + damping : 1.0F;
  }
  return absl::OkStatus();
}

/// From the last column of tiles to the first.
absl::Status ErrorFeedback::factor() {
  for (std::int64_t index = count_ - 1; index >= 0; --index) {
    RONDO_RETURN_IF_ERROR(factor_diagonal(index));
    if (index == 0) break;
    solve_panel(index);
    RONDO_RETURN_IF_ERROR(subtract_panel(index));
  }
  return absl::OkStatus();
}

/// The tile's own U and D, in double precision.
absl::Status ErrorFeedback::factor_diagonal(std::int64_t index) {
  float* values = tile(index, index);
  std::vector<double> a(static_cast<std::size_t>(kTile * kTile));
  const auto at = [&a](std::int64_t i, std::int64_t j) -> double& {
    return a[static_cast<std::size_t>(i * kTile + j)];
  };
  for (std::int64_t i = 0; i < kTile; ++i) {
    for (std::int64_t j = i; j < kTile; ++j) at(i, j) = at(j, i) = static_cast<double>(values[i * kTile + j]);
  }
  for (std::int64_t k = kTile - 1; k >= 0; --k) {
    const double d = at(k, k);
    if (!(d > 0) || !std::isfinite(d)) return invalid_input("inputs whose moments cannot be factored");
    diagonal_[static_cast<std::size_t>(index * kTile + k)] = d;
    // Row k holds column k of the symmetric matrix: both are kept, so that the inner loop reads neighbours.
    for (std::int64_t i = 0; i < k; ++i) {
      const double u = at(k, i) / d;
      for (std::int64_t j = 0; j < k; ++j) at(i, j) -= u * at(k, j);
    }
    for (std::int64_t i = 0; i < k; ++i) {
      values[i * kTile + k] = static_cast<float>(at(k, i) / d);
      values[k * kTile + i] = 0.0F;
    }
    values[k * kTile + k] = 1.0F;
  }
  return absl::OkStatus();
}

/// The tiles above: A = U D V^T with V the diagonal's tile, so U D row by row from its last element on.
void ErrorFeedback::solve_panel(std::int64_t index) {
  const float* diagonal_tile = tile(index, index);
  std::vector<float> transposed(static_cast<std::size_t>(kTile * kTile));  // [column, row] of V
  for (std::int64_t i = 0; i < kTile; ++i) {
    for (std::int64_t j = 0; j < kTile; ++j) {
      transposed[static_cast<std::size_t>(j * kTile + i)] = diagonal_tile[i * kTile + j];
    }
  }
  float* panel = tile(0, index);
  float* scaled = floats(scaled_.view()).data();
  const double* d = diagonal_.data() + index * kTile;
  threads_.parallel_for(index * kTile, [&](std::int64_t row, std::uint32_t) {
    float* a = panel + row * kTile;
    float* ud = scaled + row * kTile;
    for (std::int64_t k = kTile - 1; k >= 0; --k) {
      const float x = a[k];  // of U D
      ud[k] = x;
      a[k] = static_cast<float>(static_cast<double>(x) / d[k]);
      const float* v = transposed.data() + k * kTile;
      for (std::int64_t j = 0; j < k; ++j) a[j] -= x * v[j];
    }
  });
}

/// What the panel explains of the columns of tiles before it: A -= U D U^T.
absl::Status ErrorFeedback::subtract_panel(std::int64_t index) {
  for (std::int64_t column = 0; column < index; ++column) {
    auto& program = subtractions_[static_cast<std::size_t>(column)];
    if (program == nullptr) {
      RONDO_ASSIGN_OR_RETURN(program, product(executor_, OpKind::kMatMul, -1.0F, (column + 1) * kTile, kTile));
    }
    const devices::BufferView y = column_of_tiles(column, column + 1);
    const devices::BufferView before = before_.view().part(0, y.size);
    std::memcpy(before.host(), y.host(), y.size);
    const devices::BufferView panel = column_of_tiles(index, index);
    constexpr Bytes kTileBytes = kTile * kTile * sizeof(float);
    devices::Bindings bindings;
    bindings.tensors = {scaled_.view().part(0, y.size), panel.part(static_cast<Bytes>(column) * kTileBytes, kTileBytes),
                        before, y};
    RONDO_RETURN_IF_ERROR(executor_.execute(*program, bindings));
  }
  return absl::OkStatus();
}

absl::Status ErrorFeedback::choose(devices::Encoding encoding, std::int64_t rows, const ReadWeights& read,
                                   std::span<std::byte> encoded) {
  std::vector<float> weights(static_cast<std::size_t>(std::min(kRows, rows) * width_));
  for (std::int64_t first = 0; first < rows; first += kRows) {
    const std::int64_t count = std::min(kRows, rows - first);
    read(static_cast<std::uint64_t>(first * width_),
         std::span(weights).first(static_cast<std::size_t>(count * width_)));
    RONDO_RETURN_IF_ERROR(choose_rows(encoding, first, count, weights.data(), encoded, rows * width_));
  }
  return absl::OkStatus();
}

absl::Status ErrorFeedback::choose_rows(devices::Encoding encoding, std::int64_t first, std::int64_t rows,
                                        const float* weights, std::span<std::byte> encoded, std::int64_t elements) {
  std::ranges::fill(floats(sums_.view()), 0.0F);
  std::ranges::fill(floats(errors_.view()), 0.0F);
  for (std::int64_t group = 0; group < count_; ++group) {
    choose_in_tile(encoding, group, first, rows, weights, encoded, elements);
    for (std::int64_t later = group + 1; later < count_; ++later) RONDO_RETURN_IF_ERROR(add_errors(group, later));
  }
  return absl::OkStatus();
}

/// The codes of columns `group` kTile ... of rows `first` ...; leaves their errors.
void ErrorFeedback::choose_in_tile(devices::Encoding encoding, std::int64_t group, std::int64_t first,
                                   std::int64_t rows, const float* weights, std::span<std::byte> encoded,
                                   std::int64_t elements) {
  const devices::EncodedLayout layout(encoding, elements);
  const float* u = tile(group, group);
  float* sums = floats(sums_.view()).data() + group * kRows * kTile;
  float* errors = floats(errors_.view()).data();
  const std::int64_t columns = std::min(kTile, width_ - group * kTile);
  // Two rows a task, of which the first has an even number: no byte of two codes is of two tasks.
  threads_.parallel_for((rows + 1) / 2, [&](std::int64_t task, std::uint32_t) {
    for (std::int64_t row = 2 * task; row < std::min(rows, 2 * task + 2); ++row) {
      float* sum = sums + row * kTile;
      for (std::int64_t k = 0; k < columns; ++k) {
        const std::int64_t column = group * kTile + k;
        const float weight = weights[row * width_ + column];
        const std::int64_t element = (first + row) * width_ + column;
        const float number = devices::choose_code(encoding, layout, encoded.data(), element, weight + sum[k]);
        const float error = weight - number;
        errors[row * kTile + k] = error;
        const float* follow = u + k * kTile;
        for (std::int64_t j = k + 1; j < columns; ++j) sum[j] += error * follow[j];
      }
    }
  });
}

absl::Status ErrorFeedback::add_errors(std::int64_t from, std::int64_t to) {
  constexpr Bytes kRowBytes = kRows * kTile * sizeof(float);
  constexpr Bytes kTileBytes = kTile * kTile * sizeof(float);
  const devices::BufferView y = sums_.view().part(static_cast<Bytes>(to) * kRowBytes, kRowBytes);
  const devices::BufferView before = before_.view().part(0, kRowBytes);
  std::memcpy(before.host(), y.host(), kRowBytes);
  devices::Bindings bindings;
  bindings.tensors = {errors_.view(),
                      column_of_tiles(to, to + 1).part(static_cast<Bytes>(from) * kTileBytes, kTileBytes), before, y};
  return executor_.execute(*addition_, bindings);
}

}  // namespace rondo::train
