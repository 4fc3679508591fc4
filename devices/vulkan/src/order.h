// Which dispatches of a program may be under way at the same time.
//
// A program's ops are an order in which they may be executed, not one in which they must. Barriers between dispatches
// drain a card, which costs some microseconds and leaves it half empty where work is small, as adapters' products are.
// So dispatches go by levels: only between two levels is there a barrier.
#pragma once

#include <vector>

#include "lowering.h"

namespace rondo::devices::vulkan {

/// The dispatches with their levels, from 0 on without gaps, in rising order of them; `backwards`: in a level the last
/// comes first, for tests that nothing depends on that. A dispatch's level is above those of all earlier ones of its
/// op (but for one that it stands beside), and of ops that write what its op touches or touch what it writes. What
/// shares the workspace or the panel does not share a level. Of what programs are bound to, inputs and outputs may lie
/// on each other; others do not, unless they have one role and index.
std::vector<Dispatch> by_levels(const OpList& list, const ArenaLayout& layout, std::vector<Dispatch> dispatches,
                                bool backwards = false);

}  // namespace rondo::devices::vulkan
