// What every queue of every device did when: collected without allocating, written as a Chrome trace (Perfetto opens
// it).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rondo/base/mutex.h"
#include "rondo/devices/device.h"
#include "rondo/partition/plan.h"

namespace rondo::schedule {

/// One piece of executed work.
struct TraceSpan {
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
  devices::QueueRole role = devices::QueueRole::kCompute;
  devices::WorkTag tag;
};

/// Of which work spans are kept.
enum class Traced : std::uint8_t { kAll, kComputing };

/// Records one device. Thread-safe; spans past the capacity are counted, not kept.
class DeviceTrace final : public devices::WorkObserver {
 public:
  DeviceTrace(std::string name, std::size_t capacity, Traced traced = Traced::kAll)
      : name_(std::move(name)), traced_(traced), spans_(capacity) {}
  void on_work(devices::QueueRole role, const devices::WorkTag& tag, std::chrono::steady_clock::time_point begin,
               std::chrono::steady_clock::time_point end) override;

  const std::string& name() const { return name_; }
  /// Of work that has ended.
  std::vector<TraceSpan> spans() const;
  std::size_t dropped() const;
  void clear();
  /// Exchanges what was recorded for `other`, which is enlarged to the capacity; returns how many of its entries count.
  std::size_t take(std::vector<TraceSpan>& other);
  /// Of compute work since the start, whatever room there was.
  double compute_seconds() const;

 private:
  const std::string name_;
  const Traced traced_;
  mutable Mutex mutex_;
  std::vector<TraceSpan> spans_ ABSL_GUARDED_BY(mutex_);
  std::size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  double compute_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
};

/// Writes the Chrome trace format: a process a device, threads compute, up and down, complete events in microseconds.
/// Flow events lead from upload to arithmetic to download, within a device. Microbatches count from 0 in each slot of
/// `plan`.
absl::Status write_trace(const std::filesystem::path& file, const std::vector<const DeviceTrace*>& devices,
                         const partition::Plan& plan);

}  // namespace rondo::schedule
