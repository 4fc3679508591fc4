// One tile of a matrix product, computed by oneDNN on the calling thread alone.
//
// Products are cut into tiles that follow from shapes (product.h); a tile's bits depend on its TileShape and contents
// only. oneDNN's OpenMP team is held to one thread on every thread that comes here, so no team ever exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rondo/base/units.h"
#include "tile_shape.h"

namespace rondo::devices::cpu {

class PreparedTile;
class PreparedTiles;

/// How the two operands of a tile are stored and multiplied.
enum class TileArithmetic : std::uint8_t {
  kFloat32,   // oneDNN's sgemm: needs no preparation
  kBfloat16,  // oneDNN's matmul primitive
};

/// The fastest arithmetic that this processor has for bf16 operands: kBfloat16 where it multiplies them itself (AMX, or
/// AVX-512 bf16 that is not slower than fp32), else kFloat32 (operands are converted first).
TileArithmetic arithmetic_for_bfloat16();
/// Whether it does so in AMX's tiles.
bool multiplies_in_tiles();
/// Whether oneDNN's code is that for AVX2, on a processor with nothing wider or as DNNL_MAX_CPU_ISA says.
bool multiplies_as_avx2();

/// DeviceCaps::product_code_bytes and more_product_code_bytes, where the arithmetic for bf16 is kBfloat16.
Bytes product_code_bytes();
Bytes more_product_code_bytes();

/// The tiles of one program. prepare() before the run; run() from any pool member at the same time.
class TileEngine {
 public:
  TileEngine(TileArithmetic arithmetic, std::uint32_t members);
  /// In bf16, with tiles that other programs may have prepared. REQUIRES: of these one runs at a time.
  explicit TileEngine(std::shared_ptr<PreparedTiles> tiles);
  ~TileEngine();
  TileArithmetic arithmetic() const;
  /// Rows that sgemm takes at a time. It sums the rows of an incomplete group, the last of a call, in another order; in
  /// calls of whole groups a row's bits depend on its contents only. The same holds for a call of one column. 1 where
  /// tiles are primitives, whose rows are not treated so.
  std::int64_t row_group() const;
  /// Columns beyond which sgemm's tiles of a row product become slower: 192 with AVX-512, whose processors have second
  /// caches of a megabyte and more, else 96.
  std::int64_t most_columns() const;

  /// Makes `shape` runnable; a shape that is known already costs nothing. Errors: Unimplemented with oneDNN's reason.
  absl::Status prepare(const TileShape& shape);
  /// Scratch that one member needs for any prepared shape.
  Bytes member_scratch_bytes() const;
  /// REQUIRES: `shape` was prepared; `scratch` is 64-byte aligned, of member_scratch_bytes(), and `member`'s own.
  absl::Status run(const TileShape& shape, std::uint32_t member, const void* a, const void* b, float* c,
                   std::byte* scratch) const;

 private:
  const PreparedTile* find(const TileShape& shape) const;

  const TileArithmetic arithmetic_;
  std::shared_ptr<PreparedTiles> tiles_;  // shared: programs that come later use what is there; null for kFloat32
  std::vector<const PreparedTile*> own_;
};

/// "2.6.3"
std::string onednn_version();

}  // namespace rondo::devices::cpu
