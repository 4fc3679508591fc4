// Of one row of logits of a part of the vocabulary. A workgroup a row. kMode:
// 0: adds the part to the token's statistics [T, 3] (maximum, sum of exponentials over it, the target's logit);
// `before`
//    are those of the parts before, with kBefore.
// 1: of the statistics of all parts the loss and the token's normaliser lse [T].
// 2: over the logits their gradient exp(logit - lse) - onehot.
//
// slots: logits [rows, N], targets, list (see targets.comp), before, statistics, lse, losses [T]. sizes: N, first of
// the list, most rows, the part's first row of the vocabulary.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint kThreads = 256;
layout(local_size_x = kThreads) in;
layout(constant_id = 0) const uint kMode = 0;
layout(constant_id = 1) const bool kBefore = false;
#include "reduce.glsl"

void add_part(uint token, uint first, uint rows, int target) {
  Floats logits = Floats(address(0));
  float part = logits.v[first];
  for (uint v = gl_LocalInvocationIndex; v < rows; v += kThreads) part = max(part, logits.v[first + v]);
  part = maximum_over_group(part);
  float sum = 0.0;
  for (uint v = gl_LocalInvocationIndex; v < rows; v += kThreads) sum += exact_exp(logits.v[first + v] - part);
  sum = sum_over_group(sum);
  if (gl_LocalInvocationIndex != 0) return;
  float maximum = part;
  float target_logit = 0.0;
  if (kBefore) {
    Floats before = Floats(address(3));
    maximum = max(before.v[token * 3], part);
    sum = before.v[token * 3 + 1] * exact_exp(before.v[token * 3] - maximum) + sum * exact_exp(part - maximum);
    target_logit = before.v[token * 3 + 2];
  }
  if (target >= 0 && target < int(rows)) target_logit = logits.v[first + uint(target)];
  Floats statistics = Floats(address(4));
  statistics.v[token * 3] = maximum;
  statistics.v[token * 3 + 1] = sum;
  statistics.v[token * 3 + 2] = target_logit;
}

void main() {
  const uint rows = push.sizes[0];
  const uint row = group_place();
  Ints list = Ints(address(2));
  if (row >= push.sizes[2] || push.sizes[1] + row >= uint(list.v[0])) return;
  const uint token = uint(list.v[1 + push.sizes[1] + row]);
  const int target = Ints(address(1)).v[token] - int(push.sizes[3]);
  if (kMode == 0) {
    add_part(token, row * rows, rows, target);
    return;
  }
  if (kMode == 1) {
    if (gl_LocalInvocationIndex != 0) return;
    Floats statistics = Floats(address(4));
    const float maximum = statistics.v[token * 3];
    const float log_sum = exact_log(statistics.v[token * 3 + 1]);
    Floats(address(5)).v[token] = maximum + log_sum;
    Floats(address(6)).v[push.sizes[1] + row] = log_sum + (maximum - statistics.v[token * 3 + 2]);
    return;
  }
  Floats logits = Floats(address(0));
  const float lse = Floats(address(5)).v[token];
  for (uint v = gl_LocalInvocationIndex; v < rows; v += kThreads) {
    const float p = exact_exp(logits.v[row * rows + v] - lse);
    logits.v[row * rows + v] = int(v) == target ? p - 1.0 : p;
  }
}
