// Adds the sums of blocks to a gradient: those of a chunk of tokens together, then the chunks in rising order.
//
// slots: sums [blocks, width], gradient [width]. sizes: width, blocks, blocks of a chunk.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;

void main() {
  const uint width = push.sizes[0];
  const uint column = group_place() * 64 + invocation();
  if (column >= width) return;
  Floats sums = Floats(address(0));
  Floats gradient = Floats(address(1));
  float total = gradient.v[column];
  for (uint first = 0; first < push.sizes[1]; first += push.sizes[2]) {
    const uint end = min(first + push.sizes[2], push.sizes[1]);
    float chunk = 0.0;
    for (uint block = first; block < end; ++block) chunk += sums.v[block * width + column];
    total += chunk;
  }
  gradient.v[column] = total;
}
