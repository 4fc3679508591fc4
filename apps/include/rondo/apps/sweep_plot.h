// Tokens a second against the global batch as an SVG picture: a line for each pool.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rondo::train {

struct SweepLine {
  std::string name;
  std::vector<std::pair<std::uint32_t, double>> points;  // global batch, tokens a second; rising
  std::uint32_t knee = 0;                                // a global batch among them; 0: none
};

/// Empty lines are named in the legend only.
std::string sweep_svg(const std::string& title, const std::vector<SweepLine>& lines);

}  // namespace rondo::train
