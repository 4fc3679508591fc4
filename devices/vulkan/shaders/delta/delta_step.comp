// The delta rule for one token from a state, which it leaves behind (delta_walk.glsl): there is no later token that
// needs to know of this one's errors, so that the state is read, and read again where it is changed. A workgroup one
// head and kAcross steps of columns, at each of which kDown invocations share out the channels. Of a state space rows
// are as they are, and the error is the value.
//
// slots: q, k, v, g, beta, bounds, o, state, positions. sizes: heads, key heads, D, width of values. factors:
// 1 / sqrt(D).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sequences.glsl"
#include "spread.glsl"

layout(constant_id = 2) const bool kStateSpace = false;

const uint kAcross = 16;
const uint kDown = 4;
layout(local_size_x = kAcross * kDown) in;

shared vec4 known_parts[kDown * kAcross];
shared vec4 seen_parts[kDown * kAcross];
shared vec4 product_parts[kDown];  // of the key with itself, of the query, of both

void main() {
  const uint width = push.sizes[3];
  const uint size = push.sizes[2];
  const uint parts = (width + kAcross * kStep - 1) / (kAcross * kStep);
  const uint head = group_place() / parts;
  if (head >= push.sizes[0]) return;
  const uint across = invocation() % kAcross;
  const uint down = invocation() / kAcross;
  const uint column = (group_place() % parts * kAcross + across) * kStep;
  const bool inside = column < width;
  const uint key = head / (push.sizes[0] / push.sizes[1]) * size;
  const bool real = real_tokens(Ints(address(5))) > 0;
  const bool continued = real && Ints(address(8)).v[0] > 0;
  const uint64_t state = address(7);
  const uint first = head * size * width + (inside ? column : 0);

  vec4 known = vec4(0.0);
  vec4 seen = vec4(0.0);
  vec4 products = vec4(0.0);
  for (uint d = down; d < size; d += kDown) {
    const float k = load(address(1), kType, key + d);
    const float q = load(address(0), kType, key + d);
    products += vec4(k * k, q * q, q * k, 0.0);
    if (!continued) continue;
    const vec4 s = load_step(state, kFloat32, first + d * width);
    known += s * k;
    seen += s * q;
  }
  known_parts[invocation()] = known;
  seen_parts[invocation()] = seen;
  if (across == 0) product_parts[down] = products;
  barrier();
  known = vec4(0.0);
  seen = vec4(0.0);
  products = vec4(0.0);
  [[unroll]] for (uint i = 0; i < kDown; ++i) {
    known += known_parts[i * kAcross + across];
    seen += seen_parts[i * kAcross + across];
    products += product_parts[i];
  }
  if (!inside) return;
  const uint64_t o = address(6);
  if (!real) {
    if (down == 0) store_step(o, head * width + column, vec4(0.0));
    return;
  }
  const float key_factor = kStateSpace ? 1.0 : exact_inverse_root(products.x + 1e-6);
  const float query_factor = kStateSpace ? 1.0 : exact_inverse_root(products.y + 1e-6) * push.factors[0];
  const float keep = continued ? exact_exp(Floats(address(3)).v[head]) : 0.0;
  vec4 error = load_step(address(2), head * width + column);
  if (!kStateSpace) error -= keep * key_factor * known;
  const vec4 added = Floats(address(4)).v[head] * key_factor * error;
  if (down == 0) {
    store_step(o, head * width + column, keep * query_factor * seen + query_factor * products.z * added);
  }
  for (uint d = down; d < size; d += kDown) {
    const float k = load(address(1), kType, key + d);
    vec4 s = k * added;
    if (continued) s += keep * load_step(state, kFloat32, first + d * width);
    store_step(state, kFloat32, first + d * width, s);
  }
}
