// What is told of the work before the first step.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace rondo::train {

/// `what` is being done: `done` parts of `of`, where they are counted (`of` 0: they are not). Often called; may be
/// empty.
using Progress = std::function<void(std::string_view what, std::uint64_t done, std::uint64_t of)>;

inline void tell(const Progress& progress, std::string_view what, std::uint64_t done = 0, std::uint64_t of = 0) {
  if (progress) progress(what, done, of);
}

}  // namespace rondo::train
