// Measured speeds: each figure is the best of a few tries of work that is large enough to hide what enqueuing costs.
//
// All buffers are allocated up front and everything runs through the contract, so that one code measures every backend.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "rondo/base/status.h"
#include "rondo/devices/pool.h"
#include "stopwatch.h"

namespace rondo::devices {
namespace {

constexpr Tries kBest{5, 0.3};

/// Sides of the products that speeds are told from: small enough for a slow CPU, and long enough for the fastest card
/// to be busy for kLongEnough with, beside which what it takes to enqueue is little.
constexpr std::int64_t kLeastSide = 1024;
constexpr std::int64_t kMostSide = 8192;
constexpr double kLongEnough = 1e-3;

/// [T, N] = [T, K] [N, K]^T, all of one extent.
OpList product(DType dtype, std::int64_t side) {
  OpList list;
  list.tokens = static_cast<std::uint32_t>(side);
  list.tensors = {{"x", {side, side}, dtype, TensorRole::kInput, 0},
                  {"w", {side, side}, dtype, TensorRole::kWeight, 0},
                  {"y", {side, side}, dtype, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kMatMul, MatMulAttributes{}, {0, 1}, {2}}};
  return list;
}

/// Reads two arrays and writes a third, `most` bytes in all.
OpList stream(Bytes most) {
  constexpr std::int64_t kWidth = 4096;
  const auto fitting = static_cast<std::int64_t>(most / (3 * kWidth * sizeof(float)));
  const std::int64_t tokens = std::clamp<std::int64_t>(fitting, 1, 4096);
  OpList list;
  list.tokens = static_cast<std::uint32_t>(tokens);
  list.tensors = {{"a", {tokens, kWidth}, DType::kFloat32, TensorRole::kInput, 0},
                  {"b", {tokens, kWidth}, DType::kFloat32, TensorRole::kInput, 1},
                  {"c", {tokens, kWidth}, DType::kFloat32, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kAdd, NoAttributes{}, {0, 1}, {2}}};
  return list;
}

/// Beyond the caches where that is the device's own memory; the host's is taken for a moment only.
Bytes stream_bytes(const DeviceCaps& caps) {
  return std::min<Bytes>(caps.memory_bytes / 4, caps.unified_memory ? 60_MiB : 192_MiB);
}

}  // namespace

absl::StatusOr<double> measure_flops(Device& device, DType dtype) {
  RONDO_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::make(device));
  for (std::int64_t side = kLeastSide;; side *= 2) {
    const OpList list = product(dtype, side);
    RONDO_ASSIGN_OR_RETURN(const std::vector<double> seconds, watch.time_program(list, kBest));
    const double best = *std::ranges::min_element(seconds);
    const Bytes next = 3 * 4 * list.tensors[0].bytes();  // three matrices of twice the side
    const bool enough = best >= kLongEnough || side == kMostSide || next > device.caps().memory_bytes / 8;
    if (enough) return cost_of(list, list.tokens).flops / best;
  }
}

absl::Status measure_memory(Device& device, DeviceProfile& profile) {
  RONDO_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::make(device));
  const OpList adding = stream(stream_bytes(device.caps()));
  RONDO_ASSIGN_OR_RETURN(const std::vector<double> seconds, watch.time_program(adding, kBest));
  profile.memory_bandwidth = cost_of(adding, adding.tokens).bytes / *std::ranges::min_element(seconds);
  return absl::OkStatus();
}

absl::Status measure_links(Device& device, DeviceProfile& profile) {
  RONDO_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::make(device));
  constexpr Bytes kSmall = 64;
  const Bytes large = std::min<Bytes>(64_MiB, device.caps().memory_bytes / 4);
  RONDO_ASSIGN_OR_RETURN(const Buffer here, device.allocate(large, MemoryKind::kDevice));
  RONDO_ASSIGN_OR_RETURN(const Buffer home, device.allocate(large, MemoryKind::kPinned));
  // The first write to a fresh page takes many times what a copy takes.
  for (const Buffer* buffer : {&here, &home}) {
    if (std::byte* const memory = buffer->view().host(); memory != nullptr) std::fill_n(memory, large, std::byte{0});
  }
  const auto part = [](const Buffer& buffer) { return buffer.view().part(0, kSmall); };
  RONDO_ASSIGN_OR_RETURN(const std::vector<double> small,
                         watch.time_copy(QueueRole::kUp, part(home), part(here), kBest));
  RONDO_ASSIGN_OR_RETURN(const std::vector<double> up,
                         watch.time_copy(QueueRole::kUp, home.view(), here.view(), kBest));
  RONDO_ASSIGN_OR_RETURN(const std::vector<double> down,
                         watch.time_copy(QueueRole::kDown, here.view(), home.view(), kBest));
  profile.link_latency_seconds = *std::ranges::min_element(small);
  const auto rate = [&](const std::vector<double>& times) {
    const double seconds = *std::ranges::min_element(times);
    // A latency measured while the machine was busy must not make the link look faster than it is.
    return static_cast<double>(large) / std::max(seconds - profile.link_latency_seconds, 0.9 * seconds);
  };
  profile.link_up = rate(up);
  profile.link_down = rate(down);
  return absl::OkStatus();
}

absl::StatusOr<DeviceProfile> measure_device(Device& device) {
  DeviceProfile profile;
  profile.name = device.caps().name;
  profile.memory_bytes = device.caps().memory_bytes;
  profile.jitter = 0;
  profile.source = "measured";
  for (const DType dtype : device.caps().compute_dtypes) {
    RONDO_ASSIGN_OR_RETURN(profile.flops[dtype], measure_flops(device, dtype));
  }
  RONDO_RETURN_IF_ERROR(measure_memory(device, profile));
  RONDO_RETURN_IF_ERROR(measure_links(device, profile));
  return profile;
}

}  // namespace rondo::devices
