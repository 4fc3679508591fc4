// Codes of a frozen matrix chosen for what it is multiplied with: the error that a weight's code makes is made good by
// the weights behind it in the row.
//
// For a product y = W x let H be the sum over tokens of x x^T: codes that stand for Q change y by tr((W - Q) H (W -
// Q)^T) in squares. With H = U D U^T, U unit upper triangular and D diagonal, element k of a row gets the code nearest
// to w[k] + sum over j < k of (w[j] - q[j]) U[j, k]. The scales stay as the encoding's definition has them. Source:
// Frantar et al., GPTQ (arXiv 2210.17323); in this form, LDLQ, and that both are the same: Chee et al., QuIP (arXiv
// 2307.13304).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/tensor.h"
#include "rondo/devices/thread_pool.h"

namespace rondo::train {

class ErrorFeedback {
 public:
  /// Of the mean of H's diagonal: added to every element of it, as GPTQ does.
  static constexpr double kDamping = 0.01;

  /// `moments`: H [width, width], of which the upper triangle is read. `threads` is the executor's; both outlive this.
  /// Errors: InvalidArgument when H holds a number that is not finite, or is no sum of squares.
  static absl::StatusOr<ErrorFeedback> make(devices::cpu::CpuExecutor& executor, devices::ThreadPool& threads,
                                            std::span<const float> moments, std::int64_t width);

  /// What make() takes beside H, and choose() more than that.
  static Bytes factor_bytes(std::int64_t width);
  static Bytes row_bytes(std::int64_t width);

  /// Copies `values.size()` weights from element `first` on.
  using ReadWeights = std::function<void(std::uint64_t first, std::span<float> values)>;
  /// Chooses the codes of a matrix [rows, width]. `encoded`: as BlockEncoder has left it, for its scales. The result
  /// does not depend on the number of threads.
  absl::Status choose(devices::Encoding encoding, std::int64_t rows, const ReadWeights& read,
                      std::span<std::byte> encoded);

 private:
  /// U is cut into square tiles of so many elements a side, and filled up to whole tiles with those of an identity.
  static constexpr std::int64_t kTile = 256;
  /// Rows of the matrix at a time. Even: threads share no byte of two codes.
  static constexpr std::int64_t kRows = 256;

  ErrorFeedback(devices::cpu::CpuExecutor& executor, devices::ThreadPool& threads, std::int64_t width);
  /// Those of a column of tiles lie one below the other, down to the diagonal.
  static std::int64_t place_of(std::int64_t row, std::int64_t column) { return column * (column + 1) / 2 + row; }
  float* tile(std::int64_t row, std::int64_t column);
  devices::BufferView column_of_tiles(std::int64_t column, std::int64_t tiles) const;

  absl::Status allocate();
  absl::Status fill(std::span<const float> moments);
  absl::Status factor();
  absl::Status factor_diagonal(std::int64_t index);
  void solve_panel(std::int64_t index);
  absl::Status subtract_panel(std::int64_t index);
  absl::Status choose_rows(devices::Encoding encoding, std::int64_t first, std::int64_t rows, const float* weights,
                           std::span<std::byte> encoded, std::int64_t elements);
  void choose_in_tile(devices::Encoding encoding, std::int64_t group, std::int64_t first, std::int64_t rows,
                      const float* weights, std::span<std::byte> encoded, std::int64_t elements);
  absl::Status add_errors(std::int64_t from, std::int64_t to);

  devices::cpu::CpuExecutor& executor_;
  devices::ThreadPool& threads_;
  const std::int64_t width_;
  const std::int64_t count_;      // tiles a side
  std::vector<double> diagonal_;  // D
  devices::Buffer tiles_;         // H, then U: the upper triangle
  devices::Buffer scaled_;        // a column of tiles of U times D
  devices::Buffer before_;        // what something is subtracted from or added to
  devices::Buffer sums_;          // [count_][kRows, kTile]: what the errors so far add to each weight
  devices::Buffer errors_;        // [kRows, kTile]
  std::vector<std::unique_ptr<devices::Program>> subtractions_;  // by tiles of the panel
  std::unique_ptr<devices::Program> addition_;
};

}  // namespace rondo::train
