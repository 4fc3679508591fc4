// One tile of a matrix product by each way through oneDNN, on one thread: what arithmetic_for_bfloat16() and the tiles'
// extents are chosen by.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tile_engine.h"

namespace rondo::devices::cpu {
namespace {

struct Way {
  const char* name;
  TileArithmetic arithmetic;
};

constexpr Way kWays[] = {{"sgemm", TileArithmetic::kFloat32}, {"bf16_primitive", TileArithmetic::kBfloat16}};

struct Extents {
  std::int64_t rows, columns, inner;
};
constexpr Extents kExtents[] = {{120, 96, 576}, {120, 192, 576}, {120, 192, 1536}, {128, 192, 576}, {480, 192, 576}};

void time_tile(benchmark::State& state, const Way& way, const Extents& extents) {
  TileEngine engine(way.arithmetic, 1);
  TileShape shape;
  shape.rows = extents.rows;
  shape.columns = extents.columns;
  shape.inner = extents.inner;
  shape.lda = extents.inner;
  shape.ldb = extents.columns;
  shape.ldc = extents.columns;
  if (!engine.prepare(shape).ok()) return state.SkipWithError("this processor has no such arithmetic");
  // fp32 zeros are bf16 zeros too; a product's speed does not depend on its numbers.
  const std::vector<float> a(static_cast<std::size_t>(shape.rows * shape.inner));
  const std::vector<float> b(static_cast<std::size_t>(shape.columns * shape.inner));  // in pairs: half as many
  std::vector<float> c(static_cast<std::size_t>(shape.rows * shape.columns));
  std::vector<std::byte> scratch(engine.member_scratch_bytes() + 64);
  std::byte* const aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
  absl::Status status;
  for (auto _ : state) {
    status = engine.run(shape, 0, a.data(), b.data(), c.data(), aligned);
    benchmark::ClobberMemory();
  }
  if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
  const auto flops = static_cast<double>(2 * shape.rows * shape.columns * shape.inner);
  state.counters["FLOP/s"] =
      benchmark::Counter(flops * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

const int registered_tiles = [] {
  for (const Extents& extents : kExtents) {
    for (const Way& way : kWays) {
      const std::string name = "Tile/" + std::to_string(extents.rows) + "x" + std::to_string(extents.columns) + "x" +
                               std::to_string(extents.inner) + "/" + way.name;
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&way, &extents](benchmark::State& state) { time_tile(state, way, extents); });
    }
  }
  return 0;
}();

}  // namespace
}  // namespace rondo::devices::cpu
