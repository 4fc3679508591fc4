// Products of one tile in bf16 that oneDNN has prepared: for all programs of an executor, since each takes some KiB of
// main memory a member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/mutex.h"
#include "rondo/base/units.h"
#include "rondo/devices/host_memory.h"
#include "tile_shape.h"

namespace rondo::devices::cpu {

class PreparedTile;

class PreparedTiles {
 public:
  /// `members` of a thread pool compute tiles at the same time.
  explicit PreparedTiles(std::uint32_t members);
  ~PreparedTiles();
  PreparedTiles(const PreparedTiles&) = delete;
  PreparedTiles& operator=(const PreparedTiles&) = delete;

  /// Prepares the tile of `shape` unless it is there; it stays as long as this does. Any thread, while others run.
  /// Errors: Unimplemented with oneDNN's reason.
  absl::StatusOr<const PreparedTile*> get(const TileShape& shape);

 private:
  struct Engine;

  const std::unique_ptr<Engine> engine_;
  Mutex mutex_;
  std::map<TileShape, std::unique_ptr<PreparedTile>> tiles_ ABSL_GUARDED_BY(mutex_);
  CountedMemory memory_ ABSL_GUARDED_BY(mutex_);
};

const TileShape& shape_of(const PreparedTile& tile);
/// Of a member that runs the tile.
Bytes scratch_bytes_of(const PreparedTile& tile);
/// Operands as TileShape says. REQUIRES: `scratch` is 64-byte aligned, of scratch_bytes_of(), and of no other run; no
/// other thread runs a tile of the same PreparedTiles as this `member`.
absl::Status run_tile(const PreparedTile& tile, std::uint32_t member, const void* a, const void* b, float* c,
                      std::byte* scratch);

/// What oneDNN's C functions return (dnnl_status_t), said in words.
absl::Status onednn_status(int status, const char* doing);

}  // namespace rondo::devices::cpu
