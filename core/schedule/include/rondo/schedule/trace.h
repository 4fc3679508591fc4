// What every queue of every device did when: collected without allocating, written as a Chrome trace (Perfetto opens
// it).
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rondo/devices/device.h"

namespace rondo::schedule {

/// One piece of executed work.
struct TraceSpan {
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
  devices::QueueRole role = devices::QueueRole::kCompute;
  devices::WorkTag tag;
};

/// Records one device. Thread-safe; spans past the capacity are counted, not kept.
class DeviceTrace final : public devices::WorkObserver {
 public:
  DeviceTrace(std::string name, std::size_t capacity) : name_(std::move(name)), spans_(capacity) {}
  void on_work(devices::QueueRole role, const devices::WorkTag& tag, std::chrono::steady_clock::time_point begin,
               std::chrono::steady_clock::time_point end) override;

  const std::string& name() const { return name_; }
  /// REQUIRES: no work in flight.
  std::vector<TraceSpan> spans() const;
  std::size_t dropped() const;
  void clear() { next_.store(0, std::memory_order_relaxed); }

 private:
  const std::string name_;
  std::vector<TraceSpan> spans_;
  std::atomic<std::size_t> next_ = 0;  // relaxed: each index is written by one thread; readers come after the work
};

/// Writes the Chrome trace format: a process a device, threads compute, up and down, complete events in microseconds.
absl::Status write_trace(const std::filesystem::path& file, const std::vector<const DeviceTrace*>& devices);

/// Share of [begin, end] in which the compute queue worked.
double busy_share(const DeviceTrace& trace, std::chrono::steady_clock::time_point begin,
                  std::chrono::steady_clock::time_point end);

}  // namespace rondo::schedule
