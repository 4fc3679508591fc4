// Behind submissions.h.
#include "submissions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace rondo::devices::vulkan {
namespace {

using Places = std::array<std::uint32_t, 3>;

/// Into how many ranges each dimension goes, and how much more than the mean a workgroup may have to do among those
/// dimensions.
struct Ranges {
  Places count = {1, 1, 1};
  double uneven = 1;
  std::uint64_t parts() const { return std::uint64_t{count[0]} * count[1] * count[2]; }
};

/// The grid's second dimension first: what the third has may be unlike, as experts' rows are, and the first is what
/// most grids lie along whose second is 1.
constexpr std::array<std::size_t, 3> kOrder = {1, 0, 2};

/// Fewest ranges of no more than `most` work. Those of a dimension differ by one workgroup at most.
Ranges ranges_of(const Dispatch& dispatch, double work, double most) {
  constexpr double kExact = 1 + 1e-9;  // a quotient that is a whole number is no less
  Ranges ranges;
  for (const std::size_t dimension : kOrder) {
    if (work <= most) break;
    if (dimension == dispatch.uneven.dimension) work *= ranges.uneven = dispatch.uneven.most;
    const std::uint32_t groups = dispatch.groups[dimension];
    const double one = work / groups;
    const double fitting = std::clamp<double>(std::floor(most / one * kExact), 1, groups);
    ranges.count[dimension] = static_cast<std::uint32_t>(parts_of(groups, static_cast<std::int64_t>(fitting)));
    work = one * fitting;
  }
  return ranges;
}

/// The range `place` of so many of [0, groups): its beginning, or where the next one begins.
std::uint32_t beginning(std::uint32_t place, std::uint32_t ranges, std::uint32_t groups) {
  return static_cast<std::uint32_t>(std::uint64_t{place} * groups / ranges);
}

Dispatch part_of(const Dispatch& whole, const Ranges& ranges, const Places& place) {
  Dispatch part = whole;
  part.part = true;
  part.push.grid = whole.groups[0] | whole.groups[2] << 16U;
  part.work *= ranges.uneven;
  for (std::size_t i = 0; i < place.size(); ++i) {
    part.begin[i] = beginning(place[i], ranges.count[i], whole.groups[i]);
    part.groups[i] = beginning(place[i] + 1, ranges.count[i], whole.groups[i]) - part.begin[i];
    part.work *= static_cast<double>(part.groups[i]) / whole.groups[i];
  }
  part.work = std::min(part.work, whole.work);
  return part;
}

}  // namespace

std::vector<Dispatch> in_parts(std::vector<Dispatch> dispatches, const Cut& cut) {
  std::vector<Dispatch> all;
  all.reserve(dispatches.size());
  for (Dispatch& dispatch : dispatches) {
    Ranges ranges = ranges_of(dispatch, dispatch.work, cut.most_work);
    if (ranges.parts() < cut.least) ranges = ranges_of(dispatch, cut.least, 1);
    if (ranges.parts() == 1) {
      all.push_back(std::move(dispatch));
      continue;
    }
    const auto first = static_cast<std::ptrdiff_t>(all.size());
    for (std::uint32_t z = 0; z < ranges.count[2]; ++z) {
      for (std::uint32_t y = 0; y < ranges.count[1]; ++y) {
        for (std::uint32_t x = 0; x < ranges.count[0]; ++x) all.push_back(part_of(dispatch, ranges, {x, y, z}));
      }
    }
    if (cut.backwards) std::reverse(all.begin() + first, all.end());
  }
  return all;
}

std::vector<std::size_t> submissions_of(std::span<const Dispatch> dispatches, double most) {
  std::vector<std::size_t> counts = {0};
  double work = 0;
  for (const Dispatch& dispatch : dispatches) {
    if (counts.back() > 0 && work + dispatch.work > most) {
      counts.push_back(0);
      work = 0;
    }
    ++counts.back();
    work += dispatch.work;
  }
  return counts;
}

}  // namespace rondo::devices::vulkan
