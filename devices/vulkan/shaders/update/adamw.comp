// An update by AdamW with the bits of rondo/devices/update.h, moments as numbers or in codes of 8 bits. A workgroup
// takes kMomentBlock elements, an invocation four of them. Where a number leaves the range of what is quick
// (exact_float.glsl), the workgroup changes nothing and puts its place on a list, which this kernel with kWhole goes
// along.
//
// slots: gradient, factors, keys, owners, master, first moment, second moment, [published]; in codes: ..., master,
// first codes, first scales, second codes, second scales, tables, [published]. The last slot: the list, how many and
// which. sizes: the first workgroup's place, the place behind the last one's.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(constant_id = 8) const uint kWhole = 0;
#include "exact_float.glsl"
#include "random.glsl"

const uint kThreads = 64;
const uint kGroupsOfBlock = 16384 / (4 * kThreads);  // of kUpdateBlock
layout(local_size_x = kThreads) in;
layout(constant_id = 0) const uint kPublished = 0;  // the storage; fp32: nothing is published
layout(constant_id = 1) const uint kCoded = 0;
// Of rondo/devices/moment_tables.h; in words: where the sides begin, how many a side has, where its codes begin.
layout(constant_id = 2) const uint kShift = 0;
layout(constant_id = 3) const uint kLowest = 0;
layout(constant_id = 4) const uint kKeys = 0;
layout(constant_id = 5) const uint kSides = 0;
layout(constant_id = 6) const uint kSide = 0;
layout(constant_id = 7) const uint kFirstCodes = 0;
const uint kSignedZero = 127;
const uint kList = 11;  // slot

shared uint largest[2];
shared uint left;  // 1: a number has left the range

struct Factors {
  uint gradient_factor, kept, rest1, beta2, rest2, epsilon, step_size, inverse_correction2;
};
Factors factors_of(uint parameter) {
  Pairs row = Pairs(address(1) + uint64_t(parameter) * 32ul);
  const uvec2 a = row.v[0];
  const uvec2 b = row.v[1];
  const uvec2 c = row.v[2];
  const uvec2 d = row.v[3];
  return Factors(a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y);
}

/// Four numbers, i is that of the first over four.
uvec4 four_of(uint64_t tensor, uint i) {
  Pairs pairs = Pairs(tensor);
  return uvec4(pairs.v[2 * i], pairs.v[2 * i + 1]);
}
void keep_four(uint64_t tensor, uint i, uvec4 bits) {
  Pairs pairs = Pairs(tensor);
  pairs.v[2 * i] = bits.xy;
  pairs.v[2 * i + 1] = bits.zw;
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

uvec4 decoded(uint moment, uint word, uint scale) {
  Uints values = Uints(address(9) + uint64_t(moment * 1024));
  uvec4 bits;
  for (uint k = 0; k < 4; ++k) bits[k] = product_of(values.v[(word >> (8 * k)) & 255u], scale);
  return bits;
}

/// How many codes lie between that of 0 and the one nearest to a magnitude of at most 1.
uint moment_steps(uint side, uint magnitude) {
  const uint leading = magnitude >> kShift;
  const uint key = min(leading <= kLowest ? 0 : leading - kLowest, kKeys - 1);
  const uint begin = kSides + side * kSide;
  uint steps = (Uints(address(9)).v[begin + kFirstCodes + key / 4] >> (8 * (key % 4))) & 255u;
  while (uintBitsToFloat(magnitude) > Floats(address(9)).v[begin + steps]) ++steps;
  return steps;
}
uint moment_code(uint moment, uint part) {
  const uint magnitude = magnitude_of(part);
  if (moment == 1) return moment_steps(2, magnitude);
  const bool less = part > 0x80000000u && magnitude <= kInfinity;  // than 0
  if (less) return kSignedZero - max(moment_steps(1, magnitude), 1u);
  return kSignedZero + moment_steps(0, magnitude);
}
uint encoded(uint moment, uvec4 bits, uint scale) {
  const uint divisor = scale != 0 ? scale : 0x3F800000u;
  uint word = 0;
  for (uint k = 0; k < 4; ++k) word |= moment_code(moment, quotient_of(bits[k], divisor)) << (8 * k);
  return word;
}
/// Of the numbers among them.
uint largest_of(uvec4 bits) {
  uint found = 0;
  for (uint k = 0; k < 4; ++k) found = max(found, magnitude_of(bits[k]) <= kInfinity ? magnitude_of(bits[k]) : 0);
  return found;
}

void update(uint group) {
  const uint own = invocation();
  if (own < 2) largest[own] = 0;
  if (own == 0) left = 0;
  barrier();
  const uint i = group * kThreads + own;  // in fours
  const uint block = group / kGroupsOfBlock;
  const uvec2 owner = Pairs(address(3)).v[block];
  const Factors f = factors_of(owner.x);
  uvec4 m;
  uvec4 v;
  if (kCoded != 0) {
    m = decoded(0, Uints(address(5)).v[i], Uints(address(6)).v[group]);
    v = decoded(1, Uints(address(7)).v[i], Uints(address(8)).v[group]);
  } else {
    m = four_of(address(5), i);
    v = four_of(address(6), i);
  }
  const uvec4 gradients = four_of(address(0), i);
  uvec4 masters = four_of(address(4), i);
  for (uint k = 0; k < 4; ++k) {
    const uint g = product_of(gradients[k], f.gradient_factor);
    m[k] = fused(difference_of(g, m[k]), f.rest1, m[k]);
    v[k] = fused(product_of(g, g), f.rest2, product_of(v[k], f.beta2));
    const uint denominator = fused(root_of(v[k]), f.inverse_correction2, f.epsilon);
    const uint kept = product_of(masters[k], f.kept);
    masters[k] = fused(f.step_size ^ 0x80000000u, quotient_of(m[k], denominator), kept);
  }
  uvec2 codes = uvec2(0);
  if (kCoded != 0) {
    atomicMax(largest[0], largest_of(m));
    atomicMax(largest[1], largest_of(v));
    barrier();
    codes = uvec2(encoded(0, m, largest[0]), encoded(1, v, largest[1]));
  }
  if (kWhole == 0) {
    if (!in_range) atomicOr(left, 1);
    barrier();
    if (left != 0) {
      Uints list = Uints(address(kList));
      if (own == 0) list.v[1 + atomicAdd(list.v[0], 1)] = group;
      return;
    }
  }
  keep_four(address(4), i, masters);
  if (kPublished != kFloat32) {
    const uint key = uint(combine_keys(Words(address(2)).v[owner.x], uint64_t(owner.y)));
    const uint first = 4 * (i % (kGroupsOfBlock * kThreads));
    uvec4 published;
    for (uint k = 0; k < 4; ++k) published[k] = rounded_stochastically(masters[k], dither(key, first + k));
    Pairs(address(kCoded != 0 ? 10 : 7)).v[i] =
        uvec2(published.x | (published.y << 16), published.z | (published.w << 16));
  }
  if (kCoded == 0) {
    keep_four(address(5), i, m);
    keep_four(address(6), i, v);
    return;
  }
  Uints(address(5)).v[i] = codes.x;
  Uints(address(7)).v[i] = codes.y;
  if (own == 0) {
    Uints(address(6)).v[group] = largest[0];
    Uints(address(8)).v[group] = largest[1];
  }
}

void main() {
  if (kWhole == 0) {
    const uint group = group_place() + push.sizes[0];
    if (group < push.sizes[1]) update(group);  // the whole workgroup or none of it
    return;
  }
  Uints list = Uints(address(kList));
  const uint count = list.v[0];
  for (uint place = group_place(); place < count; place += grid_width()) {
    update(list.v[1 + place]);
    barrier();  // before the next one's
  }
}
