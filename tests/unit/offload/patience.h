// How long the room's tests wait: for what comes, and for what must not.
#pragma once

#include <chrono>

namespace rondo::offload {

inline std::chrono::steady_clock::time_point patience() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(20);
}
inline std::chrono::steady_clock::time_point soon() {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
}

}  // namespace rondo::offload
