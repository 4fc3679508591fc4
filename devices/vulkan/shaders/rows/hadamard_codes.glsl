// What the kernels share that make codes of kHadamard8 or kHadamard4, see rondo/devices/encoding.h: scales, and sums
// that become codes. Behind common.glsl and hadamard_blocks.glsl.
//
// slots: x, encoded. sizes: blocks; where the scales begin, in words. factors: the largest code; a block's scale, as a
// share of its largest sum.
const uint kInfinity = 0x7F800000u;

/// Of a block whose largest sum has the bits `most`, without a sign: what is so small, or infinite, has codes of zero.
bool codes_are_zero(uint most) { return most >= kInfinity || uintBitsToFloat(most) < power_of_two(-100); }
/// What sums are times to be codes.
float inverse_scale(uint most) { return codes_are_zero(most) ? 0.0 : push.factors[0] / uintBitsToFloat(most); }
void store_scale(uint block, uint most) {
  Floats(address(1)).v[push.sizes[1] + block] = most >= kInfinity      ? uintBitsToFloat(0x7FC00000u)
                                                : codes_are_zero(most) ? 0.0
                                                                       : uintBitsToFloat(most) * push.factors[1];
}

/// Eight sums in a row, the `eight`th of all.
void store_codes(uint eight, float sums[8], uint most) {
  const bool is_zero = codes_are_zero(most);
  const float inverse = inverse_scale(most);
  int codes[8];
  [[unroll]] for (uint i = 0; i < 8; ++i) codes[i] = is_zero ? 0 : int(roundEven(sums[i] * inverse));
  if (kEncoding == kHadamard8) {
    uvec2 pair = uvec2(0);
    [[unroll]] for (uint i = 0; i < 8; ++i) {
      pair[i / 4] = bitfieldInsert(pair[i / 4], uint(codes[i]), int(i % 4) * 8, 8);
    }
    Pairs(address(1)).v[eight] = pair;
  } else {
    uint word = 0;  // the first of a byte is in its upper half
    [[unroll]] for (uint i = 0; i < 8; ++i) { word = bitfieldInsert(word, uint(codes[i]), int(i ^ 1u) * 4, 4); }
    Uints(address(1)).v[eight] = word;
  }
}
