// Cards for the tests of described devices, with round figures.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "patience.h"
#include "rondo/devices/emulated/emulated_device.h"
#include "rondo/devices/host_queue.h"

namespace rondo::devices::emulated {

using test::patience;

inline double seconds_between(Moment from, Moment to) { return std::chrono::duration<double>(to - from).count(); }

/// 1 TFLOP/s at efficiency 0.5, 100 GB/s, link 1 GB/s up and 2 GB/s down, 1 ms latency, no jitter.
inline CardOptions round_card(const std::string& name = "timed:round:0") {
  CardOptions options;
  options.name = name;
  options.profile.name = "round";
  options.profile.flops = {{DType::kFloat32, 1e12}};
  options.profile.efficiency = 0.5;
  options.profile.memory_bytes = 1_GiB;
  options.profile.memory_bandwidth = 1e11;
  options.profile.link_up = 1e9;
  options.profile.link_down = 2e9;
  options.profile.link_latency_seconds = 1e-3;
  options.profile.jitter = 0;
  return options;
}

/// y [T, N] = x [T, K] w^T of 5 MFLOP with the figures above: 10 us of computing and less of memory.
inline OpList small_product() {
  OpList list;
  list.tokens = 50;
  list.tensors = {{"x", {50, 250}, DType::kFloat32, TensorRole::kInput, 0},
                  {"w", {200, 250}, DType::kFloat32, TensorRole::kWeight, 0},
                  {"y", {50, 200}, DType::kFloat32, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kMatMul, MatMulAttributes{}, {0, 1}, {2}}};
  return list;
}

/// A program of a device, bound to memory of its own.
struct Loaded {
  std::unique_ptr<Program> program;
  std::vector<Buffer> buffers;
  Bindings bindings;
};

inline Loaded load(Device& device, const OpList& list) {
  Loaded loaded;
  const ArenaLayout layout = plan_arena(list);
  loaded.program = *device.compile(list, layout);
  for (const TensorDesc& tensor : list.tensors) {
    loaded.buffers.push_back(*device.allocate(tensor.bytes(), MemoryKind::kDevice));
    loaded.bindings.tensors.push_back(loaded.buffers.back().view());
  }
  return loaded;
}

/// Holds back work until all of it is enqueued, so that a slow feeder does not show in ideal time.
class Gate {
 public:
  std::span<const Point> waits() const { return {&point_, 1}; }
  /// `ahead`: so much later, when all who wait have come to it.
  Moment open(std::chrono::milliseconds ahead = {}) {
    const Moment moment = std::chrono::steady_clock::now() + ahead;
    timeline_.signal_at(1, moment);
    return moment;
  }

 private:
  HostTimeline timeline_;
  const Point point_{&timeline_, 1};
};

/// The ideal moment of a value of a described card's timeline.
inline Moment reached(Timeline& timeline, std::uint64_t value) {
  return *dynamic_cast<HostTimeline&>(timeline).wait_reached(value);
}

}  // namespace rondo::devices::emulated
