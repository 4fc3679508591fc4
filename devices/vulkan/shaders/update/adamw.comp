// adamw.glsl for any card, and for moments in codes of 8 bits: a workgroup a group. Where one of its invocations fails,
// the workgroup changes nothing and puts its place on the list, which this kernel with kWhole goes along.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "adamw.glsl"

const uint kThreads = 64;
layout(local_size_x = kThreads) in;
layout(constant_id = 1) const uint kCoded = 0;
// Of rondo/devices/moment_tables.h; in words: where the sides begin, how many a side has, where its codes begin.
layout(constant_id = 2) const uint kShift = 0;
layout(constant_id = 3) const uint kLowest = 0;
layout(constant_id = 4) const uint kKeys = 0;
layout(constant_id = 5) const uint kSides = 0;
layout(constant_id = 6) const uint kSide = 0;
layout(constant_id = 7) const uint kFirstCodes = 0;
const uint kSignedZero = 127;

shared uint largest[2];
shared uint left;  // 1: an invocation fails

/// Four numbers of a moment. `fails`, here and below, is set where the card may lose something of them.
uvec4 decoded(uint moment, uint word, uint scale, inout bool fails) {
  Uints values = Uints(address(9) + uint64_t(moment * 1024));
  uvec4 bits;
  [[unroll]] for (uint k = 0; k < 4; ++k) {
    const uint value = values.v[(word >> (8 * k)) & 255u];
    const float number = card_product(uintBitsToFloat(value), uintBitsToFloat(scale));
    bits[k] = kWhole != 0 ? product_of(value, scale) : floatBitsToUint(number);
  }
  fails = fails || (scale != 0 && rank_of(scale) < rank_of_power(-90));
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
/// x / divisor, of a number of update_quickly() and of one that is not less.
uint part_quickly(uint x, uint divisor, inout bool fails) {
  const Half part = quotient_of_parts(normal_parts_of(x), normal_parts_of(divisor));
  const bool none = magnitude_of(x) == 0;
  fails = fails || (!none && part.field < 1);
  return none ? x : rounded_half(part);
}
uint encoded(uint moment, uvec4 bits, uint scale, inout bool fails) {
  const uint divisor = scale != 0 ? scale : 0x3F800000u;
  uint word = 0;
  [[unroll]] for (uint k = 0; k < 4; ++k) {
    const uint part = kWhole != 0 ? quotient_of(bits[k], divisor) : part_quickly(bits[k], divisor, fails);
    word |= moment_code(moment, part) << (8 * k);
  }
  return word;
}
/// Of the numbers among them.
uint largest_of(uvec4 bits) {
  uint found = 0;
  [[unroll]] for (uint k = 0; k < 4; ++k) found =
      max(found, magnitude_of(bits[k]) <= kInfinity ? magnitude_of(bits[k]) : 0);
  return found;
}

void update(uint group) {
  const uint own = invocation();
  if (kCoded != 0 && own < 2) largest[own] = 0;
  if (own == 0) left = 0;
  barrier();
  const uint i = group * kThreads + own;  // in fours
  const uvec2 owner = Pairs(address(3)).v[group / kGroupsOfBlock];
  const Factors f = factors_of(owner.x);
  bool fails = kWhole == 0 && !are_moderate(f);
  Four x;
  x.masters = four_of(address(4), i);
  if (kCoded != 0) {
    x.m = decoded(0, Uints(address(5)).v[i], Uints(address(6)).v[group], fails);
    x.v = decoded(1, Uints(address(7)).v[i], Uints(address(8)).v[group], fails);
  } else {
    x.m = four_of(address(5), i);
    x.v = four_of(address(6), i);
  }
  if (kWhole != 0) {
    update_exactly(f, four_of(address(0), i), x);
  } else if (!update_quickly(f, four_of(address(0), i), x)) {
    fails = true;
  }
  uvec2 codes = uvec2(0);
  if (kCoded != 0) {
    atomicMax(largest[0], largest_of(x.m));
    atomicMax(largest[1], largest_of(x.v));
    barrier();
    codes = uvec2(encoded(0, x.m, largest[0], fails), encoded(1, x.v, largest[1], fails));
  }
  if (kWhole == 0) {
    if (fails) atomicOr(left, 1);
    barrier();
    if (left != 0) {
      Uints list = Uints(address(kList));
      if (own == 0) list.v[1 + atomicAdd(list.v[0], 1)] = group;
      return;
    }
  }
  keep_four(address(4), i, x.masters);
  if (kPublished != kFloat32) {
    const uint first = 4 * (i % (kGroupsOfBlock * kThreads));
    Pairs(address(kCoded != 0 ? 10 : 7)).v[i] = published_of(x.masters, rounding_key_of(owner), first);
  }
  if (kCoded == 0) {
    keep_four(address(5), i, x.m);
    keep_four(address(6), i, x.v);
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
