// How much the panel (panel.h) holds.
#pragma once

#include <cstdint>

#include "rondo/base/units.h"

namespace rondo::devices::vulkan {

inline constexpr Bytes kPanelBytes = 64_MiB;
inline constexpr Bytes kTexelBytes = 16;  // four floats
inline constexpr std::int64_t kPanelTexels = static_cast<std::int64_t>(kPanelBytes / kTexelBytes);

}  // namespace rondo::devices::vulkan
