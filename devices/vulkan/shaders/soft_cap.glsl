// What a soft cap makes of numbers. Behind common.glsl.

/// tanh x to 3 units: (e^2x - 1) / (e^2x + 1), the numerator without cancellation. With 2x = n ln 2 + r as in
/// exact_exp() it is 2^n (e^r - 1) + (2^n - 1).
float exact_tanh(float x) {
  const float twice = clamp(2.0 * x, -20.0, 20.0);
  const float n = roundEven(twice * 1.44269504);
  precise float r = twice - n * 0.693359375;
  r = r + n * 2.12194440e-4;
  precise float p = 0.00139505148 * r + 0.00836890284;
  p = p * r + 0.0416662060;
  p = p * r + 0.166665182;
  p = p * r + 0.5;
  p = p * r * r + r;
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
