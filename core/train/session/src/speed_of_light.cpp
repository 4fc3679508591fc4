#include "rondo/train/speed_of_light.h"

#include <algorithm>

#include "rondo/devices/pool.h"

namespace rondo::train {
namespace {

double remembered(const devices::Device& device, devices::DType dtype, devices::CalibrationStore& store) {
  const auto known = devices::profile_of(device, store.find(devices::DeviceKey::of(device)));
  if (!known) return 0;
  const auto speed = known->flops.find(dtype);
  return speed != known->flops.end() ? speed->second : 0;
}

void remember(const devices::Device& device, devices::DType dtype, double flops, devices::CalibrationStore& store) {
  store.put(devices::DeviceKey::of(device), {{{"product", devices::name_of(dtype)}, flops}});
}

/// Measured on another device of the same kind: the run's own would count the buffers among its memory. 0 on failure.
double measured(const devices::Device& device, devices::DType dtype, devices::ThreadPool& threads,
                devices::CalibrationStore& store) {
  const auto pool = devices::open_pool({device.caps().backend, ""}, threads);
  if (!pool.ok()) return 0;
  const absl::StatusOr<double> speed = devices::measure_flops(*pool->front().device, dtype);
  if (!speed.ok()) return 0;
  remember(device, dtype, *speed, store);
  return *speed;
}

}  // namespace

double peak_flops(const Machine& machine, devices::DType dtype, devices::CalibrationStore& store) {
  double peak = 0;
  double host = 0;
  for (const devices::PoolMember& member : machine.pool) {
    const double profile = member.profile.speed(dtype) / std::max(member.profile.efficiency, 1e-9);
    if (machine.phantom) {
      peak += member.profile.speed(dtype);
    } else if (member.described) {
      peak += profile;
    } else if (!member.on_host()) {
      const double known = remembered(*member.device, dtype, store);
      peak += known > 0 ? known : profile;
    } else if (host <= 0) {
      host = remembered(*member.device, dtype, store);
      if (host <= 0) host = measured(*member.device, dtype, *machine.threads, store);
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

void remember_peak(const Machine& machine, devices::DType dtype, double peak, devices::CalibrationStore& store) {
  if (machine.phantom || machine.pool.size() != 1 || machine.pool.front().described) return;
  remember(*machine.pool.front().device, dtype, peak, store);
}

}  // namespace rondo::train
