// The gated delta rule, state spaces and their gradient against fp64 token by token, on every instruction set.
#include "kernels/delta.h"

#include <algorithm>
#include <tuple>

#include "support.h"

namespace rondo::devices::cpu::testing {
namespace {

using Doubles = std::vector<double>;

struct DeltaCase {
  std::vector<std::int32_t> sequences;
  DeltaShape shape;
  double decay = 0.5;  // mean of -g
};

/// Sizes that fill panels and vectors, and that do not (of keys never one: all their gradient would be what cancels);
/// sequences shorter than a piece, and over several checkpoints.
std::vector<DeltaCase> delta_cases() {
  return {{{1}, {1, 1, 1, 2, 1}},
          {{5, 16, 17}, {41, 2, 2, 6, 13}},
          {{63, 70, 3}, {140, 1, 3, 13, 6}},
          {{150, 20}, {180, 1, 2, 17, 33}, 0.01},
          {{100}, {104, 1, 1, 33, 65}, 20.0},
          {{81}, {81, 1, 1, 128, 128}, 0.1},
          {{5, 16, 17}, {41, 2, 4, 6, 13, true}},
          {{63, 70, 3}, {140, 1, 37, 13, 6, true}},  // more heads than a task takes
          {{150, 20}, {180, 1, 2, 17, 33, true}, 0.01},
          {{81}, {81, 1, 18, 128, 64, true}, 0.1}};
}

struct DeltaInputs {
  DeltaInputs(const DeltaCase& of, Storage storage)
      : q(random_array(storage, of.shape.tokens * of.shape.key_heads * of.shape.size, 1)),
        k(random_array(storage, of.shape.tokens * of.shape.key_heads * of.shape.size, 2)),
        v(random_array(storage, of.shape.tokens * of.shape.heads * of.shape.width, 3)),
        d_o(random_array(storage, of.shape.tokens * of.shape.heads * of.shape.width, 4)),
        g(random_values(static_cast<std::size_t>(of.shape.tokens * of.shape.heads), 5)),
        beta(random_values(g.size(), 6)),
        batch(batch_of(of.sequences, static_cast<std::size_t>(of.shape.tokens))) {
    for (float& x : g) x = -static_cast<float>(of.decay) * x * x;
    for (float& x : beta) x = 1.0F / (1.0F + std::exp(-x));
  }
  DeltaOperands operands() const { return {q.data(), k.data(), v.data(), g.data(), beta.data(), batch.bounds.data()}; }
  Array q, k, v, d_o;
  std::vector<float> g, beta;
  Batch batch;
};

struct DeltaReference {
  Doubles o, checkpoints, dq, dk, dv, dg, dbeta, state;
};

/// A row of length one times `scale`, or where it is `plain` the row itself.
struct UnitRow {
  UnitRow(const Array& x, std::size_t at, std::size_t size, double scale, bool is_plain)
      : factor(is_plain ? 1.0 : scale), plain(is_plain) {
    double squares = 1e-6;
    for (std::size_t i = 0; i < size; ++i) squares += x[at + i] * x[at + i];
    inverse = plain ? 1.0 : 1.0 / std::sqrt(squares);
    for (std::size_t i = 0; i < size; ++i) row.push_back(x[at + i] * inverse * factor);
  }
  /// Adds the gradient of x, given that of the row.
  void add_gradient(const Doubles& drow, Doubles& dx, std::size_t at) const {
    double along = 0;
    for (std::size_t i = 0; i < row.size() && !plain; ++i) along += row[i] / factor * drow[i];
    for (std::size_t i = 0; i < row.size(); ++i) {
      dx[at + i] += inverse * factor * (drow[i] - row[i] / factor * along);
    }
  }
  Doubles row;
  double inverse = 0;
  double factor;
  bool plain;
};

class Recurrence {
 public:
  Recurrence(const DeltaCase& of, const DeltaInputs& in, std::size_t head)
      : in_(in),
        heads_(static_cast<std::size_t>(of.shape.heads)),
        key_heads_(static_cast<std::size_t>(of.shape.key_heads)),
        size_(static_cast<std::size_t>(of.shape.size)),
        width_(static_cast<std::size_t>(of.shape.width)),
        head_(head),
        state_space_(of.shape.state_space) {}

  void run(std::size_t begin, std::size_t end, DeltaReference& out) const {
    Doubles state(size_ * width_);
    std::vector<Doubles> before;
    for (std::size_t t = begin; t < end; ++t) {
      if (t % kDeltaChunk == 0) std::copy(state.begin(), state.end(), checkpoint(out, t));
      before.push_back(state);
      forward(t, state, out);
    }
    std::copy(state.begin(), state.end(), out.state.begin() + static_cast<std::ptrdiff_t>(head_ * state.size()));
    Doubles slope(state.size());
    for (std::size_t t = end; t-- > begin;) backward(t, before[t - begin], slope, out);
  }

 private:
  Doubles::iterator checkpoint(DeltaReference& out, std::size_t t) const {
    return out.checkpoints.begin() + static_cast<std::ptrdiff_t>((t / kDeltaChunk * heads_ + head_) * size_ * width_);
  }
  std::size_t key_at(std::size_t t) const { return (t * key_heads_ + head_ / (heads_ / key_heads_)) * size_; }
  std::size_t gate_at(std::size_t t) const { return t * heads_ + head_; }
  UnitRow key(std::size_t t) const { return {in_.k, key_at(t), size_, 1.0, state_space_}; }
  UnitRow query(std::size_t t) const {
    return {in_.q, key_at(t), size_, 1.0 / std::sqrt(static_cast<double>(size_)), state_space_};
  }
  double keep(std::size_t t) const { return std::exp(static_cast<double>(in_.g[gate_at(t)])); }
  double beta(std::size_t t) const { return static_cast<double>(in_.beta[gate_at(t)]); }
  Doubles errors(std::size_t t, const Doubles& decayed) const {
    const UnitRow k = key(t);
    Doubles error;
    for (std::size_t j = 0; j < width_; ++j) {
      double known = 0;
      for (std::size_t i = 0; i < size_ && !state_space_; ++i) known += decayed[i * width_ + j] * k.row[i];
      error.push_back(in_.v[gate_at(t) * width_ + j] - known);
    }
    return error;
  }

  void forward(std::size_t t, Doubles& state, DeltaReference& out) const {
    for (double& s : state) s *= keep(t);
    const Doubles error = errors(t, state);
    const UnitRow k = key(t);
    const UnitRow q = query(t);
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < width_; ++j) {
        state[i * width_ + j] += k.row[i] * beta(t) * error[j];
        out.o[gate_at(t) * width_ + j] += q.row[i] * state[i * width_ + j];
      }
    }
  }

  void backward(std::size_t t, const Doubles& before, Doubles& slope, DeltaReference& out) const {
    Doubles decayed = before;
    for (double& s : decayed) s *= keep(t);
    const Doubles error = errors(t, decayed);
    const UnitRow k = key(t);
    const UnitRow q = query(t);
    Doubles dkey(size_), dquery(size_), dwritten(width_);
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < width_; ++j) {
        const double d = in_.d_o[gate_at(t) * width_ + j];
        dquery[i] += d * (decayed[i * width_ + j] + k.row[i] * beta(t) * error[j]);
        slope[i * width_ + j] += d * q.row[i];
        dwritten[j] += slope[i * width_ + j] * k.row[i];
        dkey[i] += slope[i * width_ + j] * beta(t) * error[j];
      }
    }
    for (std::size_t j = 0; j < width_; ++j) {
      out.dbeta[gate_at(t)] += dwritten[j] * error[j];
      out.dv[gate_at(t) * width_ + j] = beta(t) * dwritten[j];
    }
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < width_; ++j) {
        const std::size_t at = i * width_ + j;
        const double derror = state_space_ ? 0.0 : beta(t) * dwritten[j];
        dkey[i] -= derror * decayed[at];
        slope[at] -= derror * k.row[i];
        out.dg[gate_at(t)] += slope[at] * decayed[at];
        slope[at] *= keep(t);
      }
    }
    q.add_gradient(dquery, out.dq, key_at(t));
    k.add_gradient(dkey, out.dk, key_at(t));
  }

  const DeltaInputs& in_;
  const std::size_t heads_, key_heads_, size_, width_, head_;
  const bool state_space_;
};

DeltaReference reference(const DeltaCase& of, const DeltaInputs& in) {
  const auto states = static_cast<std::size_t>(of.shape.heads * of.shape.size * of.shape.width);
  const auto chunks = static_cast<std::size_t>((of.shape.tokens + kDeltaChunk - 1) / kDeltaChunk);
  DeltaReference out{Doubles(in.v.size()), Doubles(chunks * states), Doubles(in.q.size()), Doubles(in.k.size()),
                     Doubles(in.v.size()), Doubles(in.g.size()),     Doubles(in.g.size()), Doubles(states)};
  std::size_t first = 0;
  for (const std::int32_t length : of.sequences) {
    const std::size_t end = first + static_cast<std::size_t>(length);
    for (std::size_t head = 0; head < static_cast<std::size_t>(of.shape.heads); ++head) {
      Recurrence(of, in, head).run(first, end, out);
    }
    first = end;
  }
  return out;
}

double rms(const Doubles& x) {
  double squares = 0;
  for (const double element : x) squares += element * element;
  return std::sqrt(squares / static_cast<double>(x.size()));
}

/// Within a few dozen roundings of a number as large as they are on the whole.
void expect_near(const Array& got, const Doubles& want, Storage storage, const std::string& what) {
  expect_close(got, want, storage, 1e-6, 2e-5 * std::max(rms(want), 1e-3), what);
}
void expect_near(const std::vector<float>& got, const Doubles& want, const std::string& what) {
  expect_near(Array(Storage::kFloat32, got), want, Storage::kFloat32, what);
}

/// Scratch is full of NaNs: what was not written must not be read.
std::vector<float> dirty(std::size_t bytes) { return std::vector<float>(bytes / 4 + 1, std::nanf("")); }
std::byte* bytes_of(std::vector<float>& scratch) { return reinterpret_cast<std::byte*>(scratch.data()); }

TEST(DeltaRule, Forward_AgreesWithDouble) {
  for_each_storage([](Storage storage) {
    for (const DeltaCase& of : delta_cases()) {
      SCOPED_TRACE("size " + std::to_string(of.shape.size));
      const DeltaInputs in(of, storage);
      const DeltaReference want = reference(of, in);
      Array o(storage, in.v.size());
      std::vector<float> checkpoints(want.checkpoints.size(), 7.0F);
      std::vector<float> scratch = dirty(delta_rule_scratch(of.shape, 2));
      ThreadPool pool(2);
      delta_rule(pool, storage, of.shape, in.operands(), o.data(), checkpoints.data(), bytes_of(scratch));
      expect_near(o, want.o, storage, "o");
      expect_near(checkpoints, want.checkpoints, "checkpoints");
    }
  });
}

TEST(DeltaRuleBackward, Gradients_AgreeWithDouble) {
  for_each_storage([](Storage storage) {
    for (const DeltaCase& of : delta_cases()) {
      SCOPED_TRACE("size " + std::to_string(of.shape.size));
      const DeltaInputs in(of, storage);
      const DeltaReference want = reference(of, in);
      const std::vector<float> checkpoints(want.checkpoints.begin(), want.checkpoints.end());
      Array dq(storage, in.q.size()), dk(storage, in.k.size()), dv(storage, in.v.size());
      std::vector<float> dg(in.g.size(), 7.0F), dbeta(in.g.size(), 7.0F);
      std::vector<float> scratch = dirty(delta_rule_backward_scratch(of.shape, 2));
      ThreadPool pool(2);
      delta_rule_backward(pool, storage, of.shape, in.operands(), checkpoints.data(), in.d_o.data(),
                          {dq.data(), dk.data(), dv.data(), dg.data(), dbeta.data()}, bytes_of(scratch));
      expect_near(dq, want.dq, storage, "dq");
      expect_near(dk, want.dk, storage, "dk");
      expect_near(dv, want.dv, storage, "dv");
      expect_near(dg, want.dg, "dg");
      expect_near(dbeta, want.dbeta, "dbeta");
    }
  });
}

/// A sequence in parts, token by token and piece by piece, is as the sequence whole.
TEST(DeltaRule, FromAState_GoesOn) {
  for_each_storage([](Storage storage) {
    for (const auto& [size, width, state_space] :
         {std::tuple<std::int64_t, std::int64_t, bool>{13, 6, false}, {16, 75, false}, {13, 6, true}, {16, 75, true}}) {
      const DeltaCase whole{{48}, {48, 1, 2, size, width, state_space}};
      const DeltaInputs in(whole, storage);
      const DeltaReference want = reference(whole, in);
      std::vector<float> state(want.state.size(), std::nanf(""));  // of another sequence
      std::vector<float> o;
      std::vector<float> scratch = dirty(delta_rule_scratch(whole.shape, 2));
      ThreadPool pool(2);
      std::int32_t begin = 0;
      for (const std::int32_t count : {3, 1, 21, 2, 5, 16}) {
        const auto at = static_cast<std::size_t>(begin);
        const auto n = static_cast<std::size_t>(count);
        const auto of_keys = static_cast<std::size_t>(size), of_values = static_cast<std::size_t>(2 * width);
        const Array q = in.q.slice(at * of_keys, n * of_keys), k = in.k.slice(at * of_keys, n * of_keys);
        const Array v = in.v.slice(at * of_values, n * of_values);
        const Batch batch = batch_of({count}, n + 1);  // one token of padding, which nothing but o has room for
        Array part(storage, (n + 1) * of_values);
        delta_rule_from(
            pool, storage, {count + 1, 1, 2, size, width, state_space},
            {q.data(), k.data(), v.data(), in.g.data() + at * 2, in.beta.data() + at * 2, batch.bounds.data()}, &begin,
            state.data(), part.data(), bytes_of(scratch));
        for (std::size_t i = 0; i < n * of_values; ++i) o.push_back(static_cast<float>(part[i]));
        begin += count;
      }
      expect_near(Array(storage, o), want.o, storage, "o");
      expect_near(state, want.state, "state");
    }
  });
}

}  // namespace
}  // namespace rondo::devices::cpu::testing
