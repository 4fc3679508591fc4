// Causal attention within sequences, its gradient, and attention to a cache.
//
// Query head h reads key head h / (H / Hkv). A query at position i of its sequence sees the keys i - window + 1 ... i.
// A score is scale q . k, with a cap cap * tanh(scale q . k / cap).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "values.h"

namespace rondo::devices::reference {
namespace {

/// Where the heads of a token lie.
struct Heads {
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t size;

  std::int64_t query(std::int64_t token, std::int64_t head) const { return (token * heads + head) * size; }
  std::int64_t key(std::int64_t token, std::int64_t head) const {
    return (token * kv_heads + head / (heads / kv_heads)) * size;
  }
};

Heads heads_of(const Values& q, const Values& k) { return {q.extent(1), k.extent(1), q.extent(2)}; }

double dot(const Values& a, std::int64_t from_a, const Values& b, std::int64_t from_b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t d = 0; d < n; ++d) sum += a[from_a + d] * b[from_b + d];
  return sum;
}

/// First of the keys first ... last that a query at `last` sees.
std::int64_t first_seen(std::int64_t first, std::int64_t last, std::uint32_t window) {
  return window == 0 ? first : std::max(first, last - static_cast<std::int64_t>(window) + 1);
}

/// A score, and its slope along scale q . k.
struct Score {
  double value;
  double slope;
};

Score score_of(const AttentionAttributes& attributes, double product) {
  const double score = static_cast<double>(attributes.scale) * product;
  if (attributes.cap == 0.0F) return {score, 1.0};
  const auto cap = static_cast<double>(attributes.cap);
  const double part = std::tanh(score / cap);
  return {cap * part, 1.0 - part * part};
}

/// Writes the output of one query row over keys first ... last and returns log(sum(e^score)).
double attend(const Values& q, std::int64_t query, const Values& k, const Values& v, const Heads& heads,
              std::int64_t head, std::int64_t first, std::int64_t last, const AttentionAttributes& attributes,
              Values& o) {
  std::vector<double> scores;
  for (std::int64_t j = first; j <= last; ++j) {
    scores.push_back(score_of(attributes, dot(q, query, k, heads.key(j, head), heads.size)).value);
  }
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (const double score : scores) total += std::exp(score - maximum);
  for (std::int64_t d = 0; d < heads.size; ++d) {
    double sum = 0;
    for (std::int64_t j = first; j <= last; ++j) {
      sum += std::exp(scores[static_cast<std::size_t>(j - first)] - maximum) * v[heads.key(j, head) + d];
    }
    o.set(query + d, sum / total);
  }
  return maximum + std::log(total);
}

}  // namespace

void attention(const Call& call) {
  const auto& attributes = call.attributes<AttentionAttributes>();
  const Values q = call.in(0);
  const Values k = call.in(1);
  const Values v = call.in(2);
  const Sequences sequences(call.in(3));
  Values o = call.out(0);
  Values lse = call.out(1);
  const Heads heads = heads_of(q, k);
  o.fill(0);
  lse.fill(0);
  for (std::int64_t s = 0; s < sequences.count(); ++s) {
    for (std::int64_t t = sequences.begin(s); t < sequences.end(s); ++t) {
      const std::int64_t first = first_seen(sequences.begin(s), t, attributes.window);
      for (std::int64_t h = 0; h < heads.heads; ++h) {
        lse.set(t * heads.heads + h, attend(q, heads.query(t, h), k, v, heads, h, first, t, attributes, o));
      }
    }
  }
}

/// p = e^(score - lse); dv = p do; dscore = p (do . v - do . o) slope; dq = scale dscore k; dk = scale dscore q.
void attention_backward(const Call& call) {
  const auto& attributes = call.attributes<AttentionAttributes>();
  const Values q = call.in(0), k = call.in(1), v = call.in(2), o = call.in(3), lse = call.in(4), d_o = call.in(5);
  const Sequences sequences(call.in(6));
  const Heads heads = heads_of(q, k);
  const auto scale = static_cast<double>(attributes.scale);
  std::vector<double> dq(static_cast<std::size_t>(q.size()));
  std::vector<double> dk(static_cast<std::size_t>(k.size()));
  std::vector<double> dv(static_cast<std::size_t>(v.size()));
  const auto pair = [&](std::int64_t t, std::int64_t h, std::int64_t j, double delta) {
    const std::int64_t query = heads.query(t, h);
    const std::int64_t key = heads.key(j, h);
    const Score score = score_of(attributes, dot(q, query, k, key, heads.size));
    const double p = std::exp(score.value - lse[t * heads.heads + h]);
    const double dscore = scale * p * (dot(d_o, query, v, key, heads.size) - delta) * score.slope;
    for (std::int64_t d = 0; d < heads.size; ++d) {
      dq[static_cast<std::size_t>(query + d)] += dscore * k[key + d];
      dk[static_cast<std::size_t>(key + d)] += dscore * q[query + d];
      dv[static_cast<std::size_t>(key + d)] += p * d_o[query + d];
    }
  };
  for (std::int64_t s = 0; s < sequences.count(); ++s) {
    for (std::int64_t t = sequences.begin(s); t < sequences.end(s); ++t) {
      for (std::int64_t h = 0; h < heads.heads; ++h) {
        const double delta = dot(d_o, heads.query(t, h), o, heads.query(t, h), heads.size);
        for (std::int64_t j = first_seen(sequences.begin(s), t, attributes.window); j <= t; ++j) pair(t, h, j, delta);
      }
    }
  }
  const auto store = [](const std::vector<double>& from, Values to) {
    for (std::size_t i = 0; i < from.size(); ++i) to.set(static_cast<std::int64_t>(i), from[i]);
  };
  store(dq, call.out(0));
  store(dk, call.out(1));
  store(dv, call.out(2));
}

void cached_attention(const Call& call) {
  const auto& attributes = call.attributes<AttentionAttributes>();
  const Values q = call.in(0), k = call.in(1), v = call.in(2);
  const std::int32_t* positions = call.in(3).integers();
  const std::int64_t real = Sequences(call.in(4)).real_tokens();
  Values k_cache = call.in(5);
  Values v_cache = call.in(6);
  Values o = call.out(0);
  Values lse = call.out(1);
  const Heads heads = heads_of(q, k);
  const std::int64_t row = heads.kv_heads * heads.size;
  o.fill(0);
  lse.fill(0);
  for (std::int64_t t = 0; t < real; ++t) {
    for (std::int64_t i = 0; i < row; ++i) {
      k_cache.set(positions[t] * row + i, k[t * row + i]);
      v_cache.set(positions[t] * row + i, v[t * row + i]);
    }
  }
  for (std::int64_t t = 0; t < real; ++t) {
    const std::int64_t first = first_seen(0, positions[t], attributes.window);
    for (std::int64_t h = 0; h < heads.heads; ++h) {
      lse.set(t * heads.heads + h,
              attend(q, heads.query(t, h), k_cache, v_cache, heads, h, first, positions[t], attributes, o));
    }
  }
}

void attention_sink(const Call& call) {
  const Values o = call.in(0);
  const Values lse = call.in(1);
  const Values sinks = call.in(2);
  Values y = call.out(0);
  Values total = call.out(1);
  const std::int64_t size = o.extent(2);
  for (std::int64_t i = 0; i < lse.size(); ++i) {
    const double rest = std::exp(sinks[i % sinks.size()] - lse[i]);
    for (std::int64_t d = i * size; d < (i + 1) * size; ++d) y.set(d, o[d] / (1.0 + rest));
    total.set(i, lse[i] + std::log1p(rest));
  }
}

void attention_sink_gradient(const Call& call) {
  const Values o = call.in(0);
  const Values lse = call.in(1);
  const Values sinks = call.in(2);
  const Values d_o = call.in(3);
  Values dsinks = call.out(0);
  const std::int64_t size = o.extent(2);
  for (std::int64_t h = 0; h < sinks.size(); ++h) {
    double sum = 0;
    for (std::int64_t i = h; i < lse.size(); i += sinks.size()) {
      sum -= std::exp(sinks[h] - lse[i]) * dot(d_o, i * size, o, i * size, size);
    }
    dsinks.add(h, sum);
  }
}

namespace {

HeadsOfPart heads_in(const Call& call, TensorId whole, TensorId part) {
  return heads_of_part(call.list.tensors[whole].shape, call.list.tensors[part].shape);
}

}  // namespace

void join_heads(const Call& call) {
  Values y = call.out(0);
  y.fill(0);
  const HeadsOfPart all = heads_in(call, call.op.writes[0], call.op.writes[0]);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < call.op.reads.size(); ++i) {
    const Values part = call.in(i);
    const auto [heads, width] = heads_in(call, call.op.writes[0], call.op.reads[i]);
    for (std::int64_t row = 0; row < y.extent(0) * all.heads; ++row) {
      const std::int64_t from = heads == 1 ? row / all.heads : row;
      for (std::int64_t c = 0; c < width && first + c < all.width; ++c) {
        y.set(row * all.width + first + c, part[from * width + c]);
      }
    }
    first += width;
  }
}

void join_heads_backward(const Call& call) {
  const Values dy = call.in(0);
  const HeadsOfPart all = heads_in(call, call.op.reads[0], call.op.reads[0]);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < call.op.writes.size(); ++i) {
    Values part = call.out(i);
    const auto [heads, width] = heads_in(call, call.op.reads[0], call.op.writes[i]);
    const std::int64_t shared = all.heads / heads;  // heads that have one row of it
    for (std::int64_t at = 0; at < part.size(); ++at) {
      const std::int64_t column = first + at % width;
      double sum = 0;
      for (std::int64_t h = 0; h < shared && column < all.width; ++h) {
        sum += dy[(at / width * shared + h) * all.width + column];
      }
      part.set(at, sum);
    }
    first += width;
  }
}

}  // namespace rondo::devices::reference
