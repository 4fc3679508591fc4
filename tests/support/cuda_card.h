// Whether tests have a CUDA card to run on.
#pragma once

#include <string>

#include "rondo/devices/cuda/cuda_device.h"

namespace rondo::test {

/// Why a test that needs one is left out; empty where there is one.
inline std::string no_cuda_card() {
  const auto cards = devices::cuda::list_cards();
  if (!cards.ok()) return "no card: " + std::string(cards.status().message());
  return cards->empty() ? "no card: the driver shows none" : "";
}

}  // namespace rondo::test
