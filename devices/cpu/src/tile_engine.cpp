// Tiles by oneDNN: sgemm for fp32, prepared matmul primitives for bf16.
//
// oneDNN's own short-lived allocations inside a call (a 16 KiB work area of sgemm, the argument map of a primitive) are
// its business; nothing here allocates while a program runs.
#include "tile_engine.h"

#include <cpuid.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <utility>

#include "prepared_tiles.h"
#include "rondo/base/status.h"

namespace rondo::devices::cpu {
namespace {

/// OpenMP keeps the team size per thread; oneDNN asks for it when it creates a primitive and when it runs.
void hold_team_to_one_thread() {
  thread_local const bool done = [] {
    omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

/// Intel's cores from Sapphire Rapids on multiply bf16 in their tiles (AMX), which a virtual machine may hide. Their
/// VDPBF16PS does half the FLOP/s of their fp32 arithmetic (docs/results/cpu.md), where Cooper Lake and AMD's cores do
/// twice as many. Known by AVX512-FP16: the rates themselves are not measured, for timing may not enter a result.
bool has_slow_bfloat16_dots() {
  constexpr unsigned kAvx512Fp16 = 1U << 23U;  // of EDX of leaf 7, Intel's Software Developer's Manual, volume 2, CPUID
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __builtin_cpu_is("intel") != 0 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx & kAvx512Fp16) != 0;
}

/// Whether oneDNN uses these instructions: its names are sets of bits, of which later versions have more.
bool multiplies_by(dnnl_cpu_isa_t instructions) {
  const auto wanted = static_cast<unsigned>(instructions);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & wanted) == wanted;
}

}  // namespace

TileArithmetic arithmetic_for_bfloat16() {
  if (multiplies_in_tiles()) return TileArithmetic::kBfloat16;
  return multiplies_by(dnnl_cpu_isa_avx512_core_bf16) && !has_slow_bfloat16_dots() ? TileArithmetic::kBfloat16
                                                                                   : TileArithmetic::kFloat32;
}

bool multiplies_as_avx2() { return !multiplies_by(dnnl_cpu_isa_avx512_core); }

bool multiplies_in_tiles() { return multiplies_by(dnnl_cpu_isa_avx512_core_amx); }

// Version 3.7 makes code for more cases of each product than 2.6 and 3.1, whose code is counted with what devices keep
// of products; those between have not been seen.
constexpr bool kMuchCode = DNNL_VERSION_MAJOR > 3 || (DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR > 1);
Bytes product_code_bytes() { return kMuchCode ? 1600_KiB : 0; }
Bytes more_product_code_bytes() { return kMuchCode ? 832_KiB : 0; }

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

TileEngine::TileEngine(TileArithmetic arithmetic, std::uint32_t members) : arithmetic_(arithmetic) {
  hold_team_to_one_thread();
  if (arithmetic == TileArithmetic::kBfloat16) tiles_ = std::make_shared<PreparedTiles>(members);
}
TileEngine::TileEngine(std::shared_ptr<PreparedTiles> tiles)
    : arithmetic_(TileArithmetic::kBfloat16), tiles_(std::move(tiles)) {
  hold_team_to_one_thread();
}
TileEngine::~TileEngine() = default;

TileArithmetic TileEngine::arithmetic() const { return arithmetic_; }

std::int64_t TileEngine::row_group() const {
  constexpr std::int64_t kAnyGroup = 24;  // whole groups of AVX2 (6) and of AVX-512 (8)
  if (tiles_ != nullptr) return 1;
  return multiplies_as_avx2() ? 6 : kAnyGroup;
}

std::int64_t TileEngine::most_columns() const { return multiplies_as_avx2() ? 96 : 192; }

absl::Status TileEngine::prepare(const TileShape& shape) {
  hold_team_to_one_thread();
  if (tiles_ == nullptr || find(shape) != nullptr) return absl::OkStatus();
  RONDO_ASSIGN_OR_RETURN(const PreparedTile* tile, tiles_->get(shape));
  own_.push_back(tile);
  return absl::OkStatus();
}

Bytes TileEngine::member_scratch_bytes() const {
  Bytes most = 0;
  for (const PreparedTile* tile : own_) most = std::max(most, scratch_bytes_of(*tile));
  return most;
}

/// A program has a few dozen shapes and a tile takes tens of microseconds: a linear search is not seen.
const PreparedTile* TileEngine::find(const TileShape& shape) const {
  const auto found = std::ranges::find_if(own_, [&](const PreparedTile* tile) { return shape_of(*tile) == shape; });
  return found == own_.end() ? nullptr : *found;
}

absl::Status TileEngine::run(const TileShape& shape, std::uint32_t member, const void* a, const void* b, float* c,
                             std::byte* scratch) const {
  hold_team_to_one_thread();
  if (tiles_ != nullptr) {
    const PreparedTile* tile = find(shape);
    if (tile != nullptr) return run_tile(*tile, member, a, b, c, scratch);
    return internal_error("a product of {} x {} x {} was not prepared", shape.rows, shape.columns, shape.inner);
  }
  const float beta = shape.accumulate ? 1.0F : 0.0F;
  return onednn_status(
      dnnl_sgemm(shape.a_transposed ? 'T' : 'N', 'N', shape.rows, shape.columns, shape.inner, shape.alpha,
                 static_cast<const float*>(a), shape.lda, static_cast<const float*>(b), shape.ldb, beta, c, shape.ldc),
      "running a product");
}

}  // namespace rondo::devices::cpu
