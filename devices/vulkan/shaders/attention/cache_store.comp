// Puts the keys and values of real tokens into the caches at their positions. An invocation an element of k.
//
// slots: k, v, positions, bounds, key cache, value cache. sizes: elements, width of a row, rows of the cache.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sequences.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kType = 0;

void main() {
  const uint i = group_place() * 256 + invocation();
  if (i >= push.sizes[0]) return;
  const uint width = push.sizes[1];
  const uint token = i / width;
  if (int(token) >= real_tokens(Ints(address(3)))) return;
  const int position = Ints(address(2)).v[token];
  if (position < 0 || position >= int(push.sizes[2])) {
    if (i % width == 0) complain(3, token, position);
    return;
  }
  const uint to = uint(position) * width + i % width;
  store(address(4), kType, to, load(address(0), kType, i));
  store(address(5), kType, to, load(address(1), kType, i));
}
