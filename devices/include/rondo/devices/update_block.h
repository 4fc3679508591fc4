// The blocks in which optimizers go over parameters, and their random numbers: what processors and cards must agree on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rondo/devices/random.h"

namespace rondo::devices {

/// Elements that one rounding key serves, one sum of squares, and one task of the optimizer: fits a core's cache five
/// times over.
inline constexpr std::size_t kUpdateBlock = 16384;

/// Of one version of a parameter.
constexpr std::uint64_t version_key(std::uint32_t parameter, std::uint64_t version) {
  return combine_keys(parameter, version);
}
/// Where the random bits of stochastic rounding come from, for one block of one version of a parameter.
constexpr std::uint32_t rounding_key(std::uint64_t version_key, std::size_t block) {
  return static_cast<std::uint32_t>(combine_keys(version_key, block));
}
/// For elements from `first` on of such a block.
constexpr std::uint32_t rounding_key_from(std::uint32_t key, std::size_t first) {
  return key + static_cast<std::uint32_t>(first);
}

/// Numbers that OpKind::kAdamW is told of a parameter.
inline constexpr std::int64_t kUpdateFactors = 8;

}  // namespace rondo::devices
