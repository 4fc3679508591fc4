// Products of few rows, of one token as it is generated, which take as long as B takes to be read: sixteen invocations
// go along the inner extent of four columns together, four elements of each a step.
//
// Slots, sizes, factors and the constants 0 to 10: matmul.glsl. A is not transposed, nothing is listed; inner extent
// and strides are multiples of four, and so are the columns where B is not transposed. Workgroups: of 16 columns.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 11) const uint kRows = 1;

const uint kLanes = 16;
const uint kColumns = 4;  // of an invocation

shared vec4 parts[kRows * 64];

void main() {
  const uint lane = invocation() % kLanes;
  const uint first = group_place() * kLanes + invocation() / kLanes * kColumns;
  const uint64_t a = address(0);
  const uint64_t b = address(1);
  uint columns[kColumns];  // where they begin; past the last the last once more
  [[unroll]] for (uint c = 0; c < kColumns; ++c) columns[c] = min(first + c, push.sizes[1] - 1) * push.sizes[4];
  const uint fours = min(first, push.sizes[1] - kColumns);
  vec4 sums[kRows];
  [[unroll]] for (uint m = 0; m < kRows; ++m) sums[m] = vec4(0.0);
  for (uint k = lane * 4; k < push.sizes[2]; k += kLanes * 4) {
    vec4 of_b[kColumns];  // a column's elements, or all columns of an element
    [[unroll]] for (uint c = 0; c < kColumns; ++c) {
      of_b[c] = load_four(b, kTypeB, kTransposedB ? columns[c] + k : (k + c) * push.sizes[4] + fours);
    }
    [[unroll]] for (uint m = 0; m < kRows; ++m) {
      const vec4 of_a = load_four(a, kTypeA, m * push.sizes[3] + k);
      [[unroll]] for (uint c = 0; c < kColumns; ++c) {
        if (kTransposedB) {
          sums[m][c] += dot(of_a, of_b[c]);
        } else {
          sums[m] += of_a[c] * of_b[c];
        }
      }
    }
  }
  [[unroll]] for (uint m = 0; m < kRows; ++m) parts[m * 64 + invocation()] = sums[m];
  barrier();
  const Results results = find_results();
  for (uint i = invocation(); i < kRows * kLanes; i += 64) {
    const uint row = i / kLanes;
    const uint column = i % kLanes;
    const uint begin = row * 64 + column / kColumns * kLanes;
    float sum = 0.0;
    for (uint other = 0; other < kLanes; ++other) sum += parts[begin + other][column % kColumns];
    put(results, row, group_place() * kLanes + column, kRows, sum);
  }
}
