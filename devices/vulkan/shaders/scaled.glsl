// bf16 for matrix units that multiply fp16 alone. bf16 has fewer digits and reaches further: times the power of two
// that brings a tensor's largest number to 2^14 or more and less than 2^15, fp16 holds exactly what is at least 2^-28
// of that; what is less may be lost.

const uint kLargestGroups = 128;  // of kernel largest.comp at most, for each tensor

/// An invocation's part of what kernel largest.comp found: the largest is the largest of all invocations'.
uint own_largest(uint64_t found, uint count) {
  uint largest = invocation() < count ? Uints(found).v[invocation()] : 0;  // mostly there are no more
  for (uint i = invocation() + gl_WorkGroupSize.x; i < count; i += gl_WorkGroupSize.x) {
    largest = max(largest, Uints(found).v[i]);
  }
  return largest;
}

/// The exponent of that power, of a magnitude's bits.
int exponent_for(uint largest) { return clamp(127 + 14 - int(largest >> 23), -112, 126); }

/// Pairs of bf16, times a power of two, as fp16.
uint scaled_pair(uint pair, float scale) { return packHalf2x16(widened_pair(kBfloat16, pair) * scale); }
uvec4 scaled_eight(uvec4 eight, float scale) {
  return uvec4(scaled_pair(eight.x, scale), scaled_pair(eight.y, scale), scaled_pair(eight.z, scale),
               scaled_pair(eight.w, scale));
}

/// x 2^n, n within -370 ... 370. In three steps, since no number is 2^n for most of these.
vec4 times_power(vec4 x, int n) {
  const int third = n / 3;
  precise vec4 value = x * power_of_two(third) * power_of_two(third);
  value = value * power_of_two(n - 2 * third);
  return value;
}
float times_power(float x, int n) { return times_power(vec4(x, 0.0, 0.0, 0.0), n).x; }
