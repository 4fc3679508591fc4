// What a kept sample adds to a DataReport; one definition for reading and for splitting.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rondo/data/samples.h"

namespace rondo::data {

/// Labels that count in the loss: they are shifted by one, so position 0 can be no target.
inline std::uint64_t count_targets(const Sample& sample) {
  std::uint64_t targets = 0;
  for (std::size_t t = 1; t < sample.labels.size(); ++t) targets += sample.labels[t] != kMasked ? 1U : 0U;
  return targets;
}

inline void count_kept(DataReport& report, const Sample& sample) {
  ++report.kept;
  report.tokens += sample.ids.size();
  report.target_tokens += count_targets(sample);
  report.longest = std::max(report.longest, static_cast<std::uint32_t>(sample.ids.size()));
}

}  // namespace rondo::data
