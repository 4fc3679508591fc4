// How the result of a product is cut into tiles, which follow from shapes alone, and how they are dealt to a pool.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/storage.h"
#include "product_shape.h"
#include "rondo/base/mutex.h"
#include "rondo/devices/thread_pool.h"
#include "tile_engine.h"

namespace rondo::devices::cpu {

/// Panels: large enough that a block keeps every thread busy for milliseconds, small enough to be cheap scratch.
inline constexpr std::int64_t kPanelElements = 4'194'304;

constexpr std::int64_t at_least_one_step(std::int64_t n, std::int64_t step) { return std::max(step, n / step * step); }

/// The first of `grids`, from large to small, that still makes work for 16 threads, else the last. `usable` holds of
/// one at least. Follows from the shape alone.
template <typename Usable>
TileGrid choose_grid(std::int64_t rows, std::int64_t columns, std::span<const TileGrid> grids, const Usable& usable) {
  constexpr std::int64_t kEnoughTiles = 16;
  TileGrid chosen;
  for (const TileGrid& grid : grids) {
    if (!usable(grid)) continue;
    chosen = grid;
    if (divide_up(rows, grid.rows) * divide_up(columns, grid.columns) >= kEnoughTiles) break;
  }
  return chosen;
}

inline TileGrid choose_grid(std::int64_t rows, std::int64_t columns, std::span<const TileGrid> grids) {
  return choose_grid(rows, columns, grids, [](const TileGrid&) { return true; });
}

/// The first failure of the tasks of a parallel_for.
class TaskStatus {
 public:
  void note(const absl::Status& status) {
    if (status.ok()) return;
    const MutexLock lock(mutex_);
    if (first_.ok()) first_ = status;
  }
  absl::Status first() {
    const MutexLock lock(mutex_);
    return first_;
  }

 private:
  Mutex mutex_;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
};

/// The extents that tiles of `step` have over `n`: the full one and the rest, 0 where there is none.
inline std::array<std::int64_t, 2> extents(std::int64_t n, std::int64_t step) {
  return {n >= step ? step : 0, n % step};
}

/// Prepares the four shapes of tiles over [rows, columns].
template <typename ShapeOf>
absl::Status prepare_tiles(TileEngine& engine, const TileGrid& grid, std::int64_t rows, std::int64_t columns,
                           const ShapeOf& shape_of) {
  for (const std::int64_t m : extents(rows, grid.rows)) {
    for (const std::int64_t n : extents(columns, grid.columns)) {
      if (m == 0 || n == 0) continue;
      const absl::Status status = engine.prepare(shape_of(m, n));
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

/// fn(m, n, rows, columns, member) for every tile of [rows, columns], rows fastest: neighbours share a piece of B.
template <typename Function>
absl::Status for_tiles(ThreadPool& pool, const TileGrid& grid, std::int64_t rows, std::int64_t columns,
                       const Function& fn) {
  TaskStatus status;
  const std::int64_t down = divide_up(rows, grid.rows);
  pool.parallel_for(down * divide_up(columns, grid.columns), [&](std::int64_t task, std::uint32_t member) {
    const std::int64_t m = task % down * grid.rows;
    const std::int64_t n = task / down * grid.columns;
    status.note(fn(m, n, std::min(grid.rows, rows - m), std::min(grid.columns, columns - n), member));
  });
  return status.first();
}

}  // namespace rondo::devices::cpu
