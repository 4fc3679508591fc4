// How long tests wait: for what comes, and for what must not.
#pragma once

#include <chrono>

namespace rondo::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// How much longer than in a plain build things may take.
inline constexpr int kSlowdown = kSanitized ? 8 : 1;

/// When a test takes what it waits for to be hung.
inline std::chrono::steady_clock::time_point patience() {
  return std::chrono::steady_clock::now() + kSlowdown * std::chrono::seconds(60);
}
inline std::chrono::steady_clock::time_point soon() {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
}

}  // namespace rondo::test
