#include "speed_of_light.h"

#include <algorithm>

#include "rondo/devices/pool.h"

namespace rondo::train {
namespace {

/// A real device that computes with the host's processor.
bool is_host(const devices::PoolMember& member) {
  return !member.described && member.device->caps().unified_memory && member.device->caps().does_arithmetic;
}

double remembered(const devices::Device& device, devices::DType dtype, const devices::SpeedCache& cache) {
  const auto known = cache.find(device);
  if (!known) return 0;
  const auto speed = known->flops.find(dtype);
  return speed != known->flops.end() ? speed->second : 0;
}

/// Measured on another device of the same kind: the run's own would count the buffers among its memory. 0 on failure.
double measured(const devices::Device& device, devices::DType dtype, devices::ThreadPool& threads,
                const devices::SpeedCache& cache) {
  const auto pool = devices::open_pool({device.caps().backend, ""}, threads);
  if (!pool.ok()) return 0;
  const absl::StatusOr<double> speed = devices::measure_flops(*pool->front().device, dtype);
  if (!speed.ok()) return 0;
  devices::DeviceProfile profile;
  profile.flops[dtype] = *speed;
  cache.remember(device, profile);
  return *speed;
}

}  // namespace

double peak_flops(const Machine& machine, devices::DType dtype, const devices::SpeedCache& cache) {
  double peak = 0;
  double host = 0;
  for (const devices::PoolMember& member : machine.pool) {
    const double profile = member.profile.speed(dtype) / std::max(member.profile.efficiency, 1e-9);
    if (machine.phantom) {
      peak += member.profile.speed(dtype);
    } else if (member.described) {
      peak += profile;
    } else if (!is_host(member)) {
      const double known = remembered(*member.device, dtype, cache);
      peak += known > 0 ? known : profile;
    } else if (host <= 0) {
      host = remembered(*member.device, dtype, cache);
      if (host <= 0) host = measured(*member.device, dtype, *machine.threads, cache);
      if (host <= 0) host = profile;
    }
  }
  return peak + host;
}

double SpeedOfLight::share(double flops, double seconds) {
  if (peak_ <= 0 || flops <= 0 || seconds <= 0) return 0;
  const double rate = flops / seconds;
  peak_ = std::max(peak_, rate);
  return rate / peak_;
}

void remember_peak(const Machine& machine, devices::DType dtype, double peak, const devices::SpeedCache& cache) {
  if (machine.phantom || machine.pool.size() != 1 || machine.pool.front().described) return;
  devices::DeviceProfile profile;
  profile.flops[dtype] = peak;
  cache.remember(*machine.pool.front().device, profile);
}

}  // namespace rondo::train
