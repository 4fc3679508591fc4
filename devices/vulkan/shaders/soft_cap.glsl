// What a soft cap makes of numbers. Behind common.glsl.

/// tanh x to 3 units: (e^2x - 1) / (e^2x + 1), the numerator without cancellation: with exp_rest() it is 2^n times that
/// and 2^n - 1.
float exact_tanh(float x) {
  float n;
  const float p = exp_rest(clamp(2.0 * x, -20.0, 20.0), n);
  const float power = power_of_two(int(n));
  precise float less = power * p + (power - 1.0);
  const float value = less * exact_reciprocal(less + 2.0);
  const float far = x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x;  // or the NaN that came
  return abs(x) < 10.0 ? value : far;
}

/// cap * tanh(x / cap), and its slope.
vec2 soft_capped(float x, float cap) {
  const float share = exact_tanh(x / cap);
  return vec2(cap * share, 1.0 - share * share);
}
