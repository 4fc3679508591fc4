// What a pass over state on disk carries, and a step's boundaries, beside plain direct reads and writes of the same
// file size, request size and number in flight, in turns within one run. RONDO_BENCH_DISK names the folder; default:
// the current one.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "rondo/offload/boundary_tier.h"
#include "rondo/offload/disk_tier.h"

namespace rondo::offload {
namespace {

std::filesystem::path folder() {
  const char* name = std::getenv("RONDO_BENCH_DISK");
  return name == nullptr ? "." : name;
}

// Master and moments of AdamW.
const std::vector<MomentFormat> kArrays(3, MomentFormat::kFloat32);

DiskTierOptions options_of(const benchmark::State& state) {
  DiskTierOptions options;
  options.folder = folder();
  options.elements.assign(4, static_cast<std::uint64_t>(state.range(0)) << 18U);  // MiB of each array
  options.arrays.assign(options.elements.size(), kArrays);
  return options;
}

void count(benchmark::State& state, Bytes bytes, bool direct) {
  state.SetBytesProcessed(static_cast<std::int64_t>(2 * bytes) * static_cast<std::int64_t>(state.iterations()));
  state.SetLabel(direct ? "direct" : "through the page cache");
}

void raw(benchmark::State& state) {
  const DiskTierOptions options = options_of(state);
  const Bytes request = options.chunk_elements * sizeof(float) * kArrays.size();
  const std::uint64_t requests = options.elements.size() * options.elements[0] / options.chunk_elements;
  auto file = ScratchFile::make(options.folder, request * requests);
  if (!file.ok()) return state.SkipWithError(std::string(file.status().message()).c_str());
  std::vector<DiskBuffer> buffers;
  for (std::uint32_t i = 0; i < options.requests; ++i) buffers.push_back(*allocate_disk_buffer(request));
  for (auto _ : state) {
    std::atomic<std::uint64_t> next = 0;
    std::vector<std::thread> threads;
    for (const DiskBuffer& buffer : buffers) {
      threads.emplace_back([&] {
        for (std::uint64_t i = next++; i < requests; i = next++) {
          if (!(*file)->read(i * request, buffer.bytes).ok() || !(*file)->write(i * request, buffer.bytes).ok()) return;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  count(state, request * requests, (*file)->direct());
}

void pass(benchmark::State& state) {
  const DiskTierOptions options = options_of(state);
  auto tier = DiskTier::make(options);
  if (!tier.ok()) return state.SkipWithError(std::string(tier.status().message()).c_str());
  if (const absl::Status started = (*tier)->start(); !started.ok()) {
    return state.SkipWithError(std::string(started.message()).c_str());
  }
  for (auto _ : state) {
    for (const std::uint64_t elements : options.elements) {
      for (std::uint64_t done = 0; done < elements;) {
        const auto chunk = (*tier)->next();
        if (!chunk.ok()) return state.SkipWithError(std::string(chunk.status().message()).c_str());
        done += (*chunk)->elements;
        (*tier)->done();
      }
    }
    if (!(*tier)->drain_and_wait().ok()) return state.SkipWithError("the disk failed");
  }
  count(state, (*tier)->disk_bytes(), (*tier)->file().direct());
}

// Boundaries of one step: all are filled, then all are read, the last ones first.
BoundaryTierOptions boundaries_of(const benchmark::State& state) {
  BoundaryTierOptions options;
  options.folder = folder();
  options.page_bytes = 4_MiB;
  options.pages = static_cast<std::size_t>(state.range(0)) * 1_MiB / options.page_bytes;
  options.buffers = 24;
  return options;
}

void raw_boundaries(benchmark::State& state) {
  const BoundaryTierOptions options = boundaries_of(state);
  auto file = ScratchFile::make(options.folder, options.pages * options.page_bytes);
  if (!file.ok()) return state.SkipWithError(std::string(file.status().message()).c_str());
  std::vector<DiskBuffer> buffers;
  for (std::uint32_t i = 0; i < options.requests; ++i) buffers.push_back(*allocate_disk_buffer(options.page_bytes));
  for (auto _ : state) {
    for (const bool writes : {true, false}) {
      std::atomic<std::size_t> next = 0;
      std::vector<std::thread> threads;
      for (const DiskBuffer& buffer : buffers) {
        threads.emplace_back([&] {
          for (std::size_t i = next++; i < options.pages; i = next++) {
            const Bytes offset = (writes ? i : options.pages - 1 - i) * options.page_bytes;
            const auto done = writes ? (*file)->write(offset, buffer.bytes) : (*file)->read(offset, buffer.bytes);
            if (!done.ok()) return;
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }
  count(state, options.pages * options.page_bytes, (*file)->direct());
}

void boundaries(benchmark::State& state) {
  const BoundaryTierOptions options = boundaries_of(state);
  auto tier = BoundaryTier::make(options);
  if (!tier.ok()) return state.SkipWithError(std::string(tier.status().message()).c_str());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
  for (auto _ : state) {
    for (std::size_t i = 0; i < options.pages; ++i) {
      const ReadOrder order{{options.pages - i, ReadOrder::kNever}};
      if (!(*tier)->take(i, options.page_bytes, order, deadline).ok()) return state.SkipWithError("the disk failed");
      (*tier)->filled(i);
    }
    for (std::size_t i = options.pages; i-- > 0;) {
      if (!(*tier)->hold(i, deadline).ok()) return state.SkipWithError("the disk failed");
      (*tier)->let_go(i);
      (*tier)->drop(i);
    }
  }
  const BoundaryTier::Stats moved = (*tier)->stats();
  state.SetBytesProcessed(static_cast<std::int64_t>(moved.written + moved.read));
  state.SetLabel((*tier)->file()->direct() ? "direct" : "through the page cache");
}

BENCHMARK(raw)->Name("Disk/raw")->Arg(64)->UseRealTime();
BENCHMARK(pass)->Name("Disk/pass")->Arg(64)->UseRealTime();
BENCHMARK(raw)->Name("Disk/raw/again")->Arg(64)->UseRealTime();
BENCHMARK(pass)->Name("Disk/pass/again")->Arg(64)->UseRealTime();
BENCHMARK(raw_boundaries)->Name("Boundaries/raw")->Arg(512)->UseRealTime();
BENCHMARK(boundaries)->Name("Boundaries/step")->Arg(512)->UseRealTime();
BENCHMARK(raw_boundaries)->Name("Boundaries/raw/again")->Arg(512)->UseRealTime();
BENCHMARK(boundaries)->Name("Boundaries/step/again")->Arg(512)->UseRealTime();

}  // namespace
}  // namespace rondo::offload
