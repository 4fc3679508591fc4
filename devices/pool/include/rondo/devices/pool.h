// The pool of devices that a run uses: from the `devices` key to open devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/devices/device.h"
#include "rondo/devices/profile.h"
#include "rondo/devices/thread_pool.h"

namespace rondo::devices {

/// One pool member: the open device and what is known of its speed.
struct PoolMember {
  std::unique_ptr<Device> device;
  DeviceProfile profile;   // a described card's entry; of real devices the backend's estimate
  bool described = false;  // the profile is a card's entry, nothing to be measured

  /// A real device that computes with the host's processor.
  bool on_host() const { return !described && device->caps().unified_memory && device->caps().does_arithmetic; }
  /// A real card, which programs reach through a driver.
  bool has_driver() const { return !described && !device->caps().unified_memory && device->caps().does_arithmetic; }
};

struct PoolOptions {
  /// "cpu", "vulkan:0,cpu", "emulated:rtx4090*4,timed:cards.yaml#fast", ...; "all": whatever the machine has.
  std::string devices = "auto";
  /// "cuda:0=8GiB,cpu:0=4GiB": lowers memory_bytes of that member.
  std::string memory_limit;
};

/// Opens every member, in the order given, under unique names ("cpu:0", "emulated:rtx4090:0", "emulated:rtx4090:1").
/// Errors: InvalidArgument naming the entry at fault and what is possible; timed members cannot be mixed with others.
absl::StatusOr<std::vector<PoolMember>> open_pool(const PoolOptions& options, ThreadPool& threads);

/// "8GiB", "512MiB", "24e9", "1.5 GB". Errors: InvalidArgument.
absl::StatusOr<Bytes> parse_bytes(const std::string& text);

/// Measured speeds of a device: FLOP/s by dtype as measure_flops() gives them, bytes/s of memory and of both link
/// directions.
absl::StatusOr<DeviceProfile> measure_device(Device& device);
/// Parts of it. Memory takes 60 MiB where that is the host's.
absl::Status measure_memory(Device& device, DeviceProfile& profile);
absl::Status measure_links(Device& device, DeviceProfile& profile);

/// FLOP/s of a large matrix product in `dtype`, the best of a few tries; takes a third of a second at most, unless two
/// products take longer.
absl::StatusOr<double> measure_flops(Device& device, DType dtype);

}  // namespace rondo::devices
