// Measured rates of a device by op and shape: what the cost model reads times off instead of one speed for everything.
//
// Plain data and pure functions; an OpRates does not change once a machine shape refers to it.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "rondo/devices/op_shape.h"

namespace rondo::partition {

struct DeviceShape;
struct PhaseCost;

/// Rates are work (devices::work_of) a second.
class OpRates {
 public:
  /// The last one of a shape stands. REQUIRES: `rate` is finite and above 0.
  void set(const devices::OpShape& shape, double rate);
  bool empty() const { return classes_.empty(); }

  /// Work a second of an op of this shape. Between two measured numbers of tokens the rate is interpolated over their
  /// logarithm, beyond them it is the nearest one's. Of a matrix that was never measured it is the lowest rate among
  /// those of the same op of at least half and at most twice its size either way; nothing where there is none.
  std::optional<double> rate(const devices::OpShape& shape) const;

  /// All of them, `factor` times as slow.
  OpRates slower(double factor) const;
  /// By shape.
  std::vector<std::pair<devices::OpShape, double>> list() const;

 private:
  using Curve = std::map<std::int64_t, double>;  // rate by rows
  static double on(const Curve& curve, std::int64_t rows);
  std::map<devices::OpShape, Curve> classes_;  // by shape without its rows
};

/// How long a program took.
struct ObservedProgram {
  const PhaseCost* cost = nullptr;
  double seconds = 0;
  double weight = 0;  // how often it runs in a step
};

/// Rates by which the programs take the seconds that they were seen to take, near those that `device` has: the times of
/// a program's ops are stretched alike, and an op of several programs by their mean, until it no longer changes. No op
/// is many times as fast as the device's profile has it, however often what was fitted is fitted again.
/// Returns those of the ops that the programs hold.
OpRates fit_rates(const std::vector<ObservedProgram>& programs, const DeviceShape& device, devices::DType dtype);

}  // namespace rondo::partition
