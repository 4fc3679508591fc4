// The largest magnitudes of up to four tensors, or of one of each expert's, as bits of fp32, one a workgroup: for
// matrix units that multiply fp16 alone, see scaled.glsl. Bits of magnitudes are in the numbers' order; infinity comes
// behind all of them, then NaN.
//
// slots: the tensors, 4: kLargestGroups numbers of each, 5: the list of kernel targets.comp; 8 and 9, of experts:
// experts.glsl. sizes: rows of each tensor, 4: columns of each, 8: first of the list, most of it; experts' tensors are
// all like the first. Workgroups: up to kLargestGroups, tensors.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "experts.glsl"
#include "scaled.glsl"

layout(constant_id = 0) const uint kFirstType = 0;  // of the first tensor
layout(constant_id = 1) const uint kType = 0;       // of the others
layout(constant_id = 2) const bool kEnds = false;   // the first tensor's rows end with the list
layout(constant_id = 3) const uint kEights = 0;     // a bit for each tensor whose rows are whole pieces of 16 bytes
layout(constant_id = 4) const bool kExperts = false;

const uint kThreads = 256;
layout(local_size_x = kThreads) in;
shared uint largest;

uint magnitude(uint bits) { return bits & 0x7FFFFFFFu; }
uint largest_of_word(uint type, uint word) {
  if (type == kFloat32) return magnitude(word);
  const vec2 pair = widened_pair(type, word);
  return max(magnitude(floatBitsToUint(pair.x)), magnitude(floatBitsToUint(pair.y)));
}

/// Of what is the workgroup's of the tensor, which lies at x.
uint largest_of(uint tensor, uint64_t x, uint type) {
  const bool ends = kEnds && tensor == 0;
  const uint rows = ends ? present(address(5), push.sizes[8], push.sizes[9]) : push.sizes[tensor];
  const uint elements = rows * push.sizes[4 + tensor];
  const bool eights = (kEights >> tensor & 1u) != 0;
  const uint step = eights ? 16 / size_of(type) : 1;
  uint found = 0;
  for (uint i = (workgroup().x * kThreads + invocation()) * step; i < elements; i += grid_width() * kThreads * step) {
    if (eights) {
      const uvec4 words = eight_at(x + uint64_t(i) * size_of(type));
      found = max(found, max(max(largest_of_word(type, words.x), largest_of_word(type, words.y)),
                             max(largest_of_word(type, words.z), largest_of_word(type, words.w))));
    } else {
      found = max(found, magnitude(floatBitsToUint(load(x, type, i))));
    }
  }
  return found;
}

void main() {
  const uint tensor = workgroup().y;
  if (invocation() == 0) largest = 0;
  barrier();
  if (!kExperts) {
    atomicMax(largest, largest_of(tensor, address(tensor), tensor == 0 ? kFirstType : kType));
  } else if (first_row_of(tensor) < first_row_of(tensor + 1)) {
    atomicMax(largest, largest_of(0, tensor_of(tensor), kFirstType));
  }
  barrier();
  if (invocation() == 0) Uints(address(4)).v[tensor * kLargestGroups + workgroup().x] = largest;
}
