// What lies one behind another at home and on the device travels as one transfer (offload::PackedMemory).
#pragma once

#include "rondo/offload/packed_memory.h"
#include "rondo/transfer/engine.h"

namespace rondo::schedule {

/// Whether the ends of one more may be joined to those of `run`, which may be empty.
inline bool travels_with(const transfer::Transfer& run, devices::BufferView from, devices::BufferView to) {
  if (!offload::follows(run.from, from) || !offload::follows(run.to, to)) return false;
  const Bytes size = offload::joined(run.from, from).size;
  return size == offload::joined(run.to, to).size && size <= offload::PackedMemory::kLongest;
}

/// REQUIRES: `run` is empty, or travels_with(run, from, to).
inline void take_along(transfer::Transfer& run, devices::BufferView from, devices::BufferView to) {
  const bool empty = run.from.memory == nullptr;
  run.from = empty ? from : offload::joined(run.from, from);
  run.to = empty ? to : offload::joined(run.to, to);
}

}  // namespace rondo::schedule
