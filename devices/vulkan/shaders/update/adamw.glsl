// An update by AdamW with the bits of rondo/devices/update.h, four elements an invocation: by the card's own arithmetic
// where nothing comes up that it may lose or err in, and else, where kWhole is not 0, in whole numbers
// (exact_float.glsl). So few numbers are of that kind that a kernel without, which is much shorter, does nearly all.
//
// slots: gradient, factors, keys, owners, master, first moment, second moment, [published]; in codes: ..., master,
// first codes, first scales, second codes, second scales, tables, [published]. The last slot: a list of what was left
// undone, how many and which. sizes: the first group's place, the place behind the last one's. A group: kMomentBlock
// elements.
#include "common.glsl"
layout(constant_id = 8) const uint kCareless = 0;
#include "exact_float.glsl"
#include "random.glsl"

const uint kGroupsOfBlock = 64;                     // of kUpdateBlock
layout(constant_id = 0) const uint kPublished = 0;  // the storage; fp32: nothing is published
layout(constant_id = 9) const uint kWhole = 0;
const uint kList = 11;  // slot

/// Four numbers, i is that of the first over four.
uvec4 four_of(uint64_t tensor, uint i) {
  Words words = Words(tensor);
  return uvec4(halves_of(words.v[2 * i]), halves_of(words.v[2 * i + 1]));
}
struct Factors {
  uint gradient_factor, kept, rest1, beta2, rest2, epsilon, step_size, inverse_correction2;
};
Factors factors_of(uint parameter) {
  const uint64_t row = address(1) + uint64_t(parameter) * 32ul;
  const uvec4 first = four_of(row, 0);
  const uvec4 second = four_of(row, 1);
  return Factors(first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w);
}

void keep_four(uint64_t tensor, uint i, uvec4 bits) {
  Words words = Words(tensor);
  words.v[2 * i] = uint64_t(bits.x) | (uint64_t(bits.y) << 32);
  words.v[2 * i + 1] = uint64_t(bits.z) | (uint64_t(bits.w) << 32);
}

uint dither(uint key, uint i) {
  uint r = key + i;
  r = (r ^ (r >> 16)) * 0x7FEB352Du;
  return (r ^ (r >> 15)) * 0x846CA68Bu;
}

/// rondo/devices/update.h's round_stochastically().
uint rounded_stochastically(uint bits, uint random) {
  const uint magnitude = magnitude_of(bits);
  if (kPublished == kBfloat16) return magnitude > kInfinity ? (bits >> 16) | 0x40u : (bits + (random >> 16)) >> 16;
  const uint dithering = random >> 19;
  const uint normal = (magnitude - 0x38000000u + dithering) >> 13;
  // Below 2^-14: cut to 2^-37.
  const uint below = (uint(uintBitsToFloat(magnitude) * 137438953472.0) + dithering) >> 13;
  const uint finite = min(magnitude < 0x38800000u ? below : normal, 0x7BFFu);
  const uint large = magnitude > kInfinity ? 0x7E00u : 0x7C00u;
  return ((bits >> 16) & 0x8000u) | (magnitude > 0x477FEFFFu ? large : finite);
}

/// Published, of four elements, the first of which is number `first` of its block.
uvec2 published_of(uvec4 masters, uint key, uint first) {
  uvec4 narrow;
  [[unroll]] for (uint k = 0; k < 4; ++k) narrow[k] = rounded_stochastically(masters[k], dither(key, first + k));
  return uvec2(narrow.x | (narrow.y << 16), narrow.z | (narrow.w << 16));
}
uint rounding_key_of(uvec2 owner) { return uint(combine_keys(Words(address(2)).v[owner.x], uint64_t(owner.y))); }

/// Rises with a number's magnitude, but that zero comes last.
uint rank_of(uint bits) { return (bits << 1) - 1u; }
uint rank_of_power(int exponent) { return rank_of(uint(exponent + 127) << 23); }
/// 0 or from 2^least to 2^most.
bool is_moderate(uint bits, int least, int most) {
  return magnitude_of(bits) == 0 || (rank_of(bits) >= rank_of_power(least) && rank_of(bits) <= rank_of_power(most));
}
/// What update_quickly() asks of the factors.
bool are_moderate(Factors f) {
  return is_moderate(f.gradient_factor, -48, 48) && is_moderate(f.step_size, -48, 48) &&
         is_moderate(f.inverse_correction2, -48, 48) && is_moderate(f.rest1, -20, 20) &&
         is_moderate(f.rest2, -20, 20) && is_moderate(f.beta2, -20, 20) && is_moderate(f.kept, -20, 20) &&
         is_moderate(f.epsilon, -60, 60);
}

/// What of four elements an update reads and changes, but the gradients.
struct Four {
  uvec4 masters, m, v;
};

void update_exactly(Factors f, uvec4 gradients, inout Four x) {
  [[dont_unroll]] for (uint k = 0; k < 4; ++k) {
    const uint g = product_of(gradients[k], f.gradient_factor);
    x.m[k] = sum_of(product_of(difference_of(g, x.m[k]), f.rest1), x.m[k]);
    x.v[k] = sum_of(product_of(product_of(g, g), f.rest2), product_of(x.v[k], f.beta2));
    const uint denominator = sum_of(product_of(root_of(x.v[k]), f.inverse_correction2), f.epsilon);
    const uint step = product_of(f.step_size, quotient_of(x.m[k], denominator));
    x.masters[k] = difference_of(product_of(x.masters[k], f.kept), step);
  }
}

const uint kLeastField = 127 - 74;  // of quotients: 2^-74
/// update_exactly() where are_moderate(f); false: something came up that a card may lose, and `x` is of no use.
///
/// A number is 0 or has a least magnitude, so that nothing that follows from it is below 2^-126. Gradients from 2^-52
/// on and first moments from 2^-74 on have a difference of whole 2^-97, and so on; where a sum nearly cancels, both of
/// its terms have last places that are 2^-126 or more.
bool update_quickly(Factors f, uvec4 gradients, inout Four x) {
  const float gradient_factor = uintBitsToFloat(f.gradient_factor);
  const float rest1 = uintBitsToFloat(f.rest1);
  const float rest2 = uintBitsToFloat(f.rest2);
  uint least_gradient = 0xFFFFFFFFu, least_m = 0xFFFFFFFFu, least_v = 0xFFFFFFFFu, least_master = 0xFFFFFFFFu;
  uint least_denominator = 0xFFFFFFFFu, most = 0, most_field = 0;
  [[unroll]] for (uint k = 0; k < 4; ++k) {
    least_m = min(least_m, rank_of(x.m[k]));
    least_v = min(least_v, rank_of(x.v[k]));
    least_master = min(least_master, rank_of(x.masters[k]));
    const float m = uintBitsToFloat(x.m[k]);
    const float g = card_product(uintBitsToFloat(gradients[k]), gradient_factor);
    // A gradient that is not 0 has no product that is.
    const uint there = magnitude_of(gradients[k]) != 0 ? 1 : 0;
    least_gradient = min(least_gradient, rank_of(floatBitsToUint(g)) + there);
    const float new_m = card_sum(card_product(card_sum(g, -m), rest1), m);
    const float of_v = card_product(uintBitsToFloat(x.v[k]), uintBitsToFloat(f.beta2));
    const float new_v = card_sum(card_product(card_product(g, g), rest2), of_v);
    x.m[k] = floatBitsToUint(new_m);
    x.v[k] = floatBitsToUint(new_v);

    const uint root = x.v[k] == 0 ? 0 : rounded_half(root_of_parts(normal_parts_of(x.v[k])));
    const float corrected = card_product(uintBitsToFloat(root), uintBitsToFloat(f.inverse_correction2));
    const float denominator = card_sum(corrected, uintBitsToFloat(f.epsilon));
    const uint below = floatBitsToUint(denominator);
    least_denominator = min(least_denominator, below);
    most = max(max(most, below), max(x.v[k], magnitude_of(x.m[k])));
    const Half quotient = quotient_of_parts(normal_parts_of(x.m[k]), normal_parts_of(below));
    const bool none = magnitude_of(x.m[k]) == 0;
    const uint sign = x.m[k] & 0x80000000u;
    most_field = max(most_field, none ? 0 : uint(quotient.field - kLeastField));
    const uint ratio = none ? sign : rounded_half(quotient);

    const float step = card_product(uintBitsToFloat(f.step_size), uintBitsToFloat(ratio));
    const float master = card_sum(card_product(uintBitsToFloat(x.masters[k]), uintBitsToFloat(f.kept)), -step);
    x.masters[k] = floatBitsToUint(master);
  }
  return least_gradient >= rank_of_power(-52) && least_m >= rank_of_power(-74) && least_v >= rank_of_power(-100) &&
         least_master >= rank_of_power(-78) && least_denominator >= uint(127 - 110) << 23 && most < kInfinity &&
         most_field <= 253 - kLeastField;
}
