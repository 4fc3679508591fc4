// A program as submissions of bounded work. Operating systems take a card whose work does not end within some seconds
// for hung and reset it; so a program is several submissions, and a dispatch that is too much for one is several
// dispatches, each of a part of its grid.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lowering.h"

namespace rondo::devices::vulkan {

/// Work is counted in seconds of the slowest integrated card's: 0.1 TFLOP, or 10 GB read and written.
inline constexpr double kFlopsOfWork = 1e11;
inline constexpr double kBytesOfWork = 1e10;
/// Of a submission.
inline constexpr double kMostWork = 1;

/// How dispatches are cut.
struct Cut {
  double most_work = kMostWork;  // of a part, as far as single workgroups let it
  std::uint32_t least = 1;       // parts of each dispatch, as far as it has workgroups: for tests
  bool backwards = false;        // of each dispatch's parts the last comes first
};

/// The dispatches in their order, those of more work as parts one behind the other: ranges of the grid's second
/// dimension, those of a single one that is too much ranges of the first, and so on of the third. Together they do what
/// the whole does, in any order.
std::vector<Dispatch> in_parts(std::vector<Dispatch> dispatches, const Cut& cut);

/// How many dispatches each submission has, so that it is no more than `most` work as far as single dispatches let it.
/// At least one submission.
std::vector<std::size_t> submissions_of(std::span<const Dispatch> dispatches, double most);

}  // namespace rondo::devices::vulkan
