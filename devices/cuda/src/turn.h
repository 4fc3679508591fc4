// A piece of work's turn in a queue.
#pragma once

#include <cstdint>

#include "driver.h"
#include "kernels/params.h"

namespace rondo::devices::cuda {

struct Turn {
  StreamHandle stream = nullptr;
  std::uint64_t number = 0;   // of the queue's turns, from 1
  DevicePointer fault = 0;    // the queue's record on the card; what is in it follows from the run before
  Fault* reported = nullptr;  // this turn's, in pinned memory: where a run that may fault leaves a copy of it
};

}  // namespace rondo::devices::cuda
