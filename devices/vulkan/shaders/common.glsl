// What all kernels share: how tensors are addressed, read and written, functions that are exact enough on every card,
// and sums over a workgroup in an order that no card decides.
//
// Memory is addressed by buffer device addresses, looked up in the run's table; nothing is bound. The driver's exp,
// log, sin and the like may err by much more than a unit in the last place, so these are written out; + - and * are
// exact to half a unit everywhere.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require

layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Words { uint64_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Pairs { uvec2 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Quad { uvec4 v; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Ints { int v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Uints { uint v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Narrow { uint16_t v[]; };

// As `struct Push` in pipelines.h.
layout(push_constant, scalar) uniform PushConstants {
  uint64_t table;
  uint slots[12];
  uint sizes[13];
  uint grid;
  vec2 factors;
  uint64_t fetched;
}
push;

/// How many of a chunk's `most` rows there are, from number `first` of the list of kernel targets.comp on.
uint present(uint64_t list, uint first, uint most) {
  const uint all = uint(Ints(list).v[0]);
  return all > first ? min(all - first, most) : 0;
}

// The table's first entries, see program.cpp.
uint run_layer() { return uint(Words(push.table).v[0]); }
uint64_t address(uint i) { return Words(push.table).v[push.slots[i]]; }

const uint kFloat32 = 0;
const uint kBfloat16 = 1;
const uint kFloat16 = 2;

// fp16 in whole numbers: drivers may round towards zero or lose what lies below 2^-14. Here and below every case is
// worked out and one chosen: branches cost more, most of all where a card's invocations take different ones.
float widened_half(uint bits) {
  const uint magnitude = bits & 0x7FFFu;
  const uint normal = (magnitude << 13) + (magnitude >= 0x7C00u ? 0x70000000u : 0x38000000u);  // or infinity, NaN
  // Below 2^-14, in units of 2^-24: normal in fp32, exactly.
  const uint small = floatBitsToUint(float(magnitude) * 5.9604644775390625e-08);
  return uintBitsToFloat(((bits & 0x8000u) << 16) | (magnitude < 0x400u ? small : normal));
}
uint narrowed_half(float x) {
  const uint bits = floatBitsToUint(x);
  const uint magnitude = bits & 0x7FFFFFFFu;
  const uint normal = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  // Below 2^-14: the last place of a sum with 1/2 is 2^-24, the smallest number.
  precise float sum = uintBitsToFloat(magnitude) + 0.5;
  const uint finite = magnitude < 0x38800000u ? floatBitsToUint(sum) - 0x3F000000u : normal;
  const uint large = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;
  // 65520 lies halfway between the largest number and the next power of two.
  return ((bits >> 16) & 0x8000u) | (magnitude >= 0x477FF000u ? large : finite);
}

uint size_of(uint dtype) { return dtype == kFloat32 ? 4 : 2; }
float widened(uint dtype, uint bits) { return dtype == kFloat16 ? widened_half(bits) : uintBitsToFloat(bits << 16); }
/// To nearest, ties to even; a NaN stays one.
uint narrowed(uint dtype, float x) {
  if (dtype == kFloat16) return narrowed_half(x);
  const uint bits = floatBitsToUint(x);
  const uint rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return (bits & 0x7FFFFFFFu) > 0x7F800000u ? (bits >> 16) | 0x40u : rounded;
}
/// Element i of a tensor stored as `dtype`, a specialisation constant.
float load(uint64_t tensor, uint dtype, uint i) {
  return dtype == kFloat32 ? Floats(tensor).v[i] : widened(dtype, uint(Narrow(tensor).v[i]));
}
void store(uint64_t tensor, uint dtype, uint i, float value) {
  if (dtype == kFloat32) {
    Floats(tensor).v[i] = value;
  } else {
    Narrow(tensor).v[i] = uint16_t(narrowed(dtype, value));
  }
}

/// The two halves of a word, as they are and as floats, and back.
uvec2 halves_of(uint64_t word) { return uvec2(uint(word), uint(word >> 32)); }
vec2 floats_of(uint64_t word) { return uintBitsToFloat(halves_of(word)); }
/// `half_word` is 32. Where it is no constant for the compiler, processors put together the words of all invocations at
/// once; a shift by a constant is taken apart into one for each, which then costs a store twice the instructions.
uint64_t word_of(vec2 value, uint half_word) {
  return uint64_t(floatBitsToUint(value.x)) | (uint64_t(floatBitsToUint(value.y)) << half_word);
}
uint64_t word_of(vec2 value) { return word_of(value, 32); }
/// The two numbers of a pair of 16 bits each.
vec2 widened_pair(uint dtype, uint pair) {
  if (dtype == kFloat16) return vec2(widened_half(pair & 0xFFFFu), widened_half(pair >> 16));
  return vec2(uintBitsToFloat(pair << 16), uintBitsToFloat(pair & 0xFFFF0000u));
}

/// Four elements from `i` on, which is a multiple of four. Whole words are read here and below: on processors that pose
/// as cards a read costs the same whatever its width.
vec4 load_four(uint64_t tensor, uint dtype, uint i) {
  Words words = Words(tensor);
  if (dtype == kFloat32) return vec4(floats_of(words.v[i / 2]), floats_of(words.v[i / 2 + 1]));
  const uint64_t word = words.v[i / 4];
  return vec4(widened_pair(dtype, uint(word)), widened_pair(dtype, uint(word >> 32)));
}

/// What lies in memory of element `i`, or of four from `i` on, which is a multiple of four then: `step`, a
/// specialisation constant, says which. Four of 16 bits are the first two words.
uvec4 load_raw(uint64_t tensor, uint dtype, uint step, uint i) {
  if (step == 1) return uvec4(dtype == kFloat32 ? Uints(tensor).v[i] : uint(Narrow(tensor).v[i]), 0, 0, 0);
  Words words = Words(tensor);
  if (dtype == kFloat32) return uvec4(halves_of(words.v[i / 2]), halves_of(words.v[i / 2 + 1]));
  return uvec4(halves_of(words.v[i / 4]), 0, 0);
}
/// Four elements from an address on, and eight of 16 bits.
uvec4 four_at(uint64_t place, uint dtype) { return dtype == kFloat32 ? Quad(place).v : uvec4(Pairs(place).v[0], 0, 0); }
uvec4 eight_at(uint64_t place) { return Quad(place).v; }
vec4 widened_raw(uint dtype, uint step, uvec4 raw) {
  if (dtype == kFloat32) return uintBitsToFloat(raw);
  if (step == 1) return vec4(widened(dtype, raw.x), 0.0, 0.0, 0.0);
  return vec4(widened_pair(dtype, raw.x), widened_pair(dtype, raw.y));
}
/// Four elements of 16 bits, as they lie in memory.
uvec2 narrowed_raw(uint dtype, vec4 value) {
  return uvec2(narrowed(dtype, value.x) | (narrowed(dtype, value.y) << 16),
               narrowed(dtype, value.z) | (narrowed(dtype, value.w) << 16));
}
/// Four elements from `i` on, which is a multiple of four.
void store_raw(uint64_t tensor, uint dtype, uint i, vec4 value) {
  if (dtype == kFloat32) {
    const uvec4 bits = floatBitsToUint(value);
    Pairs(tensor).v[i / 2] = bits.xy;
    Pairs(tensor).v[i / 2 + 1] = bits.zw;
  } else {
    Pairs(tensor).v[i / 4] = narrowed_raw(dtype, value);
  }
}

/// Elements i and, where `step` is 2, i + 1, of which i is even then. `step` is a specialisation constant; the second
/// element is 0 without it.
vec2 load_some(uint64_t tensor, uint dtype, uint step, uint i) {
  if (step == 1) return vec2(load(tensor, dtype, i), 0.0);
  return dtype == kFloat32 ? floats_of(Words(tensor).v[i / 2]) : widened_pair(dtype, Uints(tensor).v[i / 2]);
}
void store_some(uint64_t tensor, uint dtype, uint step, uint i, vec2 value, uint half_word) {
  if (step == 1) {
    store(tensor, dtype, i, value.x);
  } else if (dtype == kFloat32) {
    Words(tensor).v[i / 2] = word_of(value, half_word);
  } else {
    Uints(tensor).v[i / 2] = narrowed(dtype, value.x) | (narrowed(dtype, value.y) << 16);
  }
}
void store_some(uint64_t tensor, uint dtype, uint step, uint i, vec2 value) {
  store_some(tensor, dtype, step, i, value, 32);
}

/// The same elements of another tensor of this type, from its element `from` on: their bits.
void copy_some(uint64_t tensor, uint dtype, uint step, uint i, uint64_t other, uint from) {
  if (dtype == kFloat32 && step == 2) {
    Words(tensor).v[i / 2] = Words(other).v[from / 2];
  } else if (dtype == kFloat32 || step == 2) {
    Uints(tensor).v[i / step] = Uints(other).v[from / step];
  } else {
    Narrow(tensor).v[i] = Narrow(other).v[from];
  }
}

/// What is fetched as the `texel`th of the panel.
void store_texel(uint64_t panel, uint texel, vec4 value) {
  Words words = Words(panel + uint64_t(texel) * 16ul);
  words.v[0] = word_of(value.xy);
  words.v[1] = word_of(value.zw);
}

// Which part of the work is an invocation's own. Processors that pose as cards work on workgroups, and on a workgroup's
// subgroups between barriers, one after the other in rising order, where a missing barrier may go unnoticed: with
// kBackwards, for tests, the part that would come first is the last one's.
layout(constant_id = 31) const uint kBackwards = 0;
// A dispatch with kPart is a part of a larger grid (submissions.h): gl_WorkGroupID is a place in that, gl_NumWorkGroups
// is the part's. Which part comes first is the host's business.
layout(constant_id = 30) const uint kPart = 0;
uvec3 workgroup() { return gl_WorkGroupID + kBackwards * (1 - kPart) * (gl_NumWorkGroups - 1 - 2 * gl_WorkGroupID); }
/// How many workgroups the whole grid has in its first and in its last dimension.
uint grid_width() { return kPart == 0 ? gl_NumWorkGroups.x : push.grid & 0xFFFFu; }
uint grid_depth() { return kPart == 0 ? gl_NumWorkGroups.z : push.grid >> 16; }
uint subgroup() { return gl_SubgroupID + kBackwards * (gl_NumSubgroups - 1 - 2 * gl_SubgroupID); }
/// Within the workgroup: neighbours are of one subgroup.
uint invocation_by_subgroups() { return subgroup() * gl_SubgroupSize + gl_SubgroupInvocationID; }
/// In whatever order the card has.
uint invocation() { return kBackwards == 0 ? gl_LocalInvocationIndex : invocation_by_subgroups(); }

/// The workgroup's place in a grid that is two-dimensional only because one dimension ends at 65,535.
uint group_place() { return workgroup().y * grid_width() + workgroup().x; }

/// Something that the host has to hear of: the run fails with it. What `kind` and the numbers mean stands in
/// program.cpp.
void complain(uint kind, uint where, int what) {
  Ints report = Ints(Words(push.table).v[1]);
  report.v[1] = int(where);
  report.v[2] = what;
  report.v[0] = int(kind);
}

/// 2^n for n within -126 ... 127.
float power_of_two(int n) { return intBitsToFloat((n + 127) << 23); }

/// e^x is 2^n times 1 and this.
float exp_rest(float x, out float n) {
  n = roundEven(x * 1.44269504);
  // ln 2 in two parts, the first of 12 bits: its product with n is exact.
  precise float r = x - n * 0.693359375;
  r = r + n * 2.12194440e-4;
  precise float p = 0.00139505148 * r + 0.00836890284;
  p = p * r + 0.0416662060;
  p = p * r + 0.166665182;
  p = p * r + 0.5;
  p = p * r * r + r;
  return p;
}

float exact_exp(float x) {
  float n;
  const float p = exp_rest(clamp(x, -87.3, 88.8), n) + 1.0;
  const int whole = int(n);
  const int half_of = whole / 2;  // in two steps: 2^128 is none
  const float value = p * power_of_two(half_of) * power_of_two(whole - half_of);
  const float large = x > 0.0 ? uintBitsToFloat(0x7F800000u) : x;  // infinity, or the NaN that came
  const float small = x < -87.3 ? 0.0 : value;
  return x < 88.8 ? small : large;
}

/// 1 / x: the driver's, which may err by two and a half units, made better by one step of Newton's.
float exact_reciprocal(float x) {
  const float y = 1.0 / x;
  precise float error = 1.0 - x * y;
  return isinf(y) || y == 0.0 ? y : y + y * error;
}

/// 1 / (1 + e^-x), and 1 less that without cancellation.
vec2 logistic(float x) {
  const float e = exact_exp(-clamp(x, -80.0, 80.0));
  precise float sum = 1.0 + e;
  precise float lost = e > 1.0 ? 1.0 - (sum - e) : e - (sum - 1.0);
  const float rough = exact_reciprocal(sum);
  const float s = rough - rough * rough * lost;
  return vec2(s, e * s);
}

/// Of positive normal numbers.
float exact_log(float x) {
  int bits = floatBitsToInt(x);
  const int n = (bits - 0x3F3504F3) >> 23;  // x = m 2^n, m in [sqrt(1/2), sqrt(2))
  const float f = intBitsToFloat(bits - (n << 23)) - 1.0;
  precise float p = 0.0691542476 * f - 0.117898352;
  p = p * f + 0.118729658;
  p = p * f - 0.123843431;
  p = p * f + 0.142186582;
  p = p * f - 0.166692510;
  p = p * f + 0.200022265;
  p = p * f - 0.249999866;
  p = p * f + 0.333333105;
  precise float tail = p * f * f * f - 0.5 * f * f;
  tail = tail + float(n) * -2.12194440e-4;
  return float(n) * 0.693359375 + (f + tail);
}

/// The normal distribution's function, as a sum: its first part is exact, so that what is added to the second before
/// the first costs no rounding.
vec2 normal_parts(float x) {
  const float u = x * 0.707106781;
  const float a = abs(u);
  if (a < 1.0) {
    const float z = u * u;
    precise float p = 7.88912294e-05 * z - 8.02084222e-04;
    p = p * z + 0.00518953567;
    p = p * z - 0.0268544443;
    p = p * z + 0.112836003;
    p = p * z - 0.376126260;
    p = p * z + 1.12837911;
    return vec2(0.5, 0.5 * u * p);
  }
  const float t = 1.0 / (1.0 + 0.5 * min(a, 9.5));
  precise float p = 0.0706944466 * t - 0.151049584;
  p = p * t - 0.0232900325;
  p = p * t + 0.143604234;
  p = p * t + 0.139650419;
  p = p * t + 0.258456618;
  p = p * t + 0.279998600;
  p = p * t + 0.282298595;
  p = p * t - 8.30119097e-06;
  const float tail = 0.5 * p * exact_exp(-a * a);
  return x < 0.0 ? vec2(0.0, tail) : vec2(1.0, -tail);
}

/// Sine and cosine. `quarters` turns out exact enough for |angle| < 2^23: the angle's 24 bits times 2 / pi in 64.
void exact_turn(float angle, out float sine, out float cosine) {
  const float a = abs(angle);
  uint quadrant = 0;
  precise float r = a;
  if (a > 0.785398163) {
    const uint bits = floatBitsToUint(a);
    const int exponent = int(bits >> 23) - 150;  // a = mantissa 2^exponent, -24 ... 0 here
    const uint64_t mantissa = uint64_t((bits & 0x7FFFFFu) | 0x800000u);
    // 2 / pi = 0xA2F9836E.4E441529 2^-32: the product has 32 bits behind its point, then `exponent` more.
    const uint64_t product = mantissa * 0xA2F9836Eul + ((mantissa * 0x4E441529ul) >> 32);
    const uint64_t quarters = exponent < 0 ? product >> uint(-exponent) : product << uint(exponent);
    const uint fraction = uint(quarters & 0xFFFFFFFFul);
    quadrant = uint(quarters >> 32) & 3u;
    // The fraction to nearest: from -1/2 to 1/2 of a quarter.
    const int centred = int(fraction);
    if (fraction >= 0x80000000u) quadrant = (quadrant + 1) & 3u;
    r = float(centred) * 3.657295198e-10;  // pi / 2 * 2^-32
  }
  const float z = r * r;
  precise float s = -1.94947628e-4 * z + 0.00833197217;
  s = s * z - 0.166666508;
  s = s * z * r + r;
  precise float c = 2.44375333e-05 * z - 0.00138873595;
  c = c * z + 0.0416666456;
  c = c * z * z - 0.5 * z + 1.0;
  const bool swapped = (quadrant & 1u) != 0;
  sine = swapped ? c : s;
  cosine = swapped ? s : c;
  if (quadrant == 1 || quadrant == 2) cosine = -cosine;
  if (quadrant >= 2) sine = -sine;
  if (angle < 0.0) sine = -sine;
}

/// 1 / sqrt(x): the driver's, which may err by two units, made better by one step of Newton's.
float exact_inverse_root(float x) {
  const float y = inversesqrt(x);
  precise float error = 0.5 - 0.5 * x * y * y;
  return y + y * error;
}
