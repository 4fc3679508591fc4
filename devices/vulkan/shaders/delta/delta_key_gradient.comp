// The gradient of the delta rule's keys, queries and gates: of kOwn tokens, over the heads that share their key head in
// rising order. With S the state before and L the gradient of that behind an interval between checkpoints, G the sum of
// g from its beginning on, u, s, e and r as in delta_walk.glsl and delta_value_gradient.comp, and for i > j of a
// sequence
//   P_ij = -beta_i beta_j exp(G_i - G_j) (r_i . e_j),   Q_ij = beta_j exp(G_i - G_j) (do_i . e_j), also of i = j,
// the gradients of s and u are
//   ds_i = sum over j <= i of Q_ij u_j + exp(G_i) S do_i
//   du_i = later_i + earlier_i, where
//   later_i = sum over j < i of P_ij u_j - beta_i exp(G_i) S r_i
//   earlier_i = sum over t > i of P_ti u_t + sum over t >= i of Q_ti s_t + last_i,  last_i = beta_i exp(G - G_i) L e_i
// S is there for tokens whose sequence began before the interval, L for those whose sequence goes on behind it. G_i
// gets s_i . ds_i + u_i . (later_i - earlier_i), and the interval's G the sum of u_i . last_i and exp(G) <L, S>, which
// delta_gate_gradient.comp makes dg of. dbeta_i = r_i . e_i. Of a state space there is neither P nor later_i, and rows
// of keys and queries are as they are.
//
// slots: q, k, g, beta, checkpoints, bounds, do, scratch, dq, dk, dbeta. sizes: tokens, heads, key heads, D, width of
// values, first token of the range and the one behind it, -, places for L, then where in the scratch there are: r
// [tokens of the range, H, width] (before it e, alike), L [places, H, D, width], factors of keys and queries [tokens,
// key heads, 2], and what is left for the gates: [tokens, H] for G_i, [tokens, H] for u . last, [intervals, H] for <L,
// S>. factors: 1 / sqrt(D), D. Workgroups: kOwn tokens, key heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sequences.glsl"

const uint kThreads = 256;
layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 2) const bool kStateSpace = false;

const uint kOwn = 16;
const uint kEach = 8;         // own tokens of an invocation, which has one channel of theirs
const uint kChannels = 128;   // kMostDeltaSize
const uint kChunk = 64;       // kDeltaChunk
const uint kFoursOfTurn = 8;  // of the values' columns, which go by turns
const uint kPitch = kFoursOfTurn + 1;
const uint kPitchOfSums = kEach / 4 + 1;
const uint kFours = kOwn / 4;
// Rows of values: of the own tokens those of r, do and e, then of passing ones e, or r and do.
const uint kSlopes = 0, kOutputs = kOwn, kErrors = 2 * kOwn, kPassing = 3 * kOwn;

shared vec4 rows[kThreads * kPitchOfSums];  // of values, or what is summed over channels
shared float sums[kThreads];
// P and Q, by tokens of the interval, then own ones. The own tokens' tile is there twice: what their earlier ones give,
// then what later ones do, with zeros for the others.
shared vec4 pairs[(kChunk + kOwn) * kFours];
shared vec4 outputs[(kChunk + kOwn) * kFours];
shared int begins[kChunk];    // of the token's sequence; -1: padding
shared vec2 factors[kChunk];  // of key and query
shared float gates[kChunk];
shared float betas[kChunk];
shared vec2 parts[kChunk];   // sums of g within eights
shared vec2 totals[kChunk];  // G, in two numbers, so that differences are exact enough
shared float kept[kOwn];     // exp(G_i), or 0 without S
shared float left[kOwn];     // beta_i exp(G - G_i), or 0 without L

vec2 add_exactly(vec2 a, float b) {
  precise float sum = a.x + b;
  precise float part = sum - a.x;
  precise float lost = (a.x - (sum - part)) + (b - part);
  return vec2(sum, a.y + lost);
}

/// `wide`: rows are of whole fours of columns.
vec4 load_row(uint64_t from, uint dtype, bool wide, uint first, uint columns) {
  vec4 value = vec4(0.0);
  if (columns == 0) return value;
  if (wide) return widened_raw(dtype, 4, load_raw(from, dtype, 4, first));
  for (uint j = 0; j < min(columns, 4); ++j) value[j] = load(from, dtype, first + j);
  return value;
}

/// Puts rows of values of `count` tokens from `token` on where `to` says, those of r, do or e, from `column` on. Half
/// of the invocations do.
void fill(uint to, uint of, uint token, uint count, uint head, uint column) {
  const uint heads = push.sizes[1];
  const uint width = push.sizes[4];
  const uint row = invocation() % kChannels / kFoursOfTurn;
  const uint four = invocation() % kFoursOfTurn;
  const uint own = column + 4 * four;
  const uint columns = row < count && own < width ? width - own : 0;
  const uint at = ((token + min(row, count - 1)) * heads + head) * width + own;
  vec4 value;
  if (of == kOutputs) {
    value = load_row(address(6), kType, width % 4 == 0, at, columns);
  } else {
    const uint first = push.sizes[5] * heads * width;  // the range's
    value = load_row(address(7), kFloat32, width % 4 == 0, (of == kErrors ? 0 : push.sizes[9]) + at - first, columns);
  }
  rows[(to + row) * kPitch + four] = value;
}

/// Puts what is summed up over channels where all invocations see it: of each its own tokens'.
void show(float values[kEach]) {
  [[unroll]] for (uint i = 0; i < kEach / 4; ++i) {
    rows[invocation() * kPitchOfSums + i] =
        vec4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]);
  }
}
float shown(uint owner, uint i) { return rows[owner * kPitchOfSums + i / 4][i % 4]; }

/// The product of what is shown with the own tokens' rows of `of`, for the invocations of token invocation() % kOwn.
/// `row`: of a token before the first of them.
float product_with(uint64_t of, uint kind, uint own_tile, uint own_count, uint first, uint stride) {
  const uint me = invocation();
  const uint token = me % kOwn;
  const uint each = kChannels / (kThreads / kOwn);
  const uint size = push.sizes[3];
  float sum = 0.0;
  if (token < own_count) {
    for (uint d = me / kOwn * each; d < min((me / kOwn + 1) * each, size); ++d) {
      sum += load(of, kType, first + token * stride + d) * shown(token / kEach * kChannels + d, token % kEach);
    }
  }
  sums[me] = sum * factors[own_tile * kOwn + token][kind];
  barrier();
  sum = 0.0;
  [[dont_unroll]] for (uint part = 0; part < kThreads / kOwn; ++part) sum += sums[part * kOwn + token];
  return sum;
}

/// Whose rows of r (and behind them do), and of e, a pair of an own token and one of tile `tile` is a product of.
uvec2 rows_of_pair(uint own, uint other, uint tile, uint own_tile) {
  if (tile < own_tile) return uvec2(kSlopes + own, kPassing + other);
  if (tile > own_tile) return uvec2(kPassing + other, kErrors + own);
  return other <= own ? uvec2(kSlopes + own, kErrors + other) : uvec2(kSlopes + other, kErrors + own);
}

void main() {
  const uint me = invocation();
  const uint half_of = me / kChannels;
  const uint d = me % kChannels;
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint size = push.sizes[3];
  const uint width = push.sizes[4];
  const uint range_first = push.sizes[5];
  const uint tokens = push.sizes[6] - range_first;
  const uint key_head = workgroup().y;
  const uint group = heads / key_heads;
  const uint own_first = range_first + workgroup().x * kOwn;
  const uint chunk_first = own_first / kChunk * kChunk;
  const uint own_tile = (own_first - chunk_first) / kOwn;
  const uint64_t queries = address(0);
  const uint64_t keys = address(1);
  const uint64_t scratch = address(7);
  Ints bounds = Ints(address(5));
  const uint real = uint(real_tokens(bounds));
  const uint own_count = own_first < real ? min(kOwn, real - own_first) : 0;
  const bool channel = d < size;
  // Of padding zeros.
  for (uint i = own_count + half_of; i < min(kOwn, push.sizes[6] - own_first); i += 2) {
    const uint token = own_first + i;
    if (channel) {
      store(address(8), kType, (token * key_heads + key_head) * size + d, 0.0);
      store(address(9), kType, (token * key_heads + key_head) * size + d, 0.0);
    }
    for (uint h = d; h < group; h += kChannels) Floats(address(10)).v[token * heads + key_head * group + h] = 0.0;
  }
  if (own_count == 0) return;
  const uint count = min(kChunk, real - chunk_first);
  if (me < kChunk) {
    const bool there = me < count;
    const uint token = chunk_first + min(me, count - 1);
    begins[me] = there ? bounds.v[1 + sequence_of(bounds, int(token))] : -1;
    Floats found = Floats(scratch + 4ul * push.sizes[11]);
    const uint at = ((token - range_first) * key_heads + key_head) * 2;
    factors[me] = there ? vec2(found.v[at], found.v[at + 1]) : vec2(0.0);
  }
  barrier();
  // Where the sequence begins that the token behind the interval is of: no token's here, unless it goes on there.
  int open = -2;
  if (chunk_first + kChunk < real) open = bounds.v[1 + sequence_of(bounds, int(chunk_first + kChunk))];
  const bool has_before = begins[own_tile * kOwn] < int(chunk_first);
  const bool has_behind = begins[own_tile * kOwn + own_count - 1] == open;
  const bool whole = begins[0] == open && begins[0] < int(chunk_first);
  const uint stride = key_heads * size;
  const uint first_channel = key_head * size;
  const uint own_channel = own_first * stride + first_channel;
  float query_sums[kEach];
  float key_sums[kEach];
  [[unroll]] for (uint i = 0; i < kEach; ++i) {
    query_sums[i] = 0.0;
    key_sums[i] = 0.0;
  }
  for (uint head = key_head * group; head < (key_head + 1) * group; ++head) {
    if (me < kChunk) {
      const uint gate = (chunk_first + min(me, count - 1)) * heads + head;
      const float g = me < count ? Floats(address(2)).v[gate] : 0.0;
      gates[me] = g < -200.0 ? -200.0 : g;  // whose exp is 0 as well
      betas[me] = me < count ? Floats(address(3)).v[gate] : 0.0;
    }
    for (uint i = me; i < (kChunk + kOwn) * kFours; i += kThreads) {
      pairs[i] = vec4(0.0);
      outputs[i] = vec4(0.0);
    }
    barrier();
    if (me < kChunk) {
      vec2 sum = vec2(0.0);
      for (uint t = me / 8 * 8; t <= me; ++t) sum = add_exactly(sum, gates[t]);
      parts[me] = sum;
    }
    barrier();
    if (me < kChunk) {
      vec2 sum = parts[me];
      for (uint t = 7; t < me / 8 * 8; t += 8) sum = add_exactly(sum + vec2(0.0, parts[t].y), parts[t].x);
      totals[me] = sum;
    }
    float later[kEach];
    float earlier[kEach];
    float slopes[kEach];  // ds
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      later[i] = 0.0;
      earlier[i] = 0.0;
      slopes[i] = 0.0;
    }
    float inner = 0.0;  // a channel's part of <L, S>
    const uint chunk = chunk_first / kChunk;
    const uint64_t row_of_states = 4ul * heads * size * width;
    const uint64_t before = address(4) + chunk * row_of_states;
    const uint64_t behind = scratch + 4ul * push.sizes[10] + (chunk + 1) % push.sizes[8] * row_of_states;
    for (uint column = 0; column < width; column += 4 * kFoursOfTurn) {
      // The own tokens' tile comes first.
      [[dont_unroll]] for (uint turn = 0; turn * kOwn < count; ++turn) {
        const uint tile = turn == 0 ? own_tile : turn <= own_tile ? turn - 1 : turn;
        barrier();
        for (uint part = half_of; part < (turn == 0 ? 3 : tile < own_tile ? 1 : 2); part += 2) {
          fill((turn == 0 ? 0 : kPassing) + part * kOwn, tile < own_tile ? kErrors : part * kOwn,
               chunk_first + tile * kOwn, min(kOwn, count - tile * kOwn), head, column);
        }
        barrier();
        const uint used = min(kFoursOfTurn, (width - column + 3) / 4);
        const uint fours = turn == 0 && channel && (has_before || has_behind) ? used : 0;
        for (uint four = 0; four < fours; ++four) {
          const uint at = (head * size + d) * width + column + 4 * four;
          const uint columns = width - column - 4 * four;
          const vec4 s = load_row(before, kFloat32, width % 4 == 0, at, has_before ? columns : 0);
          const vec4 l = load_row(behind, kFloat32, width % 4 == 0, at, has_behind ? columns : 0);
          inner += dot(s, l);
          [[unroll]] for (uint i = 0; i < kEach; ++i) {
            const uint row = half_of * kEach + i;
            later[i] += dot(s, rows[(kSlopes + row) * kPitch + four]);
            slopes[i] += dot(s, rows[(kOutputs + row) * kPitch + four]);
            earlier[i] += dot(l, rows[(kErrors + row) * kPitch + four]);
          }
        }
        const uint own = me % kOwn;
        const uint other = me / kOwn;
        const uvec2 of = rows_of_pair(own, other, tile, own_tile) * kPitch;
        float pair = 0.0;
        float of_output = 0.0;
        [[dont_unroll]] for (uint four = 0; four < used; ++four) {
          const vec4 error = rows[of.y + four];
          pair += dot(rows[of.x + four], error);
          of_output += dot(rows[of.x + kOwn * kPitch + four], error);
        }
        const uint place = tile + (tile > own_tile || (tile == own_tile && other > own) ? 1 : 0);
        pairs[(place * kOwn + other) * kFours + own / 4][own % 4] += pair;
        outputs[(place * kOwn + other) * kFours + own / 4][own % 4] += of_output;
      }
    }
    barrier();
    for (uint tile = 0; tile * kOwn < count; ++tile) {
      const uint i = me % kOwn;
      const uint own = own_tile * kOwn + i;  // in the interval
      const uint other = tile * kOwn + me / kOwn;
      const uint place = tile + (tile > own_tile || (tile == own_tile && other > own) ? 1 : 0);
      const uint at = (place * kOwn + me / kOwn) * kFours + i / 4;
      const float pair = pairs[at][i % 4];
      const uint last = max(own, other);
      const uint first = min(own, other);
      const bool meet = last < count && begins[own] == begins[other];
      const vec2 apart = totals[last] - totals[first];
      const float factor = meet ? betas[first] * exact_exp(apart.x + apart.y) : 0.0;
      const float of_output = meet ? factor * outputs[at][i % 4] : 0.0;
      pairs[at][i % 4] = meet && own != other && !kStateSpace ? -betas[last] * factor * pair : 0.0;
      outputs[at][i % 4] = of_output;
      if (own == other && own < count) {
        Floats(address(10)).v[(chunk_first + own) * heads + head] = pair;
        outputs[at + kOwn * kFours][i % 4] = of_output;  // among the later ones too
      }
    }
    if (me < 2 * kOwn) {
      const uint own = own_tile * kOwn + me % kOwn;
      const bool behind_it = me >= kOwn;
      const vec2 apart = behind_it ? totals[kChunk - 1] - totals[own] : totals[own];
      const bool goes = own < count && (behind_it ? begins[own] == open : begins[own] < int(chunk_first));
      const float factor = goes ? exact_exp(apart.x + apart.y) : 0.0;
      if (behind_it) {
        left[me - kOwn] = factor * betas[own];
      } else {
        kept[me] = factor;
      }
    }
    barrier();
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      const uint own = half_of * kEach + i;
      later[i] = kStateSpace ? 0.0 : later[i] * -betas[own_tile * kOwn + own] * kept[own];
      slopes[i] *= kept[own];
      earlier[i] *= left[own];
    }
    show(earlier);
    barrier();
    const float last_sum = product_with(keys, 0, own_tile, own_count, own_channel, stride);
    for (uint place = 0; place < count + kOwn && channel; ++place) {
      const bool above = place >= (own_tile + 1) * kOwn;
      const uint j = place - (above ? kOwn : 0);
      if (j >= count) continue;
      const uint at = (chunk_first + j) * stride + first_channel + d;
      const float unit = load(keys, kType, at) * factors[j].x;
      const uint fours = place * kFours + half_of * kEach / 4;
      if (above) {
        const float query = load(queries, kType, at) * factors[j].y;
        [[unroll]] for (uint i = 0; i < kEach / 4; ++i) {
          const vec4 sum = pairs[fours + i] * unit + outputs[fours + i] * query;
          [[unroll]] for (uint a = 0; a < 4; ++a) earlier[4 * i + a] += sum[a];
        }
      } else {
        [[unroll]] for (uint i = 0; i < kEach / 4; ++i) {
          const vec4 pair = pairs[fours + i];
          const vec4 of_output = outputs[fours + i];
          [[unroll]] for (uint a = 0; a < 4; ++a) {
            later[4 * i + a] += pair[a] * unit;
            slopes[4 * i + a] += of_output[a] * unit;
          }
        }
      }
    }
    float gate_sum = 0.0;
    [[dont_unroll]] for (uint kind = 0; kind < 2; ++kind) {
      float terms[kEach];
      [[unroll]] for (uint i = 0; i < kEach; ++i) terms[i] = kind == 0 ? later[i] - earlier[i] : slopes[i];
      barrier();
      show(terms);
      barrier();
      gate_sum += product_with(kind == 0 ? keys : queries, kind, own_tile, own_count, own_channel, stride);
    }
    [[unroll]] for (uint i = 0; i < kEach; ++i) {
      query_sums[i] += slopes[i];
      key_sums[i] += later[i] + earlier[i];
    }
    Floats found = Floats(scratch + 4ul * push.sizes[12]);
    if (me < own_count) {
      const uint at = (own_first - range_first + me) * heads + head;
      found.v[at] = gate_sum;
      found.v[at + tokens * heads] = last_sum;
    }
    barrier();
    if (whole && own_tile == 0) {
      sums[me] = half_of == 0 && channel ? inner : 0.0;
      barrier();
      float product = 0.0;
      for (uint i = 0; i < kChannels && me == 0; ++i) product += sums[i];
      if (me == 0) found.v[(2 * tokens + (chunk_first - range_first) / kChunk) * heads + head] = product;
      barrier();
    }
  }
  // From unit rows to rows: what lies along them has no effect.
  [[dont_unroll]] for (uint kind = 0; kind < 2; ++kind) {
    float terms[kEach];
    [[unroll]] for (uint i = 0; i < kEach; ++i) terms[i] = kind == 0 ? key_sums[i] : query_sums[i];
    show(terms);
    barrier();
    const uint64_t of = kind == 0 ? keys : queries;
    const float along = product_with(of, kind, own_tile, own_count, own_channel, stride);
    // That of a query has a factor 1 / sqrt(D), as its gradient does.
    if (me < kOwn) kept[me] = kStateSpace ? 0.0 : kind == 0 ? along : push.factors[1] * along;
    barrier();
    const uint64_t to = kind == 0 ? address(9) : address(8);
    for (uint i = half_of * kEach; i < min((half_of + 1) * kEach, own_count) && channel; ++i) {
      const uint at = own_channel + i * stride + d;
      const float factor = factors[own_tile * kOwn + i][kind];
      const float unit = load(of, kType, at) * factor;
      store(to, kType, at, factor * (shown(me, i % kEach) - unit * kept[i]));
    }
    barrier();
  }
}
