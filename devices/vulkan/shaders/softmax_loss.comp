// Of one row of logits: its loss, and over the logits their gradient softmax - onehot,
// times the loss scale where there is one. A workgroup a
// row.
//
// slots: logits [rows, V], targets, list (see targets.comp), losses [T], loss scale. sizes: V, first of the list, most
// rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint kThreads = 256;
layout(local_size_x = kThreads) in;
layout(constant_id = 0) const bool kGradient = false;
layout(constant_id = 1) const bool kScaled = false;
#include "reduce.glsl"

void main() {
  const uint vocabulary = push.sizes[0];
  const uint row = group_place();
  Ints list = Ints(address(2));
  if (row >= push.sizes[2] || push.sizes[1] + row >= uint(list.v[0])) return;
  const uint target = uint(Ints(address(1)).v[list.v[1 + push.sizes[1] + row]]);
  Floats logits = Floats(address(0));
  const uint first = row * vocabulary;
  float maximum = logits.v[first];
  for (uint v = gl_LocalInvocationIndex; v < vocabulary; v += kThreads) maximum = max(maximum, logits.v[first + v]);
  maximum = maximum_over_group(maximum);
  float sum = 0.0;
  for (uint v = gl_LocalInvocationIndex; v < vocabulary; v += kThreads) {
    sum += exact_exp(logits.v[first + v] - maximum);
  }
  sum = sum_over_group(sum);
  if (gl_LocalInvocationIndex == 0) {
    Floats(address(3)).v[push.sizes[1] + row] = exact_log(sum) + (maximum - logits.v[first + target]);
  }
  memoryBarrierBuffer();
  barrier();  // the target's logit has been read
  if (!kGradient) return;
  const float inverse = 1.0 / sum;
  const float scale = kScaled ? Floats(address(4)).v[0] : 1.0;
  for (uint v = gl_LocalInvocationIndex; v < vocabulary; v += kThreads) {
    const float p = exact_exp(logits.v[first + v] - maximum) * inverse;
    logits.v[first + v] = (v == target ? p - 1.0 : p) * scale;
  }
}
