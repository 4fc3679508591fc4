// Encoded weights to numbers, see rondo/devices/encoding.h. An invocation eight elements of one block: codes are
// fetched in words, so that no card has to read single bytes.
//
// slots: encoded, y, constants: the 16 values of codes of four bits, behind those of NF4 the 256 of the dynamic map
// (int8: none, any slot). sizes: elements, then where sections begin, in words. int8, MXFP4: scales. NF4: block codes,
// block scales, offset.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kEncoding = 0;
layout(constant_id = 1) const uint kType = 0;

const uint kInt8 = 1, kNf4 = 2, kMxfp4 = 3;
const uint kEncodedBlock = 64, kScaleBlock = 256, kMapAt = 16, kMxfp4Block = 32;

/// Byte `index` of a section.
uint byte_of(uint section, uint index) {
  return bitfieldExtract(Uints(address(0)).v[section + index / 4], int(index % 4) * 8, 8);
}

/// The four codes of a word of int8, widened.
vec4 four_codes(uint word) {
  return vec4(bitfieldExtract(int(word), 0, 8), bitfieldExtract(int(word), 8, 8), bitfieldExtract(int(word), 16, 8),
              bitfieldExtract(int(word), 24, 8));
}

/// The largest magnitude of an NF4 block. Each operation rounds: nothing may be fused.
float magnitude(uint block) {
  Floats numbers = Floats(address(0));
  const uint code = byte_of(push.sizes[1], block);
  precise float scaled = Floats(address(2)).v[kMapAt + code] * numbers.v[push.sizes[2] + block / kScaleBlock];
  precise float sum = scaled + numbers.v[push.sizes[3]];
  return sum;
}

/// Values of the codes of half a word: the first of a byte is in its upper half, in MXFP4 in its lower one.
vec4 four_values(uint half_word) {
  Floats values = Floats(address(2));
  const int first = kEncoding == kMxfp4 ? 0 : 4;
  return vec4(values.v[bitfieldExtract(half_word, first, 4)], values.v[bitfieldExtract(half_word, 4 - first, 4)],
              values.v[bitfieldExtract(half_word, 8 + first, 4)], values.v[bitfieldExtract(half_word, 12 - first, 4)]);
}

/// Half of the power of two that a block of MXFP4 is scaled by.
float half_scale(uint scale) { return uintBitsToFloat(scale < 2 ? 0x00200000u << scale : (scale - 1) << 23); }

void store_four(uint first, vec4 values) {
  const uint count = min(push.sizes[0] - first, 4);
  for (uint i = 0; i < count; ++i) store(address(1), kType, first + i, values[i]);
}

void main() {
  const uint eighth = group_place() * 256 + invocation();
  const uint first = eighth * 8;
  const uint n = push.sizes[0];
  if (first >= n) return;
  vec4 low;
  vec4 high;
  float scale;
  if (kEncoding == kInt8) {
    Uints words = Uints(address(0));
    low = four_codes(words.v[2 * eighth]);
    high = four_codes(words.v[2 * eighth + 1]);
    scale = Floats(address(0)).v[push.sizes[1] + first / kEncodedBlock];
  } else {
    const uint word = Uints(address(0)).v[eighth];
    low = four_values(word & 0xFFFFu);
    high = four_values(word >> 16);
    scale = kEncoding == kMxfp4 ? half_scale(byte_of(push.sizes[1], first / kMxfp4Block))
                                : magnitude(first / kEncodedBlock);
  }
  store_four(first, low * scale);
  if (first + 4 < n) store_four(first + 4, high * scale);
}
