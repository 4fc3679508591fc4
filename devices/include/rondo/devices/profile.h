// What a card can do, as plain data: from the catalogue of real cards, from a user's YAML file, or measured.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/base/units.h"
#include "rondo/devices/op.h"
#include "rondo/devices/tensor.h"

namespace rondo::devices {

/// An op takes max(FLOPs / (flops[dtype] * efficiency), bytes / memory_bandwidth), a product of eight bits the time of
/// its conversions as well (OpCost::conversion_bytes); a copy link_latency + bytes / link, the two directions
/// independent (INTERFACE, Pools).
struct DeviceProfile {
  std::string name;
  std::map<DType, double> flops;  // FLOP/s of dense matrix products with fp32 accumulation
  double fp8_flops = 0;           // the same of products of eight bits; 0: it has none
  Bytes memory_bytes = 0;
  double memory_bandwidth = 0;  // bytes/s
  double link_up = 0;           // bytes/s, host to device
  double link_down = 0;         // bytes/s, device to host
  double link_latency_seconds = 1e-5;
  double efficiency = 1.0;
  double jitter = 0.02;           // share of an op's time, on timed devices
  bool weights_in_place = false;  // its memory is the host's: programs read weights there
  std::string root;               // cards of one root complex share its bandwidth; empty: alone
  std::string fail_at;            // see FailurePlan; empty: never
  std::string slow_at;            // see Slowdown; empty: never
  std::string source;             // where the figures are from

  /// FLOP/s times efficiency; that of fp32 when `dtype` is not listed, 0 when neither is. `fp8`: of products of eight
  /// bits, where it has them.
  double speed(DType dtype, bool fp8 = false) const;
  /// Seconds of an op whose numbers are of `dtype`.
  double seconds(const OpCost& cost, DType dtype, bool fp8 = false) const;
  /// Programs take `factor` times as long; links are what they were.
  void slow_down(double factor);
};

/// Which work of an emulated card fails and how: "error@compute:17", "hang@up:3", "corrupt@down:5", counted from 1 over
/// the device's life by queue; "error@2.5s": at that time after the first work.
struct FailurePlan {
  enum class Kind : std::uint8_t { kNone, kError, kHang, kCorrupt } kind = Kind::kNone;
  std::string queue;
  std::uint64_t at_work = 0;
  double at_seconds = 0;
};
/// Errors: InvalidArgument with the grammar.
absl::StatusOr<FailurePlan> parse_failure(const std::string& text);

/// From which work on an emulated card computes how much slower: "2x@compute:40", "2x@compute:40-90", counted from 1
/// over the device's life, the last one included.
struct Slowdown {
  double factor = 1;
  std::uint64_t first = 0;  // 0: never
  std::uint64_t last = 0;
  double at(std::uint64_t work) const { return first > 0 && work >= first && work <= last ? factor : 1; }
};
/// Errors: InvalidArgument with the grammar.
absl::StatusOr<Slowdown> parse_slowdown(const std::string& text);

/// The built-in cards, in name order.
const std::vector<DeviceProfile>& card_catalogue();

/// `card`: a catalogue name or `file.yaml#name`. Errors: InvalidArgument naming the card and the nearest known ones, or
/// file, entry and key.
absl::StatusOr<DeviceProfile> find_card(const std::string& card);

/// A machine to plan for (the key `host`).
struct HostProfile {
  Bytes memory_bytes = 0;
  double memory_bandwidth = 0;                 // bytes/s, reads and writes together
  double optimizer_parameters_per_second = 0;  // AdamW
  double disk_bandwidth = 0;                   // bytes/s

  /// Seconds of an AdamW update of `parameters`: max(P / optimizer_parameters_per_second, 28 P / memory_bandwidth).
  double update_seconds(double parameters) const;
};
/// `file.yaml#name`.
absl::StatusOr<HostProfile> load_host_profile(const std::string& reference);

}  // namespace rondo::devices
