// rondo/devices/random.h's numbers.
uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ul;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ul;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBul;
  return x ^ (x >> 31);
}
uint64_t combine_keys(uint64_t a, uint64_t b) { return mix64(mix64(a) ^ b); }

/// Of a token with this key, all that is drawn at a site of a layer; and what its uniform_float() is for a channel,
/// times 2^24.
uint64_t place_of(uint64_t key, uint layer, uint site) {
  return combine_keys(key, (uint64_t(layer) << 32) | uint64_t(site));
}
uint drawn_at(uint64_t place, uint channel) { return uint(mix64(combine_keys(place, uint64_t(channel))) >> 40); }

float inverse_root(uint64_t n) {
  uint doublings = 0;
  for (; n < 1ul << 60; n <<= 2) ++doublings;
  uint64_t root = 0;
  for (uint64_t bit = 1ul << 30; bit != 0; bit >>= 1) {
    if ((root | bit) * (root | bit) <= n) root |= bit;
  }
  const uint quotient = uint(((1ul << 62) / root) >> 8);
  return float(quotient) * float(1u << doublings) * 5.5511151231257827e-17;  // 2^-54
}
