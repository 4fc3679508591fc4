// What all attention kernels make of a product. Behind common.glsl and kCapped, whose number differs among them.
#include "soft_cap.glsl"

/// A score from scaled products, and its slope along them: capped by factors[1] with kCapped.
vec2 score_of(float scaled) { return kCapped ? soft_capped(scaled, push.factors[1]) : vec2(scaled, 1.0); }
