// Short measured runs of single ops, as a model's programs hold them.
#pragma once

#include <cstdint>
#include <vector>

#include "rondo/devices/device.h"
#include "rondo/devices/op_shape.h"
#include "rondo/devices/profile.h"

namespace rondo::devices {

/// An op to be measured: `list` as its program was recorded, outliving this.
struct OpProbe {
  const OpList* list = nullptr;
  std::size_t op = 0;
  std::uint32_t sequence_length = 0;
  Bytes apart = 0;  // of weights and their gradients that a step goes through between two visits of the op's own

  OpShape shape() const { return shape_of(*list, list->ops[op], sequence_length); }
};

/// The op alone on about `rows` tokens: what the program computed before it is bound from outside.
OpList alone(const OpProbe& probe, std::uint32_t rows);

struct MeasuredOp {
  OpShape shape;
  double rate = 0;  // work a second
};

/// The median of a few runs of each probe, within about `seconds` in all: long ones run on fewer tokens, which counts
/// for the asked number too. `expected`: speeds by which to tell how long that is; they also stand for what could not
/// be measured (no memory or no time was left, the device does not know the op), so that it is not tried again every
/// time. Where the driver compiles a program when it first runs (DeviceCaps::first_use_seconds), that is not counted.
std::vector<MeasuredOp> measure_ops(Device& device, std::vector<OpProbe> probes, const DeviceProfile& expected,
                                    double seconds);

}  // namespace rondo::devices
