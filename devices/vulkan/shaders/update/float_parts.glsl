// Floating-point numbers in whole numbers: their parts, and shifts that round.

const uint kInfinity = 0x7F800000u;

uint magnitude_of(uint bits) { return bits & 0x7FFFFFFFu; }
bool is_finite(uint bits) { return magnitude_of(bits) < kInfinity; }

/// A finite number: mantissa 2^exponent, the mantissa from 2^23 to 2^24, or 0.
struct Parts {
  uint sign;
  uint mantissa;
  int exponent;
};
Parts parts_of(uint bits) {
  const uint magnitude = magnitude_of(bits);
  const uint field = magnitude >> 23;
  const uint fraction = magnitude & 0x7FFFFFu;
  // Below 2^-126 the fraction is moved to where a mantissa begins.
  const uint moved = fraction == 0 ? 0 : uint(23 - findMSB(fraction));
  if (field == 0) return Parts(bits & 0x80000000u, fraction << moved, -149 - int(moved));
  return Parts(bits & 0x80000000u, fraction | 0x800000u, int(field) - 150);
}

/// REQUIRES: x is not 0.
int highest_bit(uint64_t x) {
  const uint high = uint(x >> 32);
  return high != 0 ? 32 + findMSB(high) : findMSB(uint(x));
}

/// x / 2^places, of whose lost bits the lowest one tells whether there were any.
uint64_t shifted(uint64_t x, uint places) {
  if (places == 0) return x;
  if (places > 63) return x == 0ul ? 0ul : 1ul;
  return (x >> places) | ((x << (64 - places)) == 0ul ? 0ul : 1ul);
}

/// x / 2^places, 0 < places < 64, to nearest, ties to even.
uint64_t rounded_shift(uint64_t x, uint places) {
  const uint64_t whole = x >> places;
  const uint64_t rest = x << (64 - places);
  const uint64_t half_of = 0x8000000000000000ul;
  return rest > half_of || (rest == half_of && (whole & 1ul) != 0ul) ? whole + 1ul : whole;
}
