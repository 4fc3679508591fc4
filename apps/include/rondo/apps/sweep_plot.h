// Tokens a second against the global batch as an SVG picture: a line for each pool.
#pragma once

#include <string>
#include <vector>

#include "rondo/train/run.h"

namespace rondo::apps {

/// A file of its own, well-formed XML. Empty lines are named in the legend only.
std::string sweep_svg(const std::string& title, const std::vector<train::SweepLine>& lines);

}  // namespace rondo::apps
