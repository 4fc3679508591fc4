// The table of built-in cards, apart from the code that reads catalogues.
#pragma once

#include <vector>

#include "rondo/devices/profile.h"

namespace rondo::devices {

/// In any order.
std::vector<DeviceProfile> built_in_cards();

}  // namespace rondo::devices
