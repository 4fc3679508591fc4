// Measured speeds of this machine's devices, remembered from one run of the program to the next.
//
//   file = { "speeds": [ {"key": K, "flops": {dtype: FLOP/s...}, "memory_bandwidth"?: bytes/s, "link"?: {"up": bytes/s,
//   "down": bytes/s, "latency": s} }... ] }          the one measured last stands last
//
// K names the device's description (processor, threads, instruction set), its numerics class and this build of the
// program: another build may have other kernels. What cannot be read or written counts as not remembered.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "rondo/devices/device.h"
#include "rondo/devices/profile.h"

namespace rondo::devices {

class SpeedCache {
 public:
  /// `file` need not exist; an empty path remembers nothing.
  explicit SpeedCache(std::filesystem::path file) : file_(std::move(file)) {}
  /// speeds.json in $XDG_CACHE_HOME/rondo or $HOME/.cache/rondo; without either, nothing is remembered.
  static SpeedCache of_user();
  const std::filesystem::path& file() const { return file_; }

  /// What is known of `device`, zeros for what is not; nothing when it was never measured.
  std::optional<DeviceProfile> find(const Device& device) const;
  /// Keeps every speed of `measured` above zero; others stay as they were.
  void remember(const Device& device, const DeviceProfile& measured) const;

 private:
  std::filesystem::path file_;
};

}  // namespace rondo::devices
