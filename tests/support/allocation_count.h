// Counts calls of operator new in this test program, over all threads.
#pragma once

#include <cstdint>

namespace rondo::allocation {

std::uint64_t allocations_so_far();

}  // namespace rondo::allocation
