// rondo/devices/random.h's numbers.
uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ul;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ul;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBul;
  return x ^ (x >> 31);
}
uint64_t combine_keys(uint64_t a, uint64_t b) { return mix64(mix64(a) ^ b); }
