// The codes of moments in 8 bits as tables: what processors and cards must agree on (moment_codes.h says whose codes
// they are). Plain, so that kernels can read them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rondo::devices {

/// Consecutive elements of a moment that share a scale, the largest magnitude among them. Divides kUpdateBlock.
inline constexpr std::size_t kMomentBlock = 256;

inline constexpr std::uint32_t kMomentKeptBits = 7;  // of a fraction, of those that lead to a code
inline constexpr std::uint32_t kMomentShift = 23 - kMomentKeptBits;
inline constexpr std::uint32_t kLowestMoment = (127U - 23U) << kMomentKeptBits;  // 2^-23: below it there are few codes
inline constexpr std::uint32_t kMomentKeys = (23U << kMomentKeptBits) + 2;

/// Codes from that of 0 on, in one direction.
struct MomentSide {
  float middles[256];                             // between value i and the next; beyond the last: more than any number
  std::uint8_t first[(kMomentKeys + 3) / 4 * 4];  // the lowest code of all numbers that begin with the same bits
};

struct MomentTables {
  float values[2][256];  // of the codes of first and of second moments, rising
  MomentSide sides[3];   // up and down from the code of 0 of first moments; of second ones
};
inline constexpr std::int64_t kMomentTableWords = sizeof(MomentTables) / 4;
static_assert(sizeof(MomentTables) % 4 == 0);

/// The code of 0 among those of first moments; among those of second ones it is 0.
inline constexpr std::uint32_t kSignedZero = 127;

/// How many codes lie between that of 0 and the one nearest to `x`, a magnitude of at most 1. `bits`: those of x.
constexpr std::uint32_t moment_steps(const MomentSide& side, float x, std::uint32_t bits) {
  const std::uint32_t leading = bits >> kMomentShift;
  std::uint32_t key = leading <= kLowestMoment ? 0 : leading - kLowestMoment;
  if (key >= kMomentKeys) key = kMomentKeys - 1;  // no number
  std::uint32_t steps = side.first[key];
  while (x > side.middles[steps]) ++steps;
  return steps;
}

/// The code of a first moment, as a part x of its block's scale. The code of 0 counts as positive: a negative number
/// goes on to the next. `bits`: of |x|.
constexpr std::uint32_t signed_moment_code(const MomentTables& tables, float x, std::uint32_t bits) {
  if (x < 0) {
    const std::uint32_t steps = moment_steps(tables.sides[1], -x, bits);
    return kSignedZero - (steps > 1 ? steps : 1);
  }
  return kSignedZero + moment_steps(tables.sides[0], x, bits);
}
/// Of a second moment.
constexpr std::uint32_t unsigned_moment_code(const MomentTables& tables, float x, std::uint32_t bits) {
  return moment_steps(tables.sides[2], x, bits);
}

}  // namespace rondo::devices
