// From the run-time storage of a tensor to the type that kernels are templates of.
#pragma once

#include <cstdint>

#include "kernels.h"

namespace rondo::devices::cpu {

/// fp16 as stored; bf16 is a plain std::uint16_t.
struct Fp16 {
  std::uint16_t bits;
};

/// Calls `fn` with a value of the stored type: float, std::uint16_t holding bf16, or Fp16.
template <typename Function>
inline void with_storage(Storage storage, const Function& fn) {
  if (storage == Storage::kFloat32) {
    fn(float{});
  } else if (storage == Storage::kBfloat16) {
    fn(std::uint16_t{});
  } else {
    fn(Fp16{});
  }
}

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Elements that one task of an elementwise kernel handles: large enough to pay for its start, small enough to stay in
/// a second-level cache.
inline constexpr std::int64_t kTaskElements = 16384;

/// Rows of `width` elements that make up about kTaskElements.
constexpr std::int64_t task_rows(std::int64_t width) {
  return width >= kTaskElements ? 1 : divide_up(kTaskElements, width < 1 ? 1 : width);
}

}  // namespace rondo::devices::cpu
