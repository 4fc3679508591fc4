#include "rounds.h"

#include <algorithm>
#include <utility>

#include "rondo/partition/slots.h"

namespace rondo::partition {
namespace {

/// Every reduction group in so many parts, or as many as it has microbatches.
std::vector<Round> parts_of_groups(const Workload& work, std::uint32_t parts) {
  std::vector<Round> rounds;
  for (const Round& group : rounds_of(work, work.reduction_group)) {
    const std::uint32_t count = std::min(parts, group.microbatches);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t begin = group.microbatches * i / count;
      const std::uint32_t end = group.microbatches * (i + 1) / count;
      rounds.push_back({group.first_microbatch + begin, end - begin});
    }
  }
  return rounds;
}

}  // namespace

std::vector<Round> rounds_of(const Workload& work, std::uint32_t microbatches_per_round) {
  std::vector<Round> rounds;
  for (std::uint32_t first = 0; first < work.microbatches; first += microbatches_per_round) {
    rounds.push_back({first, std::min(microbatches_per_round, work.microbatches - first)});
  }
  return rounds;
}

std::vector<std::vector<Round>> short_rounds(const Workload& work, std::uint32_t wanted, std::size_t divisor) {
  const std::uint32_t group = work.reduction_group;
  std::vector<std::vector<Round>> ways;
  const auto add = [&](std::vector<Round> rounds) {
    if (rounds.size() % divisor != 0) return false;
    if (ways.empty() || rounds.size() < ways.back().size()) ways.push_back(std::move(rounds));
    return true;
  };
  for (std::uint32_t parts = wanted == 0 ? group : (group + wanted - 1) / wanted; parts > 1; parts /= 2) {
    for (std::uint32_t fewer = parts; fewer > 1 && !add(parts_of_groups(work, fewer)); --fewer) {
    }
    if (wanted != 0) return ways;
  }
  for (std::uint32_t groups = std::max(wanted / group, 1U); groups < 2 * groups_of(work); groups *= 2) {
    add(rounds_of(work, groups * group));
    if (wanted != 0) break;
  }
  return ways;
}

}  // namespace rondo::partition
