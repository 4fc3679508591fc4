// fp32 arithmetic with the bits of processors (IEEE 754, to nearest, ties to even), on bits: a card's products and sums
// are rounded so (Vulkan 1.2, "Precision and Operation of SPIR-V Instructions"), but numbers below 2^-126 may be lost,
// and quotients and roots err by some units. What a card may lose is done in whole numbers of 64 bits.
//
// kCareless, a constant of the kernel that includes this: for tests, any card loses and errs so.
#include "float_parts.glsl"

const uint kNoNumber = 0x7FC00000u;

/// What a card may have in the place of x where that is below 2^-126, and of a quotient or root.
float kept_by_card(float x) {
  const uint bits = floatBitsToUint(x);
  return kCareless != 0 && magnitude_of(bits) < 0x00800000u ? uintBitsToFloat(bits & 0x80000000u) : x;
}
float found_by_card(float x) {
  const uint bits = floatBitsToUint(x);
  return kCareless != 0 && bits != 0 ? uintBitsToFloat((bits & 1u) != 0 ? bits + 2 : bits - 2) : x;
}
/// By the card's own arithmetic, neither fused with the other.
float card_product(float a, float b) {
  precise float product = kept_by_card(a) * kept_by_card(b);
  return kept_by_card(product);
}
float card_sum(float a, float b) {
  precise float sum = kept_by_card(a) + kept_by_card(b);
  return kept_by_card(sum);
}

/// x 2^exponent to nearest. REQUIRES: x < 2^63.
uint rounded_bits(uint sign, uint64_t x, int exponent) {
  if (x == 0ul) return sign;
  const int places = max(highest_bit(x) - 23, -149 - exponent);
  uint mantissa = 0;
  if (places <= 0) {
    mantissa = uint(x << uint(-places));
  } else if (places < 64) {
    mantissa = uint(rounded_shift(x, uint(places)));
  }
  const int field = exponent + places + 149;
  if (field > 253) return sign | kInfinity;
  // A mantissa's leading bit adds one to the field: so there is none below 2^-126, and a carry makes the next power.
  return sign | ((uint(field) << 23) + mantissa);
}

/// a b, of finite numbers.
uint product_in_whole_numbers(uint a, uint b) {
  const Parts x = parts_of(a);
  const Parts y = parts_of(b);
  return rounded_bits(x.sign ^ y.sign, uint64_t(x.mantissa) * uint64_t(y.mantissa), x.exponent + y.exponent);
}

/// a + b, of finite numbers.
uint sum_in_whole_numbers(uint a, uint b) {
  const Parts x = parts_of(a);
  const Parts y = parts_of(b);
  if (x.mantissa == 0 || y.mantissa == 0) return x.mantissa == 0 ? (y.mantissa == 0 ? a & b : b) : a;
  // From 2^61 to 2^62, so that what is shifted out lies far below what is kept.
  const int exponent = max(x.exponent, y.exponent);
  const uint64_t left = shifted(uint64_t(x.mantissa) << 38, uint(exponent - x.exponent));
  const uint64_t right = shifted(uint64_t(y.mantissa) << 38, uint(exponent - y.exponent));
  if (x.sign == y.sign) return rounded_bits(x.sign, left + right, exponent - 38);
  if (left == right) return 0;
  return left > right ? rounded_bits(x.sign, left - right, exponent - 38)
                      : rounded_bits(y.sign, right - left, exponent - 38);
}

/// a b.
uint product_of(uint a, uint b) {
  const uint bits = floatBitsToUint(card_product(uintBitsToFloat(a), uintBitsToFloat(b)));
  if (magnitude_of(a) == 0 || magnitude_of(b) == 0) return bits;
  // What the card lost may have met infinity.
  if (!is_finite(a) || !is_finite(b)) {
    return max(magnitude_of(a), magnitude_of(b)) > kInfinity ? kNoNumber : ((a ^ b) & 0x80000000u) | kInfinity;
  }
  return magnitude_of(bits) < 0x01000000u ? product_in_whole_numbers(a, b) : bits;
}

/// a + b.
uint sum_of(uint a, uint b) {
  const uint bits = floatBitsToUint(card_sum(uintBitsToFloat(a), uintBitsToFloat(b)));
  // Where the sum is 2^-100 and more, what lies below 2^-126 changes nothing; nor where there is none.
  const bool small = magnitude_of(bits) < 0x0D800000u && a != (b ^ 0x80000000u) && magnitude_of(a | b) != 0;
  return small ? sum_in_whole_numbers(a, b) : bits;
}

/// a - b.
uint difference_of(uint a, uint b) { return sum_of(a, b ^ 0x80000000u); }

/// A quotient or root to be rounded: its mantissa is `twice` / 2, twice from 2^24 to 2^25, or `more` than that; `field`
/// is its exponent's in the bits, and need not be one that there is.
struct Half {
  uint sign;
  uint twice;
  bool more;
  int field;
};
/// To nearest. REQUIRES: a field from 1 to 253.
uint rounded_half(Half x) {
  const uint mantissa = x.twice >> 1;
  const uint up = x.twice & (x.more ? 1u : mantissa & 1u);
  return x.sign | ((uint(x.field - 1) << 23) + mantissa + up);
}
/// The same of any field.
uint rounded_half_anywhere(Half x) {
  if (x.field >= 1 && x.field <= 253) return rounded_half(x);
  return rounded_bits(x.sign, (uint64_t(x.twice) << 1) | (x.more ? 1ul : 0ul), x.field - 152);
}

/// Of a finite number from 2^-126 on: what parts_of() finds at greater cost.
Parts normal_parts_of(uint bits) {
  const uint magnitude = magnitude_of(bits);
  return Parts(bits & 0x80000000u, (magnitude & 0x7FFFFFu) | 0x800000u, int(magnitude >> 23) - 150);
}

/// REQUIRES: mantissas of 24 bits.
Half quotient_of_parts(Parts x, Parts y) {
  const uint below = x.mantissa < y.mantissa ? 1 : 0;
  const uint dividend = x.mantissa << below;
  const float divisor = float(int(y.mantissa));
  // From 2^24 to 2^25, off by some units that the remainder tells of, which is less than 2^31.
  int quotient = int(found_by_card(float(int(dividend)) / divisor) * 16777216.0);
  int rest = int(dividend << 24) - quotient * int(y.mantissa);
  const int units = int(floor(found_by_card(float(rest) / divisor)));
  quotient += units;
  rest -= units * int(y.mantissa);
  // One more or less, where the division erred.
  const int one = rest < 0 ? -1 : (rest >= int(y.mantissa) ? 1 : 0);
  quotient += one;
  return Half(x.sign ^ y.sign, uint(quotient), rest != one * int(y.mantissa),
              x.exponent - y.exponent - int(below) + 127);
}

/// a / b.
uint quotient_of(uint a, uint b) {
  const uint sign = (a ^ b) & 0x80000000u;
  if (magnitude_of(a) > kInfinity || magnitude_of(b) > kInfinity) return kNoNumber;
  if (!is_finite(a)) return is_finite(b) ? sign | kInfinity : kNoNumber;
  if (!is_finite(b)) return sign;
  const Parts x = parts_of(a);
  const Parts y = parts_of(b);
  if (y.mantissa == 0) return x.mantissa == 0 ? kNoNumber : sign | kInfinity;
  if (x.mantissa == 0) return sign;
  return rounded_half_anywhere(quotient_of_parts(x, y));
}

/// REQUIRES: a mantissa of 24 bits.
Half root_of_parts(Parts x) {
  // An odd exponent: the root of the mantissa times 2^25 lies from 2^24 to 2^25. Off by some units that the remainder
  // tells of, which is less than 2^31.
  const int even = ~x.exponent & 1;
  const int mantissa = int(x.mantissa) << even;
  int root = int(found_by_card(sqrt(float(2 * mantissa))) * 4096.0);
  int rest = (mantissa << 25) - root * root;
  root += int(floor(found_by_card(float(rest) / float(2 * root))));
  rest = (mantissa << 25) - root * root;
  // One more or less, where that erred.
  const bool less = rest < 0;
  const bool more = rest > 2 * root;
  rest += less ? 2 * root - 1 : (more ? -(2 * root + 1) : 0);
  root += (more ? 1 : 0) - (less ? 1 : 0);
  return Half(0, uint(root), rest != 0, ((x.exponent - even - 25) >> 1) + 151);
}

uint root_of(uint a) {
  if (magnitude_of(a) == 0 || a == kInfinity) return a;
  if (a > kInfinity) return kNoNumber;  // or less than 0
  return rounded_half_anywhere(root_of_parts(parts_of(a)));
}
