// Moments in 8 bits: codes of a fixed table times the largest magnitude of a block of kMomentBlock elements.
//
// Source: the dynamic quantization of Dettmers et al. (arXiv 2110.02861) as bitsandbytes publishes it: seven decades
// below 1, each with twice the values of the one below, at the middles of equal parts of [0.1, 1] times the decade; 0
// and 1 beside them. Signed (128 magnitudes a sign) for the first moment, unsigned for the second. A number takes the
// nearest code; a first moment that would change its sign takes the next one towards its own. Unlike there, a second
// moment that is not 0 never takes 0's code: a first moment of some size would be divided by epsilon alone, and a
// weight whose gradient is 0 in the next step, such as a row of an embedding, thrown hundreds of learning rates away.
#pragma once

#include <cstdint>
#include <span>

#include "rondo/devices/moment_tables.h"

namespace rondo::devices {

const MomentTables& moment_tables();

/// The values of all codes, rising.
inline std::span<const float, 256> moment_values(bool is_signed) {
  return std::span<const float, 256>(moment_tables().values[is_signed ? 0 : 1]);
}

/// values[i] = table[codes[i]] * scale.
void decode_moments(std::span<const std::uint8_t> codes, float scale, bool is_signed, std::span<float> values);

/// One block: the codes of `values`, and the scale, their largest magnitude. Unsigned: no value is negative.
float encode_moments(std::span<const float> values, bool is_signed, std::span<std::uint8_t> codes);

}  // namespace rondo::devices
