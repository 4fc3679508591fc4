// Sums of a block of rows, column by column: of dy (the gradient of a bias), of x r dy with an r a row (that of a
// norm's weight; where that is centred, of (x - m) r dy with an m a row too), or of x dy, perhaps times an r a column
// (that of a scale of columns).
//
// slots: dy, x, r [rows], r and m [2, rows] or r [width], sums [blocks, width]. sizes: width, rows, rows of a block. An
// invocation kStep columns and a block.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kTerm = 0;
layout(constant_id = 2) const uint kStep = 1;  // 2: the width is even

const uint kPlain = 0, kNorm = 1, kScaled = 2, kCentredNorm = 3;  // 4: kProduct, x dy alone

void main() {
  const uint width = push.sizes[0];
  const uint column = (workgroup().x * 64 + invocation()) * kStep;
  if (column >= width) return;
  const uint block = workgroup().y;
  const uint64_t dy = address(0);
  const uint64_t x = address(1);
  const uint64_t r = address(2);
  const uint end = min((block + 1) * push.sizes[2], push.sizes[1]);
  vec2 sum = vec2(0.0);
  for (uint row = block * push.sizes[2]; row < end; ++row) {
    vec2 term = load_some(dy, kType, kStep, row * width + column);
    if (kTerm == kCentredNorm) {
      term *= load_some(x, kType, kStep, row * width + column) - Floats(r).v[push.sizes[1] + row];
    } else if (kTerm != kPlain) {
      term *= load_some(x, kType, kStep, row * width + column);
    }
    if (kTerm == kNorm || kTerm == kCentredNorm) term *= Floats(r).v[row];
    sum += term;
  }
  if (kTerm == kScaled) sum *= load_some(r, kFloat32, kStep, column);
  store_some(address(3), kFloat32, kStep, block * width + column, sum);
}
