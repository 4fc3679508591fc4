// Copies an operand of a product into the device's panel, where matmul_panels.comp fetches it: for processors that pose
// as cards, which fetch texels of four floats many times faster than they read memory. An invocation a texel, or four
// where elements are read by fours.
//
// Of A a texel is four inner elements of one row, of B one inner element of four columns. A block are kOuters rows or
// columns, those of matmul_panels.comp's tile. Past the ends there are zeros, as many as fill the last blocks.
//
// slots: operand, panel, rows (the list of kernel targets.comp).
// sizes: rows of A or columns of B, end of the inner extent, stride, first row or column, first inner element, place in
// the panel, fours of the inner extent, first of the list, most of the list, texels.
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

/// The block of 4 x 4 elements whose four texels are the `block`th.
void lay_out_by_fours(uint block) {
  const uint64_t operand = address(0);
  const uint64_t panel = address(1);
  const uint across = kOuters / 4;
  const uint outer = push.sizes[3] + (block / (across * push.sizes[6]) * across + block % across) * 4;
  const uint k = push.sizes[4] + block / across % push.sizes[6] * 4;
  mat4 elements;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    elements[i] = kInnerStrides ? four(operand, outer, k + i) : four(operand, outer + i, k);
  }
  // Of A a texel is of one row, of B of one inner element.
  if (kOfB != kInnerStrides) elements = transpose(elements);
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint texel = kOfB ? (block / across * 4 + i) * across + block % across : block * 4 + i;
    store_texel(panel, push.sizes[5] + texel, elements[i]);
  }
}

void main() {
  const uint texel = group_place() * 64 + gl_LocalInvocationID.x;
  if (kFours) {
    if (texel < push.sizes[9] / 4) lay_out_by_fours(texel);
    return;
  }
  if (texel >= push.sizes[9]) return;
  const uint64_t operand = address(0);  // looked up once: it is a read like any other
  Ints list = Ints(address(2));
  uint end = push.sizes[1];
  uint outers = push.sizes[0];
  if (kOuterListed || kInnerEnds) {
    const uint all = uint(list.v[0]);
    const uint present = all > push.sizes[7] ? min(all - push.sizes[7], push.sizes[8]) : 0;
    if (kInnerEnds) end = min(end, present);
    if (kOuterListed) outers = present;
  }
  vec4 value;
  if (kOfB) {
    const uint across = kOuters / 4;
    const uint k = texel / across % (4 * push.sizes[6]);
    const uint outer = push.sizes[3] + texel / (kOuters * push.sizes[6]) * kOuters + texel % across * 4;
    [[unroll]] for (uint i = 0; i < 4; ++i) value[i] = element(operand, list, outer + i, push.sizes[4] + k, end);
  } else {
    const uint k = texel / kOuters % push.sizes[6] * 4;
    const uint outer = push.sizes[3] + texel / (kOuters * push.sizes[6]) * kOuters + texel % kOuters;
    if (kOuterListed && outer >= outers) {
      value = vec4(0.0);
    } else {
      [[unroll]] for (uint i = 0; i < 4; ++i) value[i] = element(operand, list, outer, push.sizes[4] + k + i, end);
    }
  }
  store_texel(address(1), push.sizes[5] + texel, value);
}
