// What the attention kernels share on processors that pose as cards. A subgroup of eight takes eight queries (or keys),
// an invocation one, and goes over the keys (or queries) that any of them needs; those come from the panel, the same
// for all eight. What an invocation holds stays with it: no shared memory, no barriers. Of wide heads a workgroup makes
// all products anew and has the results of a slice. Gradients, and attention of wide heads, have their own rows from
// the panel too.
#include "common.glsl"
#include "sequences.glsl"

layout(local_size_x = 8) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kWidth = 64;  // of a head
layout(constant_id = 3) const bool kCapped = false;
#include "attention_scores.glsl"
layout(set = 0, binding = 0) uniform samplerBuffer panel;

const uint kAllFours = (kWidth + 3) / 4;
const uint kSlices = (kAllFours + 31) / 32;  // of a wide head; a workgroup has the results of one
const uint kFours = (kAllFours + kSlices - 1) / kSlices;
const float kLowest = -1.0e30;

uint own_slice() { return workgroup().z; }

/// The own slice of a row.
void store_row(uint64_t to, uint row, vec4 channels[kFours], float factor) {
  const uint step = 2 - kWidth % 2;
  [[unroll]] for (uint four = 0; four < kFours; ++four) {
    [[unroll]] for (uint j = 0; j < 4; j += step) {
      const uint channel = 4 * (own_slice() * kFours + four) + j;
      const vec2 values = vec2(channels[four][j], channels[four][j + step - 1]) * factor;
      if (channel < kWidth) store_some(to, kType, step, row * kWidth + channel, values);
    }
  }
}

/// A slice of a row of the panel, and its products with channels of this invocation, summed in rising order.
void fetch_row(uint place, uint row, uint slice, out vec4 channels[kFours]) {
  const uint first = slice * kFours;
  [[unroll]] for (uint four = 0; four < kFours; ++four) {
    const bool there = kAllFours % kFours == 0 || first + four < kAllFours;
    const int texel = int(place + row * kAllFours + min(first + four, kAllFours - 1));
    channels[four] = there ? texelFetch(panel, texel) : vec4(0.0);
  }
}
float product(vec4 a[kFours], vec4 b[kFours]) {
  float sum = 0.0;
  [[unroll]] for (uint four = 0; four < kFours; ++four) {
    [[unroll]] for (uint j = 0; j < 4; ++j) sum += a[four][j] * b[four][j];
  }
  return sum;
}

/// The two rows of this invocation that the gradients are of.
void fetch_own(uint own, out vec4 first[kFours], out vec4 second[kFours]) {
  fetch_row(push.sizes[7], own, 0, first);
  fetch_row(push.sizes[8], own, 0, second);
}

/// What the gradients go along: products of two own rows, which heads of one slice hold, with two rows of the panel,
/// whose own slice is left in `first` and `second`.
vec2 products_with(uint row, uint own, inout vec4 own_first[kFours], inout vec4 own_second[kFours],
                   out vec4 first[kFours], out vec4 second[kFours]) {
  vec2 sums = vec2(0.0);
  for (uint slice = 0; slice < kSlices; ++slice) {
    if (kSlices > 1) {
      fetch_row(push.sizes[7], own, slice, own_first);
      fetch_row(push.sizes[8], own, slice, own_second);
    }
    fetch_row(push.sizes[4], row, slice, first);
    sums.x += product(own_first, first);
    fetch_row(push.sizes[5], row, slice, second);
    sums.y += product(own_second, second);
  }
  if (kSlices > 1) {
    fetch_row(push.sizes[4], row, own_slice(), first);
    fetch_row(push.sizes[5], row, own_slice(), second);
  }
  return sums;
}
