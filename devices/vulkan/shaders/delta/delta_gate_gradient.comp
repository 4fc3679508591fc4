// dg of the delta rule: what delta_key_gradient.comp found for the sums of g, added up over the tokens whose sums it is
// in: those from its own token to the end of its sequence or of the interval between checkpoints.
//
// slots: g, bounds, scratch, dg. sizes: tokens, heads, first token of a range and the one behind it, where in the
// scratch what was found is. An invocation a token and head.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sequences.glsl"

layout(local_size_x = 64) in;

const int kChunk = 64;  // kDeltaChunk

void main() {
  const uint heads = push.sizes[1];
  const uint tokens = push.sizes[3] - push.sizes[2];
  const uint i = group_place() * 64 + invocation();
  if (i >= tokens * heads) return;
  const int range_first = int(push.sizes[2]);
  const int token = range_first + int(i / heads);
  const uint head = i % heads;
  Ints bounds = Ints(address(1));
  float sum = 0.0;
  if (token < real_tokens(bounds)) {
    Floats found = Floats(address(2) + 4ul * push.sizes[4]);
    const int sequence = sequence_of(bounds, token);
    const int chunk_first = token / kChunk * kChunk;
    const int chunk_end = chunk_first + kChunk;
    const int begin = bounds.v[1 + sequence];
    const int end = bounds.v[2 + sequence];
    for (int t = min(end, chunk_end) - 1; t >= token; --t) sum += found.v[uint(t - range_first) * heads + head];
    if (end > chunk_end) {
      for (int t = max(begin, chunk_first); t < chunk_end; ++t) {
        sum += found.v[(tokens + uint(t - range_first)) * heads + head];
      }
      if (begin < chunk_first) {
        Floats g = Floats(address(0));
        float kept = 0.0;
        for (int t = chunk_first; t < chunk_end; ++t) kept += g.v[uint(t) * heads + head];
        sum += exact_exp(kept) * found.v[(2 * tokens + uint((chunk_first - range_first) / kChunk)) * heads + head];
      }
    }
  }
  Floats(address(3)).v[uint(token) * heads + head] = sum;
}
