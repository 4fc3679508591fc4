// What the kernels of norms are compiled for, what they take off and what they multiply by.
#include "reduce.glsl"

layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kWeightType = 0;
layout(constant_id = 2) const uint kStep = 1;  // 2: the width is even
layout(constant_id = 3) const float kWeightFactor = 1.0;
layout(constant_id = 4) const float kWeightOffset = 0.0;
layout(constant_id = 5) const bool kCentred = false;

/// Numbers of a row less its mean, where that is taken off; what a step of one leaves out stays 0.
vec2 centred(vec2 values, float mean, uint step) {
  if (!kCentred) return values;
  return step == 2 ? values - mean : vec2(values.x - mean, 0.0);
}

float mean_of_row(uint64_t x, uint begin, uint width) {
  float sum = 0.0;
  for (uint d = invocation() * kStep; d < width; d += kThreads * kStep) {
    const vec2 value = load_some(x, kType, kStep, begin + d);
    sum += value.x + value.y;
  }
  return sum_over_group(sum) / float(width);
}

vec2 load_gain(uint64_t weights, uint step, uint i) {
  if (kWeightFactor == 0.0) return vec2(kWeightOffset);  // there is none
  return load_some(weights, kWeightType, step, i) * kWeightFactor + kWeightOffset;
}
