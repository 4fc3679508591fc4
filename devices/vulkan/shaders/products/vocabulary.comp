// Of one row of logits, of the whole vocabulary or of a part of it. A workgroup a row. kMode:
// 0: adds the part to the token's statistics [T, 3] (maximum, sum of exponentials over it, the target's logit).
// 1: of the last part the loss and the token's normaliser [T, 2] (maximum, 1 / sum of exponentials over it), and with
//    kGradient as 2.
// 2: over the logits their gradient softmax - onehot, times the loss scale where there is one.
// `before` are the statistics of the parts before, with kBefore.
//
// slots: logits [rows, N], targets, list (see targets.comp), before, statistics, normalisers, losses [T], loss scale.
// sizes: N, first of the list, most rows, the part's first row of the vocabulary. factors: cap.
//
// What is in memory are logits before the cap of kCapped, which is made whenever they are read.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "soft_cap.glsl"

const uint kThreads = 256;
layout(local_size_x = kThreads) in;
layout(constant_id = 0) const uint kMode = 0;
layout(constant_id = 1) const bool kBefore = false;
layout(constant_id = 2) const bool kGradient = false;
layout(constant_id = 3) const bool kScaled = false;
layout(constant_id = 4) const bool kCapped = false;
#include "reduce.glsl"

/// What a logit counts for.
float logit(float x) { return kCapped ? soft_capped(x, push.factors[0]).x : x; }

/// Maximum and sum of exponentials over it, of the part and those before.
vec2 sums_of(uint token, uint first, uint rows) {
  Floats logits = Floats(address(0));
  float part = logits.v[first];
  for (uint v = invocation(); v < rows; v += kThreads) part = max(part, logits.v[first + v]);
  part = logit(maximum_over_group(part));  // a cap changes no order
  float sum = 0.0;
  for (uint v = invocation(); v < rows; v += kThreads) sum += exact_exp(logit(logits.v[first + v]) - part);
  sum = sum_over_group(sum);
  if (!kBefore) return vec2(part, sum);
  Floats before = Floats(address(3));
  const float maximum = max(before.v[token * 3], part);
  sum = before.v[token * 3 + 1] * exact_exp(before.v[token * 3] - maximum) + sum * exact_exp(part - maximum);
  return vec2(maximum, sum);
}

float logit_of(uint token, uint first, uint rows, int target) {
  if (target >= 0 && target < int(rows)) return logit(Floats(address(0)).v[first + uint(target)]);
  return kBefore ? Floats(address(3)).v[token * 3 + 2] : 0.0;
}

void write_gradient(uint first, uint rows, int target, float maximum, float inverse) {
  Floats logits = Floats(address(0));
  const float scale = kScaled ? Floats(address(7)).v[0] : 1.0;
  for (uint v = invocation(); v < rows; v += kThreads) {
    const vec2 at = kCapped ? soft_capped(logits.v[first + v], push.factors[0]) : vec2(logits.v[first + v], 1.0);
    const float p = exact_exp(at.x - maximum) * inverse;
    const float slope = (int(v) == target ? p - 1.0 : p) * scale;
    logits.v[first + v] = kCapped ? slope * at.y : slope;
  }
}

void main() {
  const uint rows = push.sizes[0];
  const uint row = group_place();
  Ints list = Ints(address(2));
  if (row >= push.sizes[2] || push.sizes[1] + row >= uint(list.v[0])) return;
  const uint token = uint(list.v[1 + push.sizes[1] + row]);
  const int target = Ints(address(1)).v[token] - int(push.sizes[3]);
  const uint first = row * rows;
  Floats normalisers = Floats(address(5));
  if (kMode == 2) {
    write_gradient(first, rows, target, normalisers.v[token * 2], normalisers.v[token * 2 + 1]);
    return;
  }
  const vec2 sums = sums_of(token, first, rows);
  const float inverse = 1.0 / sums.y;
  if (invocation() == 0) {
    const float target_logit = logit_of(token, first, rows, target);
    if (kMode == 0) {
      Floats statistics = Floats(address(4));
      statistics.v[token * 3] = sums.x;
      statistics.v[token * 3 + 1] = sums.y;
      statistics.v[token * 3 + 2] = target_logit;
    } else {
      normalisers.v[token * 2] = sums.x;
      normalisers.v[token * 2 + 1] = inverse;
      Floats(address(6)).v[push.sizes[1] + row] = exact_log(sums.y) + (sums.x - target_logit);
    }
  }
  if (kMode == 0 || !kGradient) return;
  memoryBarrierBuffer();
  barrier();  // the target's logit has been read
  write_gradient(first, rows, target, sums.x, inverse);
}
