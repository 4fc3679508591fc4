// fp32 arithmetic with the bits of processors (IEEE 754, to nearest, ties to even), on bits: cards may lose numbers
// below 2^-126, their quotients and roots err by some units, and their fma() need not be fused.
//
// Where nothing that comes up leaves the range in which a card's own sums and products are exact to half a unit, with
// these. What leaves it is done in whole numbers of 64 bits where kWhole, a specialisation constant of the kernel that
// includes this, is not 0; else it comes to nothing, and `in_range` is false. So few numbers are of that kind that the
// kernel without, which is much shorter, does nearly all.

/// False once something has left the range.
bool in_range = true;
uint out_of_range() {
  in_range = false;
  return 0;
}

#include "float_parts.glsl"

const uint kNoNumber = 0x7FC00000u;
const uint kNormal = 0x00800000u;  // 2^-126
/// least <= |x| < 2^96, of the bits of `least`.
bool is_moderate(uint bits, uint least) { return magnitude_of(bits) - least < 0x6F800000u - least; }

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

/// a b + c, of finite numbers.
uint fused_in_whole_numbers(uint a, uint b, uint c) {
  const Parts x = parts_of(a);
  const Parts y = parts_of(b);
  const Parts z = parts_of(c);
  // From 2^60 to 2^62, so that what is shifted out lies far below what is kept.
  uint64_t product = (uint64_t(x.mantissa) * uint64_t(y.mantissa)) << 14;
  uint64_t addend = uint64_t(z.mantissa) << 38;
  int of_product = x.exponent + y.exponent - 14;
  int of_addend = z.exponent - 38;
  if (product == 0ul) of_product = of_addend;
  if (addend == 0ul) of_addend = of_product;
  const int exponent = max(of_product, of_addend);
  product = shifted(product, uint(exponent - of_product));
  addend = shifted(addend, uint(exponent - of_addend));
  const uint sign = x.sign ^ y.sign;
  if (sign == z.sign) return rounded_bits(sign, product + addend, exponent);
  if (product == addend) return 0;
  return product > addend ? rounded_bits(sign, product - addend, exponent)
                          : rounded_bits(z.sign, addend - product, exponent);
}

/// a + b as its nearest number and what that lacks. Knuth, The Art of Computer Programming, volume 2, 4.2.2.
vec2 sum_and_rest(float a, float b) {
  precise float sum = a + b;
  precise float of_b = sum - a;
  precise float rest = (a - (sum - of_b)) + (b - of_b);
  return vec2(sum, rest);
}
/// What `product`, the nearest number to a b, lacks. Dekker (Numerische Mathematik 18, 1971).
float rest_of_product(float a, float b, float product) {
  const float a_high = uintBitsToFloat((floatBitsToUint(a) + 0x800u) & 0xFFFFF000u);
  const float b_high = uintBitsToFloat((floatBitsToUint(b) + 0x800u) & 0xFFFFF000u);
  precise float a_low = a - a_high;
  precise float b_low = b - b_high;
  precise float rest = (((a_high * b_high - product) + a_high * b_low) + a_low * b_high) + a_low * b_low;
  return rest;
}

/// a b + c, rounded once: Boldo and Melquiond, Emulation of FMA and correctly rounded sums (IEEE Transactions on
/// Computers 57, 2008).
uint fused(uint a, uint b, uint c) {
  // What is small is computed 2^64 times as large, which is exact.
  const bool small = max(max(magnitude_of(a), magnitude_of(b)), magnitude_of(c)) < 0x44800000u;  // 2^10
  const float scale = small ? 18446744073709551616.0 : 1.0;
  precise float x = uintBitsToFloat(a) * scale;
  precise float y = uintBitsToFloat(b);
  precise float z = uintBitsToFloat(c) * scale;
  precise float product = x * y;
  if (!is_finite(a) || !is_finite(b) || !is_finite(c)) {
    precise float sum = product + z;
    return floatBitsToUint(sum);
  }
  if (magnitude_of(a) == 0 || magnitude_of(b) == 0) return magnitude_of(c) != 0 ? c : (a ^ b) & c;
  const vec2 low = sum_and_rest(z, rest_of_product(x, y, product));
  const vec2 high = sum_and_rest(product, low.x);
  // Their rests to the neighbour whose last bit is 1, unless they have one number as their sum: so the last rounding
  // sees on which side of a tie they are.
  const vec2 rests = sum_and_rest(low.y, high.y);
  uint odd = floatBitsToUint(rests.x);
  if (rests.y != 0.0 && (odd & 1u) == 0) odd += (rests.y > 0.0) == (rests.x > 0.0) ? 1u : 0xFFFFFFFFu;
  precise float sum = high.x + uintBitsToFloat(odd);
  precise float result = sum * (small ? 5.421010862427522e-20 : 1.0);
  // The last places of the factors, of their product and of c are 2^-126 or more, so that all that comes up is; and so
  // is the result.
  const uint least = 0x0C800000u;          // 2^-102
  const uint least_product = 0x19800000u;  // 2^-76
  const uint least_sum = 0x20800000u;      // 2^-62
  const bool exact = is_moderate(a, kNormal) && is_moderate(floatBitsToUint(x), least) && is_moderate(b, least) &&
                     is_moderate(floatBitsToUint(product), least_product) &&
                     (magnitude_of(c) == 0 || (is_moderate(c, kNormal) && is_moderate(floatBitsToUint(z), least))) &&
                     (!small || sum == 0.0 || magnitude_of(floatBitsToUint(sum)) >= least_sum);
  if (exact) return floatBitsToUint(result);
  return kWhole != 0 ? fused_in_whole_numbers(a, b, c) : out_of_range();
}

/// a b.
uint product_of(uint a, uint b) {
  precise float product = uintBitsToFloat(a) * uintBitsToFloat(b);
  const uint bits = floatBitsToUint(product);
  const bool small = magnitude_of(bits) < 0x01000000u && magnitude_of(a) != 0 && magnitude_of(b) != 0;
  if (!small) return bits;
  return kWhole != 0 ? fused_in_whole_numbers(a, b, 0x80000000u) : out_of_range();
}

/// a - b.
uint difference_of(uint a, uint b) {
  precise float difference = uintBitsToFloat(a) - uintBitsToFloat(b);
  const uint bits = floatBitsToUint(difference);
  // Where the difference is 2^-100 and more, what lies below 2^-126 changes nothing; nor where there is none.
  const bool small = magnitude_of(bits) < 0x0D800000u && a != b && (magnitude_of(a) | magnitude_of(b)) != 0;
  if (!small) return bits;
  return kWhole != 0 ? fused_in_whole_numbers(a, 0x3F800000u, b ^ 0x80000000u) : out_of_range();
}

/// The number whose mantissa is `twice` / 2 2^exponent, twice from 2^24 to 2^25, to nearest; `more`: it is more than
/// that.
uint rounded_half(uint sign, uint twice, bool more, int exponent) {
  const int field = exponent + 150;
  if (field < 1 || field > 253) {
    if (kWhole == 0) return out_of_range();
    return rounded_bits(sign, (uint64_t(twice) << 1) | (more ? 1ul : 0ul), exponent - 2);
  }
  const uint mantissa = twice >> 1;
  const bool up = (twice & 1u) != 0 && (more || (mantissa & 1u) != 0);
  return sign | ((uint(field - 1) << 23) + mantissa + (up ? 1 : 0));
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
  const uint below = x.mantissa < y.mantissa ? 1 : 0;
  const uint dividend = x.mantissa << below;
  const float divisor = float(y.mantissa);
  // From 2^24 to 2^25, off by some units that the remainder tells of, which is less than 2^31.
  uint quotient = uint(float(dividend) / divisor * 16777216.0);
  int rest = int((dividend << 24) - quotient * y.mantissa);
  const int more = int(floor(float(rest) / divisor));
  quotient += uint(more);
  rest -= more * int(y.mantissa);
  if (rest < 0) {
    --quotient;
    rest += int(y.mantissa);
  } else if (rest >= int(y.mantissa)) {
    ++quotient;
    rest -= int(y.mantissa);
  }
  return rounded_half(sign, quotient, rest != 0, x.exponent - y.exponent - int(below) - 23);
}

uint root_of(uint a) {
  if (magnitude_of(a) == 0 || a == kInfinity) return a;
  if (a > kInfinity) return kNoNumber;  // or less than 0
  const Parts x = parts_of(a);
  // An odd exponent: the root of the mantissa times 2^25 lies from 2^24 to 2^25. Off by some units that the remainder
  // tells of, which is less than 2^31.
  const uint even = ~uint(x.exponent) & 1u;
  const uint mantissa = x.mantissa << even;
  uint root = uint(sqrt(float(2 * mantissa)) * 4096.0);
  const int more = int(floor(float(int((mantissa << 25) - root * root)) / float(2 * root)));
  root += uint(more);
  int rest = int((mantissa << 25) - root * root);
  if (rest < 0) {
    --root;
    rest += int(2 * root + 1);
  } else if (rest > int(2 * root)) {
    rest -= int(2 * root + 1);
    ++root;
  }
  return rounded_half(0, root, rest != 0, (x.exponent - int(even) - 25) / 2 + 1);
}
