// Attention by plain loops in fp64, forward and backward, and the kernels called on the same arrays.
#pragma once

#include <algorithm>
#include <limits>

#include "support.h"

namespace rondo::devices::cpu::testing {

struct AttentionCase {
  AttentionShape shape;
  Batch batch;
  AttentionAttributes attributes;
};

inline AttentionCase attention_case(const std::vector<std::int32_t>& lengths, std::int64_t tokens, std::int64_t heads,
                                    std::int64_t kv_heads, std::int64_t head_dim, std::uint32_t window = 0) {
  return {{tokens, heads, kv_heads, head_dim},
          batch_of(lengths, static_cast<std::size_t>(tokens)),
          {1.0F / std::sqrt(static_cast<float>(head_dim)), window}};
}

struct AttentionInputs {
  Array q, k, v, d_o;
};

inline AttentionInputs attention_inputs(Storage storage, const AttentionShape& s) {
  return {random_array(storage, s.tokens * s.heads * s.head_dim, 1, 1.5F),
          random_array(storage, s.tokens * s.kv_heads * s.head_dim, 2),
          random_array(storage, s.tokens * s.kv_heads * s.head_dim, 3),
          random_array(storage, s.tokens * s.heads * s.head_dim, 4)};
}

struct AttentionForward {
  Array o, lse;
};

inline AttentionForward run_forward(ThreadPool& pool, Storage storage, const AttentionCase& c,
                                    const AttentionInputs& in, const TileUnits* units = nullptr) {
  AttentionForward out{random_array(storage, static_cast<std::int64_t>(in.q.size()), 77),
                       random_array(Storage::kFloat32, c.shape.tokens * c.shape.heads, 78)};
  std::vector<std::byte> scratch(attention_scratch(c.shape, units, pool.threads()), std::byte{0xFF});
  attention(pool, storage, units, c.shape, c.attributes, in.q.data(), in.k.data(), in.v.data(), c.batch.bounds.data(),
            out.o.data(), static_cast<float*>(out.lse.data()), scratch.data());
  return out;
}

struct AttentionGradients {
  Array dq, dk, dv;
};

inline AttentionGradients run_backward(ThreadPool& pool, Storage storage, const AttentionCase& c,
                                       const AttentionInputs& in, const AttentionForward& forward,
                                       const TileUnits* units = nullptr) {
  AttentionGradients out{random_array(storage, static_cast<std::int64_t>(in.q.size()), 79),
                         random_array(storage, static_cast<std::int64_t>(in.k.size()), 80),
                         random_array(storage, static_cast<std::int64_t>(in.v.size()), 81)};
  // All bits set: reading scratch before writing it gives NaN.
  std::vector<std::byte> scratch(attention_backward_scratch(c.shape, units, pool.threads()), std::byte{0xFF});
  attention_backward(pool, storage, units, c.shape, c.attributes, in.q.data(), in.k.data(), in.v.data(),
                     forward.o.data(), static_cast<const float*>(forward.lse.data()), in.d_o.data(),
                     c.batch.bounds.data(), out.dq.data(), out.dk.data(), out.dv.data(), scratch.data());
  return out;
}

/// Sums, and those of their terms' magnitudes.
struct Sums {
  explicit Sums(std::size_t n) : values(n), magnitudes(n) {}
  void add(std::size_t i, double term) {
    values[i] += term;
    magnitudes[i] += std::abs(term);
  }
  std::vector<double> values, magnitudes;
};

struct AttentionReference {
  Sums o;
  std::vector<double> lse;
  Sums dq, dk, dv;
};

/// One query of one head over the keys first ... token: its output row, and the gradients, which read the output as it
/// was stored.
inline void reference_query(const AttentionCase& c, const AttentionInputs& in, const Array& stored_o, std::size_t token,
                            std::size_t head, std::size_t first, AttentionReference& r) {
  const auto d = static_cast<std::size_t>(c.shape.head_dim);
  const auto heads = static_cast<std::size_t>(c.shape.heads);
  const auto kv_heads = static_cast<std::size_t>(c.shape.kv_heads);
  const std::size_t q_at = (token * heads + head) * d;
  const auto k_at = [&](std::size_t key) { return (key * kv_heads + head / (heads / kv_heads)) * d; };
  const auto scale = static_cast<double>(c.attributes.scale);
  std::vector<double> weights;
  double maximum = -std::numeric_limits<double>::infinity();
  for (std::size_t key = first; key <= token; ++key) {
    double dot = 0;
    for (std::size_t i = 0; i < d; ++i) dot += in.q[q_at + i] * in.k[k_at(key) + i];
    weights.push_back(dot * scale);
    maximum = std::max(maximum, weights.back());
  }
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - maximum);
  r.lse[token * heads + head] = maximum + std::log(sum);
  double delta = 0;
  for (std::size_t j = 0; j < weights.size(); ++j) {
    weights[j] /= sum;
    for (std::size_t i = 0; i < d; ++i) r.o.add(q_at + i, weights[j] * in.v[k_at(first + j) + i]);
  }
  for (std::size_t i = 0; i < d; ++i) delta += stored_o[q_at + i] * in.d_o[q_at + i];
  for (std::size_t j = 0; j < weights.size(); ++j) {
    const std::size_t at = k_at(first + j);
    double slope = 0;
    for (std::size_t i = 0; i < d; ++i) slope += in.d_o[q_at + i] * in.v[at + i];
    slope = weights[j] * (slope - delta) * scale;
    for (std::size_t i = 0; i < d; ++i) {
      r.dv.add(at + i, weights[j] * in.d_o[q_at + i]);
      r.dk.add(at + i, slope * in.q[q_at + i]);
      r.dq.add(q_at + i, slope * in.k[at + i]);
    }
  }
}

inline AttentionReference attention_reference(const AttentionCase& c, const AttentionInputs& in,
                                              const Array& stored_o) {
  AttentionReference r{Sums(in.q.size()), std::vector<double>(static_cast<std::size_t>(c.shape.tokens * c.shape.heads)),
                       Sums(in.q.size()), Sums(in.k.size()), Sums(in.v.size())};
  const auto count = static_cast<std::size_t>(c.batch.bounds[0]);
  for (std::size_t s = 0; s < count; ++s) {
    const auto begin = static_cast<std::size_t>(c.batch.bounds[1 + s]);
    const auto end = static_cast<std::size_t>(c.batch.bounds[2 + s]);
    for (std::size_t token = begin; token < end; ++token) {
      const std::size_t window = c.attributes.window == 0 ? token + 1 : c.attributes.window;
      const std::size_t first = std::max(begin, token + 1 - std::min(token + 1, window));
      for (std::size_t head = 0; head < static_cast<std::size_t>(c.shape.heads); ++head) {
        reference_query(c, in, stored_o, token, head, first, r);
      }
    }
  }
  return r;
}

/// What multiplies, and what is stored.
struct Arithmetic {
  Storage storage;
  const TileUnits* units;
};

/// Every arithmetic that this machine has, with each of its instruction sets.
inline void for_each_arithmetic(const std::function<void(Arithmetic)>& body) {
  for_each_storage([&](Storage storage) { body({storage, nullptr}); });
  for_each_target([&] {
    SCOPED_TRACE("tiles");
    body({Storage::kBfloat16, &tile_units_by_loops()});
    for (const TileUnits* units : units_of_the_processor()) body({Storage::kBfloat16, units});
  });
}

/// A sum in bf16 whose terms have a factor that was rounded to it, a weight or a score's gradient: 2^-8 of each at
/// most.
inline void expect_sums(const Array& got, const Sums& want, double relative, double absolute, const std::string& what) {
  ASSERT_EQ(got.size(), want.values.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double allowed = (relative + 0x1.0p-8) * std::abs(want.values[i]) + absolute + 0x1.0p-8 * want.magnitudes[i];
    ASSERT_LE(std::abs(got[i] - want.values[i]), allowed)
        << what << ": element " << i << " is " << got[i] << ", expected " << want.values[i];
  }
}

}  // namespace rondo::devices::cpu::testing
