// Copies an operand of a product into the device's panel, where matmul_panels.comp fetches it: for processors that pose
// as cards, which fetch texels of four floats many times faster than they read memory. An invocation a texel, or eight
// where elements are read by fours.
//
// A texel is four inner elements of one row of A or column of B. A block are kOuters rows or columns, those of
// matmul_panels.comp's tile: rows one after the other, columns so that eight texels are of those that the eight
// invocations of a subgroup compute first, then of their second ones and so on. Past the ends there are zeros, as many
// as fill the last blocks.
//
// slots: operand, panel, rows (the list of kernel targets.comp).
// sizes: rows of A or columns of B, end of the inner extent, stride, first row or column, first inner element, place in
// the panel, fours of the inner extent, first of the list, most of the list, texels, 0.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const bool kOfB = false;
layout(constant_id = 2) const bool kInnerStrides = false;  // element (o, k) lies at k * stride + o, else o * stride + k
layout(constant_id = 3) const bool kOuterListed = false;
layout(constant_id = 4) const bool kInnerEnds = false;    // the inner extent ends with the list
layout(constant_id = 5) const bool kInnerListed = false;  // and its elements are those of the list
/// Elements that lie in a row come by fours: where the extent and stride on that side are multiples of four and nothing
/// is listed.
layout(constant_id = 6) const bool kFours = false;
layout(constant_id = 7) const uint kOuters = 32;
layout(constant_id = 8) const bool kFetches = false;  // fp32 by fours, by texels
const uint kEach = kOuters / 8;                       // columns of an invocation
layout(set = 0, binding = 1) uniform samplerBuffer memory;
/// The panel as pairs of texels. One write of 256 bits takes a processor half of what two of 128 do.
layout(set = 0, binding = 2, scalar) writeonly buffer Panel { u64vec4 pairs[]; }
panel;

float element(uint64_t operand, Ints list, uint outer, uint k, uint end) {
  if (outer >= push.sizes[0] || k >= end) return 0.0;
  if (kOuterListed) outer = uint(list.v[1 + push.sizes[7] + outer]);
  if (kInnerListed) k = uint(list.v[1 + push.sizes[7] + k]);
  return load(operand, kType, kInnerStrides ? k * push.sizes[2] + outer : outer * push.sizes[2] + k);
}

/// The four from (outer, k) on along their row or column.
vec4 four(uint64_t operand, uint outer, uint k) {
  if (outer >= push.sizes[0] || k >= push.sizes[1]) return vec4(0.0);
  return load_four(operand, kType, kInnerStrides ? k * push.sizes[2] + outer : outer * push.sizes[2] + k);
}
/// The same as a texel, past the ends some number: rows and columns past them are computed for nobody.
vec4 fetched_four(uint first, uint outer, uint k) {
  return texelFetch(memory, int(first + (kInnerStrides ? k * push.sizes[2] + outer : outer * push.sizes[2] + k) / 4));
}

/// 4 x 4 elements from (outer, k) on, a column a texel.
mat4 four_by_four(uint64_t operand, uint first, uint outer, uint k) {
  mat4 elements;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint outer_i = kInnerStrides ? outer : outer + i;
    const uint k_i = kInnerStrides ? k + i : k;
    elements[i] = kFetches ? fetched_four(first, outer_i, k_i) : four(operand, outer_i, k_i);
  }
  return kInnerStrides ? transpose(elements) : elements;
}

u64vec4 pair_of(vec4 one, vec4 two) {
  const uint half_word = 32 + push.sizes[10];  // no constant for the compiler, see word_of
  return u64vec4(word_of(one.xy, half_word), word_of(one.zw, half_word), word_of(two.xy, half_word),
                 word_of(two.zw, half_word));
}

/// The quotient of numbers below 2^20, as the panel's blocks are: a division of floats errs by 2.5 units in the last
/// place at most, and they are further from a whole number.
uint quotient(uint number, uint by) { return uint((float(number) + 0.5) / float(by)); }

/// The block of 4 inner elements of 8 rows or columns whose eight texels are the `block`th. In an order in which eight
/// neighbours together read and write whole lines: of B four fours of 16 columns, of A eight fours of eight rows.
void lay_out_by_fours(uint block) {
  const uint64_t operand = address(0);
  const uint first = kFetches ? uint((operand - push.fetched) >> 4) : 0;
  const uint fours = push.sizes[6];
  const uint at_once = kOfB ? 2 : 1;
  const uint together = quotient(block, at_once * fours);
  const uint eight = together * at_once + block % at_once;
  const uint four = (block - together * at_once * fours) / at_once;
  const uint tile = eight * 8 / kOuters * kOuters;
  const uint in_tile = eight * 8 % kOuters;
  uint to = push.sizes[5] + tile * fours + four * kOuters;
  uint outer = push.sizes[3] + tile + in_tile;
  uint other = outer + 4;
  if (kOfB) {
    // The invocations' columns by fours, of two invocations.
    const uint invocation = in_tile / 8 % 4 * 2;
    const uint column = in_tile / 32 * 4;
    to += column * 8 + invocation;
    outer = push.sizes[3] + tile + invocation * kEach + column;
    other = outer + kEach;
  } else {
    to += in_tile;
  }
  const mat4 one = four_by_four(operand, first, outer, push.sizes[4] + four * 4);
  const mat4 two = four_by_four(operand, first, other, push.sizes[4] + four * 4);
  if (kOfB) {
    [[unroll]] for (uint i = 0; i < 4; ++i) panel.pairs[to / 2 + i * 4] = pair_of(one[i], two[i]);
  } else {
    panel.pairs[to / 2] = pair_of(one[0], one[1]);
    panel.pairs[to / 2 + 1] = pair_of(one[2], one[3]);
    panel.pairs[to / 2 + 2] = pair_of(two[0], two[1]);
    panel.pairs[to / 2 + 3] = pair_of(two[2], two[3]);
  }
}

void main() {
  const uint texel = group_place() * 64 + invocation();
  if (kFours) {
    if (texel < push.sizes[9] / 8) lay_out_by_fours(texel);
    return;
  }
  if (texel >= push.sizes[9]) return;
  const uint64_t operand = address(0);  // looked up once: it is a read like any other
  Ints list = Ints(address(2));
  uint end = push.sizes[1];
  uint outers = push.sizes[0];
  if (kOuterListed || kInnerEnds) {
    const uint there = present(address(2), push.sizes[7], push.sizes[8]);
    if (kInnerEnds) end = min(end, there);
    if (kOuterListed) outers = there;
  }
  const uint in_tile = texel % kOuters;
  const uint k = texel / kOuters % push.sizes[6] * 4;
  const uint outer = push.sizes[3] + texel / (kOuters * push.sizes[6]) * kOuters +
                     (kOfB ? in_tile % 8 * kEach + in_tile / 8 : in_tile);
  vec4 value = vec4(0.0);
  if (!kOuterListed || outer < outers) {
    [[unroll]] for (uint i = 0; i < 4; ++i) value[i] = element(operand, list, outer, push.sizes[4] + k + i, end);
  }
  store_texel(address(1), push.sizes[5] + texel, value);
}
