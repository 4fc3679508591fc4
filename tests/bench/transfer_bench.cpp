// What passes through staging memory a second beside plain copies of as many bytes in the same pieces, in turns within
// one run. The device takes no time, so that the engine's own copying is all there is.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "rondo/devices/host_queue.h"
#include "rondo/transfer/engine.h"

namespace rondo::transfer {
namespace {

using Clock = std::chrono::steady_clock;

/// Every copy has landed when it is handed over.
class InstantQueue final : public devices::Queue {
 public:
  void run(const devices::Program&, const devices::Bindings&, std::span<const devices::Point>, devices::Point,
           const devices::WorkTag&) override {}
  void clear(devices::BufferView, std::span<const devices::Point>, devices::Point, const devices::WorkTag&) override {}
  void copy(devices::BufferView, devices::BufferView, std::span<const devices::Point>, devices::Point signal,
            const devices::WorkTag&) override {
    signal.timeline->signal(signal.value);
  }
};

class InstantDevice final : public devices::Device {
 public:
  const devices::DeviceCaps& caps() const override { return caps_; }
  absl::StatusOr<devices::Buffer> allocate(Bytes size, devices::MemoryKind) override {
    return devices::allocate_resident_host(size, "bench");
  }
  absl::StatusOr<std::unique_ptr<devices::Program>> compile(const devices::OpList&,
                                                            const devices::ArenaLayout&) override {
    return absl::UnimplementedError("no programs");
  }
  absl::StatusOr<std::unique_ptr<devices::Timeline>> timeline() override {
    return std::make_unique<devices::HostTimeline>();
  }
  devices::Queue& queue(devices::QueueRole) override { return queue_; }
  void observe(devices::WorkObserver*) override {}
  Bytes allocated_bytes() const override { return 0; }
  Bytes peak_bytes() const override { return 0; }

 private:
  InstantQueue queue_;
  devices::DeviceCaps caps_;
};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

/// state.range(0): MiB of a chunk. Counters: bytes a second both ways, and the median ratio of pairs.
void BM_Staging(benchmark::State& state, Direction direction) {
  constexpr Bytes kSize = 256_MiB;
  EngineOptions options;
  options.chunk_bytes = static_cast<Bytes>(state.range(0)) * 1_MiB;
  options.staging = true;
  InstantDevice device;
  auto engine = TransferEngine::make(device, options);
  // Written before: pages that nobody has written are all the same one, and its bytes lie in the nearest cache.
  auto from = devices::allocate_resident_host(kSize, "bench");
  auto to = devices::allocate_resident_host(kSize, "bench");
  const Bytes ring_bytes = options.chunk_bytes * TransferEngine::staging_pieces(direction, options);
  auto ring = devices::allocate_resident_host(ring_bytes, "bench");
  if (!engine.ok() || !from.ok() || !to.ok() || !ring.ok()) return state.SkipWithError("no memory");
  // Up, bytes are copied from all of memory into the ring, down from the ring into all of memory.
  const bool up = direction == Direction::kUp;
  std::vector<double> staged;
  std::vector<double> plain;
  std::vector<double> ratios;
  for (auto _ : state) {
    Clock::time_point begin = Clock::now();
    const Ticket ticket = (*engine)->submit(direction, {from->view(), to->view(), Urgency::kWeight, {}, nullptr, 0});
    if (!(*engine)->wait(direction, ticket, begin + std::chrono::minutes(1)).ok()) return state.SkipWithError("failed");
    staged.push_back(kSize / seconds_since(begin));
    begin = Clock::now();
    for (Bytes done = 0; done < kSize; done += options.chunk_bytes) {
      std::byte* piece = ring->view().host() + done % ring->view().size;
      std::memcpy(up ? piece : to->view().host() + done, up ? from->view().host() + done : piece, options.chunk_bytes);
    }
    plain.push_back(kSize / seconds_since(begin));
    ratios.push_back(staged.back() / plain.back());
  }
  state.counters["staged"] = benchmark::Counter(median(staged), {}, benchmark::Counter::kIs1024);
  state.counters["memcpy"] = benchmark::Counter(median(plain), {}, benchmark::Counter::kIs1024);
  state.counters["ratio"] = median(ratios);
}
BENCHMARK_CAPTURE(BM_Staging, up, Direction::kUp)
    ->Arg(1)
    ->Arg(4)
    ->Arg(16)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Staging, down, Direction::kDown)
    ->Arg(1)
    ->Arg(4)
    ->Arg(16)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace rondo::transfer
