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
// delta_gate_gradient.comp makes dg of. dbeta_i = r_i . e_i.
//
// slots: q, k, g, beta, checkpoints, bounds, do, scratch, dq, dk, dbeta. sizes: tokens, heads, key heads, D, width of
// values, first and last-but-one token of the range, -, places for L, then where in the scratch there are: r [tokens of
// the range, H, width] (before it e, alike), L [places, H, D, width], factors of keys and queries [tokens, key heads,
// 2], and what is left for the gates: [tokens, H] for G_i, [tokens, H] for u . last, [intervals, H] for <L, S>.
// factors: 1 / sqrt(D). Workgroups: kOwn tokens, key heads.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sequences.glsl"

const uint kThreads = 128;  // one a channel of keys, of which there are no more
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kStep = 1;  // 4: the width of values is a multiple of four

const uint kOwn = 16;
const uint kChunk = 64;       // kDeltaChunk
const uint kFoursOfTurn = 8;  // of the values' columns, which go by turns
const uint kPitch = kFoursOfTurn + 1;
const uint kPitchOfSums = kOwn / 4 + 1;
// Rows of values: of the own tokens those of r, do and e, then of passing ones e, or r and do.
const uint kSlopes = 0, kOutputs = kOwn, kErrors = 2 * kOwn, kPassing = 3 * kOwn, kPassingOutputs = 4 * kOwn;

shared vec4 rows[5 * kOwn * kPitch];  // or what is summed over channels
shared float sums[kThreads];
shared vec4 pairs[kChunk * kOwn / 4];    // P, by the interval's token, then the own one
shared vec4 outputs[kChunk * kOwn / 4];  // Q
shared int begins[kChunk];               // of the token's sequence; -1: padding
shared vec2 factors[kChunk];             // of key and query
shared float gates[kChunk];
shared float betas[kChunk];
shared vec2 parts[kChunk];   // sums of g within eights
shared vec2 totals[kChunk];  // G, in two numbers, so that differences are exact enough
shared float kept[kOwn];     // exp(G_i), or 0 without S
shared float left[kOwn];     // exp(G - G_i), or 0 without L

vec2 add_exactly(vec2 a, float b) {
  precise float sum = a.x + b;
  precise float part = sum - a.x;
  precise float lost = (a.x - (sum - part)) + (b - part);
  return vec2(sum, a.y + lost);
}

vec4 load_row(uint64_t from, uint dtype, uint first, uint columns) {
  if (kStep == 4) return columns > 0 ? widened_raw(dtype, 4, load_raw(from, dtype, 4, first)) : vec4(0.0);
  vec4 value = vec4(0.0);
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    if (j < columns) value[j] = load(from, dtype, first + j);
  }
  return value;
}

/// Sums over all channels, of each own token; an invocation gets that of token invocation() % kOwn.
float sum_over_channels(float values[kOwn]) {
  const uint me = invocation();
  [[unroll]] for (uint i = 0; i < kOwn / 4; ++i) {
    rows[me * kPitchOfSums + i] = vec4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]);
  }
  barrier();
  const uint token = me % kOwn;
  float sum = 0.0;
  for (uint d = me / kOwn * kOwn; d < (me / kOwn + 1) * kOwn; ++d) sum += rows[d * kPitchOfSums + token / 4][token % 4];
  sums[me] = sum;
  barrier();
  sum = 0.0;
  for (uint part = 0; part < kThreads / kOwn; ++part) sum += sums[part * kOwn + token];
  barrier();
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
  const uint heads = push.sizes[1];
  const uint key_heads = push.sizes[2];
  const uint size = push.sizes[3];
  const uint width = push.sizes[4];
  const uint range_first = push.sizes[5];
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
  const bool channel = me < size;
  if (own_first >= real) {
    for (uint token = own_first; token < min(own_first + kOwn, push.sizes[6]); ++token) {
      if (channel) {
        store(address(8), kType, (token * key_heads + key_head) * size + me, 0.0);
        store(address(9), kType, (token * key_heads + key_head) * size + me, 0.0);
      }
      for (uint h = me; h < group; h += kThreads) Floats(address(10)).v[token * heads + key_head * group + h] = 0.0;
    }
    return;
  }
  const uint count = min(kChunk, real - chunk_first);
  if (me < kChunk) {
    const bool there = me < count;
    const uint token = chunk_first + me;
    begins[me] = there ? bounds.v[1 + sequence_of(bounds, int(token))] : -1;
    const uint at = push.sizes[11] + ((token - range_first) * key_heads + key_head) * 2;
    factors[me] = there ? vec2(Floats(scratch).v[at], Floats(scratch).v[at + 1]) : vec2(0.0);
  }
  barrier();
  // Which sequence goes on behind the interval.
  int open = -2;
  if (chunk_first + kChunk < real) {
    const int next = int(chunk_first + kChunk);
    const int begin = bounds.v[1 + sequence_of(bounds, next)];
    if (begin < next) open = begin;
  }
  const uint own_count = min(kOwn, real - own_first);
  const bool has_before = begins[own_tile * kOwn] < int(chunk_first);
  const bool has_behind = begins[own_tile * kOwn + own_count - 1] == open;
  const bool whole = begins[0] == open && begins[0] < int(chunk_first);
  float query_sums[kOwn];
  float key_sums[kOwn];
  [[unroll]] for (uint i = 0; i < kOwn; ++i) {
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
    [[unroll]] for (uint i = 0; i < kChunk * kOwn / 4; i += kThreads) {
      pairs[i + me] = vec4(0.0);
      outputs[i + me] = vec4(0.0);
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
    float later[kOwn];
    float earlier[kOwn];
    float slopes[kOwn];  // ds
    [[unroll]] for (uint i = 0; i < kOwn; ++i) {
      later[i] = 0.0;
      earlier[i] = 0.0;
      slopes[i] = 0.0;
    }
    float inner = 0.0;  // a channel's part of <L, S>
    const uint row_of_state = (head * size + me) * width;
    const uint64_t before = address(4) + uint64_t(chunk_first / kChunk * heads * size) * uint64_t(width) * 4ul;
    const uint64_t behind =
        scratch + 4ul * (push.sizes[10] + uint64_t((chunk_first / kChunk + 1) % push.sizes[8]) * heads * size * width);
    for (uint column = 0; column < width; column += 4 * kFoursOfTurn) {
      barrier();
      {
        const uint row = me / kFoursOfTurn;
        const uint own_column = column + 4 * (me % kFoursOfTurn);
        const uint columns = own_column < width && row < own_count ? width - own_column : 0;
        const uint token = own_first + min(row, own_count - 1);
        const uint at = ((token - range_first) * heads + head) * width + own_column;
        rows[(kSlopes + row) * kPitch + me % kFoursOfTurn] = load_row(scratch, kFloat32, push.sizes[9] + at, columns);
        rows[(kOutputs + row) * kPitch + me % kFoursOfTurn] =
            load_row(address(6), kType, (token * heads + head) * width + own_column, columns);
        rows[(kErrors + row) * kPitch + me % kFoursOfTurn] = load_row(scratch, kFloat32, at, columns);
      }
      barrier();
      if (channel && (has_before || has_behind)) {
        for (uint four = 0; four < kFoursOfTurn && column + 4 * four < width; ++four) {
          const uint at = row_of_state + column + 4 * four;
          const uint columns = width - column - 4 * four;
          const vec4 s = has_before ? load_row(before, kFloat32, at, columns) : vec4(0.0);
          const vec4 l = has_behind ? load_row(behind, kFloat32, at, columns) : vec4(0.0);
          inner += dot(s, l);
          [[unroll]] for (uint i = 0; i < kOwn; ++i) {
            later[i] += dot(s, rows[(kSlopes + i) * kPitch + four]);
            slopes[i] += dot(s, rows[(kOutputs + i) * kPitch + four]);
            earlier[i] += dot(l, rows[(kErrors + i) * kPitch + four]);
          }
        }
      }
      for (uint tile = 0; tile * kOwn < count; ++tile) {
        if (tile != own_tile) {
          barrier();
          const uint row = me / kFoursOfTurn;
          const uint own_column = column + 4 * (me % kFoursOfTurn);
          const bool there = own_column < width && tile * kOwn + row < count;
          const uint columns = there ? width - own_column : 0;
          const uint token = chunk_first + (there ? tile * kOwn + row : 0);
          const uint at = ((token - range_first) * heads + head) * width + own_column;
          rows[(kPassing + row) * kPitch + me % kFoursOfTurn] =
              load_row(scratch, kFloat32, (tile < own_tile ? 0 : push.sizes[9]) + at, columns);
          if (tile > own_tile) {
            rows[(kPassingOutputs + row) * kPitch + me % kFoursOfTurn] =
                load_row(address(6), kType, (token * heads + head) * width + own_column, columns);
          }
          barrier();
        }
        for (uint other = me / kOwn; other < kOwn; other += kThreads / kOwn) {
          const uint own = me % kOwn;
          const uvec2 of = rows_of_pair(own, other, tile, own_tile) * kPitch;
          float pair = 0.0;
          float of_output = 0.0;
          [[unroll]] for (uint four = 0; four < kFoursOfTurn; ++four) {
            const vec4 error = rows[of.y + four];
            pair += dot(rows[of.x + four], error);
            of_output += dot(rows[of.x + kOwn * kPitch + four], error);
          }
          pairs[(tile * kOwn + other) * kOwn / 4 + own / 4][own % 4] += pair;
          outputs[(tile * kOwn + other) * kOwn / 4 + own / 4][own % 4] += of_output;
        }
      }
    }
    barrier();
    {
      const uint own = own_tile * kOwn + me % kOwn;  // in the interval
      const uint i = me % kOwn;
      for (uint other = me / kOwn; other < kChunk; other += kThreads / kOwn) {
        const uint at = other * kOwn / 4 + i / 4;
        if (own == other && own < count) Floats(address(10)).v[(chunk_first + own) * heads + head] = pairs[at][i % 4];
        const uint last = max(own, other);
        const uint first = min(own, other);
        const bool meet = last < count && begins[own] == begins[other];
        const vec2 apart = totals[last] - totals[first];
        const float factor = meet ? betas[first] * exact_exp(apart.x + apart.y) : 0.0;
        const float pair = pairs[at][i % 4];
        const float of_output = outputs[at][i % 4];
        pairs[at][i % 4] = meet && own != other ? -betas[last] * factor * pair : 0.0;
        outputs[at][i % 4] = meet ? factor * of_output : 0.0;
      }
      if (me < kOwn) {
        const bool goes = own < count && begins[own] < int(chunk_first);
        kept[me] = goes ? exact_exp(totals[own].x + totals[own].y) : 0.0;
      } else if (me < 2 * kOwn) {
        const bool goes = own < count && begins[own] == open;
        const vec2 apart = totals[kChunk - 1] - totals[own];
        left[me - kOwn] = goes ? exact_exp(apart.x + apart.y) * betas[own] : 0.0;
      }
    }
    barrier();
    const uint channel_row = key_head * size + min(me, size - 1);
    float terms[kOwn];
    [[unroll]] for (uint i = 0; i < kOwn; ++i) {
      const uint token = own_first + min(i, own_count - 1);
      later[i] *= -betas[own_tile * kOwn + i] * kept[i];
      slopes[i] *= kept[i];
      earlier[i] *= left[i];
      const float unit = load(keys, kType, token * key_heads * size + channel_row) * factors[own_tile * kOwn + i].x;
      terms[i] = channel ? unit * earlier[i] : 0.0;
    }
    const float last_sum = sum_over_channels(terms);
    for (uint j = 0; j < count; ++j) {
      const uint at = (chunk_first + j) * key_heads * size + channel_row;
      const float unit = load(keys, kType, at) * factors[j].x;
      if (j < own_tile * kOwn) {
        [[unroll]] for (uint i = 0; i < kOwn; ++i) {
          later[i] += pairs[j * kOwn / 4 + i / 4][i % 4] * unit;
          slopes[i] += outputs[j * kOwn / 4 + i / 4][i % 4] * unit;
        }
        continue;
      }
      const float query = load(queries, kType, at) * factors[j].y;
      if (j >= (own_tile + 1) * kOwn) {
        [[unroll]] for (uint i = 0; i < kOwn; ++i) {
          earlier[i] += pairs[j * kOwn / 4 + i / 4][i % 4] * unit + outputs[j * kOwn / 4 + i / 4][i % 4] * query;
        }
        continue;
      }
      [[unroll]] for (uint i = 0; i < kOwn; ++i) {
        const float pair = pairs[j * kOwn / 4 + i / 4][i % 4];
        const float of_output = outputs[j * kOwn / 4 + i / 4][i % 4];
        const uint own = own_tile * kOwn + i;
        later[i] += j < own ? pair * unit : 0.0;
        slopes[i] += j <= own ? of_output * unit : 0.0;
        earlier[i] += j >= own ? pair * unit + of_output * query : 0.0;
      }
    }
    [[unroll]] for (uint i = 0; i < kOwn; ++i) {
      const uint token = own_first + min(i, own_count - 1);
      const uint at = token * key_heads * size + channel_row;
      const float unit = load(keys, kType, at) * factors[own_tile * kOwn + i].x;
      const float query = load(queries, kType, at) * factors[own_tile * kOwn + i].y;
      terms[i] = channel ? query * slopes[i] + unit * (later[i] - earlier[i]) : 0.0;
      query_sums[i] += slopes[i];
      key_sums[i] += later[i] + earlier[i];
    }
    const float gate_sum = sum_over_channels(terms);
    const uint tokens = push.sizes[6] - range_first;
    if (me < own_count) {
      const uint at = push.sizes[12] + (own_first - range_first + me) * heads + head;
      Floats(scratch).v[at] = gate_sum;
      Floats(scratch).v[at + tokens * heads] = last_sum;
    }
    if (whole && own_tile == 0) {
      [[unroll]] for (uint i = 0; i < kOwn; ++i) terms[i] = i == 0 && channel ? inner : 0.0;
      const float product = sum_over_channels(terms);
      const uint at = push.sizes[12] + (2 * tokens + (chunk_first - range_first) / kChunk) * heads + head;
      if (me == 0) Floats(scratch).v[at] = product;
    }
  }
  // From unit rows to rows: what lies along them has no effect.
  const uint channel_row = key_head * size + min(me, size - 1);
  float units[kOwn];
  float terms[kOwn];
  [[unroll]] for (uint kind = 0; kind < 2; ++kind) {
    [[unroll]] for (uint i = 0; i < kOwn; ++i) {
      const uint at = (own_first + min(i, own_count - 1)) * key_heads * size + channel_row;
      // That of a query has a factor 1 / sqrt(D), as its gradient does.
      const float factor = factors[own_tile * kOwn + i][kind];
      units[i] = load(kind == 0 ? keys : queries, kType, at) * factor;
      terms[i] = channel ? units[i] * (kind == 0 ? key_sums[i] : query_sums[i]) : 0.0;
    }
    const float along = sum_over_channels(terms);
    if (me < kOwn) kept[me] = along;
    barrier();
    const float scale = kind == 0 ? 1.0 : push.factors[1];  // sqrt(D)^2
    [[unroll]] for (uint i = 0; i < kOwn; ++i) {
      const uint token = own_first + i;
      const float factor = factors[own_tile * kOwn + i][kind];
      const float slope = factor * ((kind == 0 ? key_sums[i] : query_sums[i]) - units[i] * (scale * kept[i]));
      if (channel && token < push.sizes[6]) {
        store(kind == 0 ? address(9) : address(8), kType, token * key_heads * size + channel_row,
              i < own_count ? slope : 0.0);
      }
    }
    barrier();
  }
  if (own_count == kOwn) return;
  for (uint token = own_first + own_count; token < min(own_first + kOwn, push.sizes[6]); ++token) {
    for (uint h = me; h < group; h += kThreads) Floats(address(10)).v[token * heads + key_head * group + h] = 0.0;
  }
}
