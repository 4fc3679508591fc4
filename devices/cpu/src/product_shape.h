// What products are of: their engines, shapes and operands.
#pragma once

#include <cstdint>

#include "row_kernels.h"
#include "tile_engine.h"

namespace rondo::devices::cpu {

/// The engines of one program: fp32 tiles, and bf16 tiles where the processor has them (else null). They outlive the
/// products planned with them.
struct Engines {
  TileEngine* wide = nullptr;
  TileEngine* narrow = nullptr;

  TileEngine* choose(Storage a, Storage b) const {
    return narrow != nullptr && a == Storage::kBfloat16 && b == Storage::kBfloat16 ? narrow : wide;
  }
};

/// Extents of the tiles of a product.
struct TileGrid {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// A second product added to a first one's sums before they are finished: alpha A [rows, inner] times B.
struct SideShape {
  std::int64_t inner = 0;  // 0: there is none
  bool b_transposed = false;
  Storage a_storage = Storage::kFloat32;
  Storage b_storage = Storage::kFloat32;
  float alpha = 1.0F;
};

/// A [rows, inner] times B into out [rows, columns].
struct ProductShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  bool b_transposed = false;  // B is stored [columns, inner], else [inner, columns]
  Storage a_storage = Storage::kFloat32;
  Storage b_storage = Storage::kFloat32;
  bool trivial_finish = false;  // the sums are the result: Finish::trivial()
  std::int64_t usual_rows = 0;  // above 0: it runs on any number of rows up to `rows`, and has no side
  SideShape side = {};          // its operands take the same engine

  /// What tiles are chosen for.
  std::int64_t rows_to_cut() const { return usual_rows > 0 ? usual_rows : rows; }
};

struct ProductOperands {
  ConstArray a;
  ConstArray b;
  ConstArray side_a = {};  // with SideShape
  ConstArray side_b = {};
};

/// A [tokens, rows] and B [tokens, columns] of a gradient of weights.
struct WeightShape {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  float alpha = 1.0F;
  Storage a_storage = Storage::kFloat32;
  Storage b_storage = Storage::kFloat32;
};

}  // namespace rondo::devices::cpu
