// What the kernels of RMSNorm are compiled for, and what they multiply by.
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kWeightType = 0;
layout(constant_id = 2) const uint kStep = 1;  // 2: the width is even
layout(constant_id = 3) const float kWeightFactor = 1.0;
layout(constant_id = 4) const float kWeightOffset = 0.0;

vec2 load_gain(uint64_t weights, uint step, uint i) {
  return load_some(weights, kWeightType, step, i) * kWeightFactor + kWeightOffset;
}
