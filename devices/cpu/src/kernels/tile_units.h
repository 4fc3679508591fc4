// Products of small bf16 matrices in scratch by what the processor has for them: matrix units, Intel's Advanced Matrix
// Extensions (AMX, Software Developer's Manual, volume 1, chapter 18), or dot products of pairs, AVX-512's VDPBF16PS.
//
// The right factor goes in pairs: word (p, column) holds the rows 2 p (low half) and 2 p + 1 of a column.
#pragma once

#include <cstdint>

namespace rondo::devices::cpu {

inline constexpr std::int64_t kTile = 32;  // rows and columns are whole multiples of it, and so is the inner extent

/// C [rows, columns] = A B, or C + A B where `add`. A: bf16 [rows, inner]; B: words [inner / 2, columns]; C: fp32. Each
/// with the elements (words) from one row to the next.
struct TileProduct {
  const std::uint16_t* a;
  std::int64_t a_stride;
  const std::uint32_t* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t inner;
  bool add;
};

/// What multiplies. A thread calls configure() before multiply(), and release() before anyone else may want the
/// units. An element's bits follow from its row, its column and `inner`.
struct TileUnits {
  void (*configure)();
  void (*multiply)(const TileProduct&);
  void (*release)();
};

/// REQUIRES: a processor with AMX for bf16 that the kernel lets this process use (arch_prctl's ARCH_REQ_XCOMP_PERM).
const TileUnits& amx_units();
/// REQUIRES: a processor with AVX512_BF16.
const TileUnits& dot_units();
/// The same in loops, on any processor: what tests of the kernels around it use. Sums are rounded otherwise.
const TileUnits& tile_units_by_loops();

/// The units of this thread, while it lives; null: none.
class ConfiguredUnits {
 public:
  explicit ConfiguredUnits(const TileUnits* units) : units_(units) {
    if (units_ != nullptr) units_->configure();
  }
  ~ConfiguredUnits() {
    if (units_ != nullptr) units_->release();
  }
  ConfiguredUnits(const ConfiguredUnits&) = delete;
  ConfiguredUnits& operator=(const ConfiguredUnits&) = delete;

 private:
  const TileUnits* units_;
};

}  // namespace rondo::devices::cpu
