// What the kernels of cross-entropy keep of tokens beside their logits.
#pragma once

#include <limits>

#include "support.h"

namespace rondo::devices::cpu::testing {

struct EntropyRows {
  explicit EntropyRows(std::int64_t tokens)
      : losses(static_cast<std::size_t>(tokens), 7.0), normalisers(2 * losses.size(), 7.0F) {
    for (std::size_t i = 0; i < losses.size(); ++i) {
      statistics.insert(statistics.end(), {-std::numeric_limits<float>::infinity(), 0.0F, 0.0F});
    }
  }
  std::vector<float> statistics;  // before the first part
  std::vector<double> losses;
  std::vector<float> normalisers;
};

}  // namespace rondo::devices::cpu::testing
