// The largest magnitudes of an operand of a product, as bits of fp32, one a workgroup: see kScaled in
// matmul_cooperative.comp. Bits of magnitudes are in the numbers' order; infinity comes behind all of them, then NaN.
//
// slots: operand, largest, rows (the list of kernel targets.comp). sizes: rows, columns, first of the list, most of it.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const bool kEnds = false;    // the rows end with the list
layout(constant_id = 2) const bool kEights = false;  // a row is of whole 16 bytes

const uint kThreads = 256;
layout(local_size_x = kThreads) in;
shared uint largest;

uint magnitude(uint bits) { return bits & 0x7FFFFFFFu; }
/// Of a word of memory.
uint largest_of(uint word) {
  if (kType == kFloat32) return magnitude(word);
  const vec2 pair = widened_pair(kType, word);
  return max(magnitude(floatBitsToUint(pair.x)), magnitude(floatBitsToUint(pair.y)));
}

void main() {
  if (invocation() == 0) largest = 0;
  barrier();
  uint rows = push.sizes[0];
  if (kEnds) {
    const uint all = uint(Ints(address(2)).v[0]);
    rows = all > push.sizes[2] ? min(all - push.sizes[2], push.sizes[3]) : 0;
  }
  const uint64_t x = address(0);
  const uint elements = rows * push.sizes[1];
  const uint step = kEights ? 16 / size_of(kType) : 1;
  uint own = 0;
  for (uint i = (workgroup().x * kThreads + invocation()) * step; i < elements;
       i += gl_NumWorkGroups.x * kThreads * step) {
    if (kEights) {
      const uvec4 words = eight_at(x + uint64_t(i) * size_of(kType));
      own = max(own, max(max(largest_of(words.x), largest_of(words.y)), max(largest_of(words.z), largest_of(words.w))));
    } else {
      own = max(own, magnitude(floatBitsToUint(load(x, kType, i))));
    }
  }
  atomicMax(largest, own);
  barrier();
  if (invocation() == 0) Uints(address(1)).v[workgroup().x] = largest;
}
