// What a pass over state on disk carries, beside plain direct reads and writes of the same file size, request size and
// number in flight, in turns within one run. RONDO_BENCH_DISK names the folder; default: the current one.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

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
  (*tier)->start();
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

BENCHMARK(raw)->Name("Disk/raw")->Arg(64)->UseRealTime();
BENCHMARK(pass)->Name("Disk/pass")->Arg(64)->UseRealTime();
BENCHMARK(raw)->Name("Disk/raw/again")->Arg(64)->UseRealTime();
BENCHMARK(pass)->Name("Disk/pass/again")->Arg(64)->UseRealTime();

}  // namespace
}  // namespace rondo::offload
