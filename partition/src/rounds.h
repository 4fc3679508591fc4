// Cutting the microbatches of a step into rounds.
#pragma once

#include <cstdint>
#include <vector>

#include "rondo/partition/plan.h"

namespace rondo::partition {

/// Rounds of so many microbatches, the last of what is left.
std::vector<Round> rounds_of(const Workload& work, std::uint32_t microbatches_per_round);

/// Ways to cut a step into short rounds, the shortest first: reduction groups in parts that are as even as they go, in
/// half as many with each way, then several groups a round. Only numbers of rounds that are multiples of `divisor`.
/// `wanted`: microbatches a round, as nearly as may be; 0: all ways.
std::vector<std::vector<Round>> short_rounds(const Workload& work, std::uint32_t wanted, std::size_t divisor);

}  // namespace rondo::partition
