// The share of the speed of light: the time that a step's necessary matrix products take at the pool's peak, over the
// time that the step took.
#pragma once

#include "rondo/devices/calibration_store.h"
#include "rondo/devices/tensor.h"
#include "rondo/train/session.h"

namespace rondo::train {

/// FLOP/s that the pool's matrix products in `dtype` can reach. A described card's is its entry. The CPU's is measured:
/// remembered in `store` or, where it is not, measured now in a third of a second and remembered; CPU members share one
/// processor, which counts once. A real card's is the one remembered, else its backend's estimate.
double peak_flops(const Machine& machine, devices::DType dtype, devices::CalibrationStore& store);

class SpeedOfLight {
 public:
  /// `peak`: FLOP/s; 0 when it is not known: then all shares are 0.
  explicit SpeedOfLight(double peak) : peak_(peak) {}

  /// At most 1: a rate that was reached is possible, so that one above the peak raises it (the peak was measured while
  /// the machine had other work).
  double share(double flops, double seconds);
  double peak() const { return peak_; }

 private:
  double peak_;
};

/// Keeps a peak that a run has raised, where it is that of one device.
void remember_peak(const Machine& machine, devices::DType dtype, double peak, devices::CalibrationStore& store);

}  // namespace rondo::train
