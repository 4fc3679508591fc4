// Measured speeds: each figure is the best of a few tries of work that is large enough to hide what enqueuing costs.
//
// All buffers are allocated up front and everything runs through the contract, so that one code measures every backend.
#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "rondo/base/status.h"
#include "rondo/devices/pool.h"

namespace rondo::devices {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::chrono::seconds kPatience{60};
constexpr int kTries = 5;
constexpr double kEnoughSeconds = 0.3;  // of tries, once there are two

/// [T, N] = [T, K] [N, K]^T, large enough for any card to be busy with and small enough for a slow CPU.
OpList product(DType dtype) {
  constexpr std::int64_t kSide = 1024;
  OpList list;
  list.tokens = kSide;
  list.tensors = {{"x", {kSide, kSide}, dtype, TensorRole::kInput, 0},
                  {"w", {kSide, kSide}, dtype, TensorRole::kWeight, 0},
                  {"y", {kSide, kSide}, dtype, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kMatMul, MatMulAttributes{}, {0, 1}, {2}}};
  return list;
}

/// Reads two arrays and writes a third, beyond the caches where the device's memory allows.
OpList stream(Bytes memory) {
  constexpr std::int64_t kWidth = 4096;
  const auto fitting = static_cast<std::int64_t>(memory / 4 / (3 * kWidth * sizeof(float)));
  const std::int64_t tokens = std::clamp<std::int64_t>(fitting, 1, 4096);
  OpList list;
  list.tokens = static_cast<std::uint32_t>(tokens);
  list.tensors = {{"a", {tokens, kWidth}, DType::kFloat32, TensorRole::kInput, 0},
                  {"b", {tokens, kWidth}, DType::kFloat32, TensorRole::kInput, 1},
                  {"c", {tokens, kWidth}, DType::kFloat32, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kAdd, NoAttributes{}, {0, 1}, {2}}};
  return list;
}

class Stopwatch {
 public:
  static absl::StatusOr<Stopwatch> make(Device& device) {
    RONDO_ASSIGN_OR_RETURN(std::unique_ptr<Timeline> timeline, device.timeline());
    return Stopwatch(device, std::move(timeline));
  }

  /// Least seconds of kTries runs of a program with every tensor bound to fresh, zeroed memory.
  absl::StatusOr<double> time_program(const OpList& list) {
    RONDO_RETURN_IF_ERROR(validate(list));
    const ArenaLayout layout = plan_arena(list);
    RONDO_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, device_->compile(list, layout));
    std::vector<Buffer> buffers;
    Bindings bindings;
    for (const TensorDesc& tensor : list.tensors) {
      RONDO_ASSIGN_OR_RETURN(Buffer buffer, device_->allocate(tensor.bytes(), MemoryKind::kDevice));
      bindings.tensors.push_back(buffer.view());
      buffers.push_back(std::move(buffer));
      RONDO_RETURN_IF_ERROR(finish([&](Point done) {
        device_->queue(QueueRole::kCompute).clear(buffers.back().view(), {}, done, {"measure"});
      }));
    }
    return least(
        [&](Point done) { device_->queue(QueueRole::kCompute).run(*program, bindings, {}, done, {"measure"}); });
  }

  absl::StatusOr<double> time_copy(QueueRole role, BufferView from, BufferView to) {
    return least([&](Point done) { device_->queue(role).copy(from, to, {}, done, {"measure"}); });
  }

 private:
  Stopwatch(Device& device, std::unique_ptr<Timeline> timeline) : device_(&device), timeline_(std::move(timeline)) {}

  template <typename Enqueue>
  absl::Status finish(Enqueue enqueue) {
    enqueue(Point{timeline_.get(), ++value_});
    return timeline_->wait(value_, Clock::now() + kPatience);
  }

  /// The first run is not counted: it fetches pages and code.
  template <typename Enqueue>
  absl::StatusOr<double> least(Enqueue enqueue) {
    const Clock::time_point first = Clock::now();
    RONDO_RETURN_IF_ERROR(finish(enqueue));
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTries; ++i) {
      const Clock::time_point begin = Clock::now();
      if (i >= 1 && Seconds(begin - first).count() > kEnoughSeconds) break;
      RONDO_RETURN_IF_ERROR(finish(enqueue));
      best = std::min(best, Seconds(Clock::now() - begin).count());
    }
    return std::max(best, 1e-9);
  }

  Device* device_;
  std::unique_ptr<Timeline> timeline_;
  std::uint64_t value_ = 0;
};

absl::Status measure_links(Device& device, Stopwatch& watch, DeviceProfile& profile) {
  constexpr Bytes kSmall = 64;
  const Bytes large = std::min<Bytes>(64_MiB, device.caps().memory_bytes / 4);
  RONDO_ASSIGN_OR_RETURN(const Buffer here, device.allocate(large, MemoryKind::kDevice));
  RONDO_ASSIGN_OR_RETURN(const Buffer home, device.allocate(large, MemoryKind::kPinned));
  const auto part = [](const Buffer& buffer) { return buffer.view().part(0, kSmall); };
  RONDO_ASSIGN_OR_RETURN(profile.link_latency_seconds, watch.time_copy(QueueRole::kUp, part(home), part(here)));
  RONDO_ASSIGN_OR_RETURN(const double up, watch.time_copy(QueueRole::kUp, home.view(), here.view()));
  RONDO_ASSIGN_OR_RETURN(const double down, watch.time_copy(QueueRole::kDown, here.view(), home.view()));
  const auto rate = [&](double seconds) {
    // A latency measured while the machine was busy must not make the link look faster than it is.
    return static_cast<double>(large) / std::max(seconds - profile.link_latency_seconds, 0.9 * seconds);
  };
  profile.link_up = rate(up);
  profile.link_down = rate(down);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<double> measure_flops(Device& device, DType dtype) {
  RONDO_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::make(device));
  const OpList list = product(dtype);
  RONDO_ASSIGN_OR_RETURN(const double seconds, watch.time_program(list));
  return cost_of(list, list.tokens).flops / seconds;
}

absl::StatusOr<DeviceProfile> measure_device(Device& device, ThreadPool& /*threads*/) {
  DeviceProfile profile;
  profile.name = device.caps().name;
  profile.memory_bytes = device.caps().memory_bytes;
  profile.jitter = 0;
  profile.source = "measured";
  for (const DType dtype : device.caps().compute_dtypes) {
    RONDO_ASSIGN_OR_RETURN(profile.flops[dtype], measure_flops(device, dtype));
  }
  RONDO_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::make(device));
  const OpList adding = stream(device.caps().memory_bytes);
  RONDO_ASSIGN_OR_RETURN(const double seconds, watch.time_program(adding));
  profile.memory_bandwidth = cost_of(adding, adding.tokens).bytes / seconds;
  RONDO_RETURN_IF_ERROR(measure_links(device, watch, profile));
  return profile;
}

}  // namespace rondo::devices
