// What a kept sample adds to a DataReport; one definition for reading and for splitting.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rondo/data/samples.h"

namespace rondo::data {

inline void count_kept(DataReport& report, std::uint32_t tokens, std::uint32_t targets) {
  ++report.kept;
  report.tokens += tokens;
  report.target_tokens += targets;
  report.longest = std::max(report.longest, tokens);
}

}  // namespace rondo::data
