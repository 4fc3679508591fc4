// Linear attention by the gated delta rule: a short convolution, the gates, and the recurrence with its gradient, token
// by token.
#include <algorithm>
#include <cmath>
#include <vector>

#include "values.h"

namespace rondo::devices::reference {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

/// What stands before the SiLU: of channel c the sum over the tokens that end with `token`, whose sequence begins at
/// `first`. `before(i, c)`: of the i-th token before that, i from 1.
template <typename Before>
double convolved(const Values& x, const Values& w, std::int64_t first, std::int64_t token, std::int64_t c,
                 const Before& before) {
  const std::int64_t width = w.extent(1);
  double sum = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    const std::int64_t from = token - width + 1 + i;
    sum += w[c * width + i] * (from >= first ? x[from * x.columns() + c] : before(first - from, c));
  }
  return sum;
}

double nothing(std::int64_t, std::int64_t) { return 0; }

/// Rows of `values` as they are now.
std::vector<double> copy_of(const Values& values) {
  std::vector<double> copy;
  for (std::int64_t i = 0; i < values.size(); ++i) copy.push_back(values[i]);
  return copy;
}

/// A row of heads of keys brought to length one, or of a state space as it is.
struct Unit {
  std::vector<double> row;
  double factor = 0;      // 1 / length, or 1
  bool is_scaled = true;  // not of a state space
};

/// Adds to `dx` at `at` what the gradient of a unit row makes of that of the row.
void add_unit_gradient(const Unit& unit, const std::vector<double>& dunit, std::vector<double>& dx, std::int64_t at) {
  double along = 0;
  for (std::size_t i = 0; i < dunit.size() && unit.is_scaled; ++i) along += unit.row[i] * dunit[i];
  for (std::size_t i = 0; i < dunit.size(); ++i) {
    dx[static_cast<std::size_t>(at) + i] += unit.factor * (dunit[i] - unit.row[i] * along);
  }
}

struct DeltaOperands {
  explicit DeltaOperands(const Call& call)
      : q(call.in(0)),
        k(call.in(1)),
        v(call.in(2)),
        g(call.in(3)),
        beta(call.in(4)),
        state_space(call.attributes<DeltaAttributes>().is_state_space()) {}

  std::int64_t heads() const { return v.extent(1); }
  std::int64_t size() const { return k.extent(2); }
  std::int64_t width() const { return v.extent(2); }
  std::int64_t state_size() const { return size() * width(); }
  std::int64_t key(std::int64_t t, std::int64_t h) const {
    return (t * k.extent(1) + h / (heads() / k.extent(1))) * size();
  }
  std::int64_t value(std::int64_t t, std::int64_t h) const { return (t * heads() + h) * width(); }
  /// What queries are times.
  double scale() const { return state_space ? 1.0 : 1.0 / std::sqrt(static_cast<double>(size())); }

  Unit unit_of(const Values& x, std::int64_t t, std::int64_t h) const {
    double squares = 1e-6;
    for (std::int64_t i = 0; i < size(); ++i) squares += x[key(t, h) + i] * x[key(t, h) + i];
    Unit unit{{}, state_space ? 1.0 : 1.0 / std::sqrt(squares), !state_space};
    for (std::int64_t i = 0; i < size(); ++i) unit.row.push_back(x[key(t, h) + i] * unit.factor);
    return unit;
  }

  const Values q, k, v, g, beta;
  const bool state_space;
};

/// The state of one head.
using State = std::vector<double>;

/// One token: what the state is once decayed, what is written to it, and what it is then.
struct Step {
  State decayed;
  std::vector<double> error;  // v - S^T k, or of a state space v
  State after;
};

Step step(const DeltaOperands& x, std::int64_t t, std::int64_t h, const State& before, const Unit& key) {
  const std::int64_t width = x.width();
  const double keep = std::exp(x.g[t * x.heads() + h]);
  const double beta = x.beta[t * x.heads() + h];
  Step result;
  for (const double s : before) result.decayed.push_back(keep * s);
  for (std::int64_t j = 0; j < width; ++j) {
    double known = 0;
    for (std::int64_t i = 0; i < x.size() && !x.state_space; ++i) {
      known += result.decayed[static_cast<std::size_t>(i * width + j)] * key.row[static_cast<std::size_t>(i)];
    }
    result.error.push_back(x.v[x.value(t, h) + j] - known);
  }
  result.after = result.decayed;
  for (std::size_t i = 0; i < result.after.size(); ++i) {
    const auto row = i / static_cast<std::size_t>(width);
    result.after[i] += key.row[row] * beta * result.error[i % static_cast<std::size_t>(width)];
  }
  return result;
}

void read_out(const DeltaOperands& x, std::int64_t t, std::int64_t h, const State& state, Values& o) {
  const Unit query = x.unit_of(x.q, t, h);
  const double scale = x.scale();
  for (std::int64_t j = 0; j < x.width(); ++j) {
    double sum = 0;
    for (std::int64_t i = 0; i < x.size(); ++i) {
      sum += state[static_cast<std::size_t>(i * x.width() + j)] * query.row[static_cast<std::size_t>(i)];
    }
    o.set(x.value(t, h) + j, scale * sum);
  }
}

void delta_rule_from(const Call& call, const DeltaOperands& x) {
  const Sequences sequences(call.in(5));
  const std::int32_t* positions = call.in(6).integers();
  Values states = call.in(7);
  Values o = call.out(0);
  o.fill(0);
  if (sequences.real_tokens() == 0) return;
  for (std::int64_t h = 0; h < x.heads(); ++h) {
    State state(static_cast<std::size_t>(x.state_size()), 0.0);
    const std::int64_t at = h * x.state_size();
    for (std::size_t i = 0; i < state.size() && positions[0] > 0; ++i) {
      state[i] = states[at + static_cast<std::int64_t>(i)];
    }
    for (std::int64_t t = 0; t < sequences.real_tokens(); ++t) {
      state = step(x, t, h, state, x.unit_of(x.k, t, h)).after;
      read_out(x, t, h, state, o);
    }
    for (std::size_t i = 0; i < state.size(); ++i) states.set(at + static_cast<std::int64_t>(i), state[i]);
  }
}

/// What the gradient of one head of one sequence has come to, from its last token on.
struct DeltaGradients {
  std::vector<double> dq, dk, dv, dg, dbeta;
};

void delta_token_gradient(const DeltaOperands& x, const Values& d_o, std::int64_t t, std::int64_t h,
                          const Step& forward, const Unit& key, State& dstate, DeltaGradients& out) {
  const auto width = static_cast<std::size_t>(x.width());
  const auto size = static_cast<std::size_t>(x.size());
  const auto gate = static_cast<std::size_t>(t * x.heads() + h);
  const double beta = x.beta[static_cast<std::int64_t>(gate)];
  const Unit query = x.unit_of(x.q, t, h);
  const double scale = x.scale();
  std::vector<double> dquery(size), dkey(size), dwritten(width);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < width; ++j) {
      const double d = d_o[x.value(t, h) + static_cast<std::int64_t>(j)];
      dquery[i] += scale * d * forward.after[i * width + j];
      dstate[i * width + j] += scale * d * query.row[i];
    }
  }
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < width; ++j) {
      dwritten[j] += dstate[i * width + j] * key.row[i];
      dkey[i] += dstate[i * width + j] * beta * forward.error[j];
    }
  }
  for (std::size_t j = 0; j < width; ++j) {
    out.dbeta[gate] += dwritten[j] * forward.error[j];
    out.dv[static_cast<std::size_t>(x.value(t, h)) + j] = beta * dwritten[j];
  }
  const double keep = std::exp(x.g[static_cast<std::int64_t>(gate)]);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < width; ++j) {
      const double derror = x.state_space ? 0.0 : beta * dwritten[j];
      dkey[i] -= derror * forward.decayed[i * width + j];
      dstate[i * width + j] -= derror * key.row[i];
      out.dg[gate] += dstate[i * width + j] * forward.decayed[i * width + j];
      dstate[i * width + j] *= keep;
    }
  }
  add_unit_gradient(query, dquery, out.dq, x.key(t, h));
  add_unit_gradient(key, dkey, out.dk, x.key(t, h));
}

/// Steps of a state space before they are clamped.
double step_of(const Values& a, const Values& bias, std::int64_t i) { return softplus(a[i] + bias[i % a.columns()]); }

void state_space_decay(const Call& call) {
  const auto& attributes = call.attributes<DeltaAttributes>();
  const Values a = call.in(0), rates = call.in(1), bias = call.in(2);
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double step = std::clamp<double>(step_of(a, bias, i), attributes.least_step, attributes.most_step);
    call.out(0).set(i, -std::exp(rates[i % a.columns()]) * step);
    call.out(1).set(i, step);
  }
}

void state_space_decay_backward(const Call& call) {
  const auto& attributes = call.attributes<DeltaAttributes>();
  const Values a = call.in(0), rates = call.in(1), bias = call.in(2), dg = call.in(3), dbeta = call.in(4);
  const std::int64_t heads = a.columns();
  std::vector<double> drates(static_cast<std::size_t>(heads)), dbias(static_cast<std::size_t>(heads));
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const std::int64_t h = i % heads;
    const double rate = -std::exp(rates[h]);
    const double step = step_of(a, bias, i);
    const bool clamped =
        step < static_cast<double>(attributes.least_step) || step > static_cast<double>(attributes.most_step);
    const double slope = clamped ? 0 : (dbeta[i] + dg[i] * rate) * sigmoid(a[i] + bias[h]);
    call.out(0).set(i, slope);
    drates[static_cast<std::size_t>(h)] +=
        dg[i] * rate * std::clamp<double>(step, attributes.least_step, attributes.most_step);
    dbias[static_cast<std::size_t>(h)] += slope;
  }
  if (!attributes.has_weight_gradient) return;
  for (std::int64_t h = 0; h < heads; ++h) {
    call.out(1).add(h, drates[static_cast<std::size_t>(h)]);
    call.out(2).add(h, dbias[static_cast<std::size_t>(h)]);
  }
}

}  // namespace

void convolution(const Call& call) {
  const Values x = call.in(0);
  const Values w = call.in(1);
  const auto& attributes = call.attributes<DeltaAttributes>();
  const std::size_t bounds = attributes.bounds();
  const Sequences sequences(call.in(bounds));
  Values y = call.out(0);
  y.fill(0);
  const std::int64_t channels = x.columns();
  const bool has_state = attributes.has_state;
  const std::int64_t kept = w.extent(1) - 1;
  const std::vector<double> state = has_state ? copy_of(call.in(bounds + 2)) : std::vector<double>();
  const auto before = [&](std::int64_t back, std::int64_t c) {
    if (!has_state || call.in(bounds + 1).integers()[0] == 0) return 0.0;
    return state[static_cast<std::size_t>((kept - back) * channels + c)];
  };
  for (std::int64_t s = 0; s < sequences.count(); ++s) {
    for (std::int64_t t = sequences.begin(s); t < sequences.end(s); ++t) {
      for (std::int64_t c = 0; c < channels; ++c) {
        double sum = convolved(x, w, sequences.begin(s), t, c, before);
        if (attributes.has_bias) sum += call.in(2)[c];
        y.set(t * channels + c, attributes.silu ? sum * sigmoid(sum) : sum);
      }
    }
  }
  if (!has_state || sequences.real_tokens() == 0) return;
  Values left = call.in(bounds + 2);
  for (std::int64_t row = 0; row < kept; ++row) {
    const std::int64_t token = sequences.real_tokens() - kept + row;
    for (std::int64_t c = 0; c < channels; ++c) {
      left.set(row * channels + c, token >= 0 ? x[token * channels + c] : before(-token, c));
    }
  }
}

void convolution_backward(const Call& call) {
  const Values x = call.in(0);
  const Values w = call.in(1);
  const Sequences sequences(call.in(2));
  const Values dy = call.in(3);
  const std::int64_t channels = x.columns();
  const std::int64_t width = w.extent(1);
  const bool silu = call.attributes<DeltaAttributes>().silu;
  std::vector<double> dx(static_cast<std::size_t>(x.size()));
  std::vector<double> dw(static_cast<std::size_t>(w.size()));
  for (std::int64_t s = 0; s < sequences.count(); ++s) {
    for (std::int64_t t = sequences.begin(s); t < sequences.end(s); ++t) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const double sum = convolved(x, w, sequences.begin(s), t, c, nothing);
        const double slope = silu ? sigmoid(sum) * (1.0 + sum * (1.0 - sigmoid(sum))) : 1.0;
        const double dsum = dy[t * channels + c] * slope;
        for (std::int64_t i = std::max<std::int64_t>(0, width - 1 - (t - sequences.begin(s))); i < width; ++i) {
          const std::int64_t from = (t - width + 1 + i) * channels + c;
          dx[static_cast<std::size_t>(from)] += dsum * w[c * width + i];
          dw[static_cast<std::size_t>(c * width + i)] += dsum * x[from];
        }
      }
    }
  }
  Values to = call.out(0);
  for (std::int64_t i = 0; i < x.size(); ++i) to.set(i, dx[static_cast<std::size_t>(i)]);
  if (!call.attributes<DeltaAttributes>().has_weight_gradient) return;
  Values sums = call.out(1);
  for (std::int64_t i = 0; i < w.size(); ++i) sums.add(i, dw[static_cast<std::size_t>(i)]);
}

void decay(const Call& call) {
  if (call.attributes<DeltaAttributes>().is_state_space()) return state_space_decay(call);
  const Values a = call.in(0), b = call.in(1), rates = call.in(2), bias = call.in(3);
  Values g = call.out(0);
  Values beta = call.out(1);
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const std::int64_t h = i % a.columns();
    g.set(i, -std::exp(rates[h]) * softplus(a[i] + bias[h]));
    beta.set(i, sigmoid(b[i]));
  }
}

void decay_backward(const Call& call) {
  if (call.attributes<DeltaAttributes>().is_state_space()) return state_space_decay_backward(call);
  const Values a = call.in(0), b = call.in(1), rates = call.in(2), bias = call.in(3);
  const Values dg = call.in(4), dbeta = call.in(5);
  Values da = call.out(0);
  Values db = call.out(1);
  const std::int64_t heads = a.columns();
  std::vector<double> drates(static_cast<std::size_t>(heads)), dbias(static_cast<std::size_t>(heads));
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const std::int64_t h = i % heads;
    const double rate = -std::exp(rates[h]);
    const double slope = dg[i] * rate * sigmoid(a[i] + bias[h]);
    da.set(i, slope);
    db.set(i, dbeta[i] * sigmoid(b[i]) * (1.0 - sigmoid(b[i])));
    drates[static_cast<std::size_t>(h)] += dg[i] * rate * softplus(a[i] + bias[h]);
    dbias[static_cast<std::size_t>(h)] += slope;
  }
  if (!call.attributes<DeltaAttributes>().has_weight_gradient) return;
  for (std::int64_t h = 0; h < heads; ++h) {
    call.out(2).add(h, drates[static_cast<std::size_t>(h)]);
    call.out(3).add(h, dbias[static_cast<std::size_t>(h)]);
  }
}

void delta_rule(const Call& call) {
  const DeltaOperands x(call);
  if (call.attributes<DeltaAttributes>().has_state) return delta_rule_from(call, x);
  const Sequences sequences(call.in(5));
  Values o = call.out(0);
  Values checkpoints = call.out(1);
  o.fill(0);
  checkpoints.fill(0);
  for (std::int64_t s = 0; s < sequences.count(); ++s) {
    for (std::int64_t h = 0; h < x.heads(); ++h) {
      State state(static_cast<std::size_t>(x.state_size()), 0.0);
      for (std::int64_t t = sequences.begin(s); t < sequences.end(s); ++t) {
        const std::int64_t at = (t / kDeltaChunk * x.heads() + h) * x.state_size();
        for (std::size_t i = 0; i < state.size() && t % kDeltaChunk == 0; ++i) {
          checkpoints.set(at + static_cast<std::int64_t>(i), state[i]);
        }
        state = step(x, t, h, state, x.unit_of(x.k, t, h)).after;
        read_out(x, t, h, state, o);
      }
    }
  }
}

/// From the states of all tokens, which are computed anew from the sequence's beginning, in falling order of tokens.
void delta_rule_backward(const Call& call) {
  const DeltaOperands x(call);
  const Sequences sequences(call.in(6));
  const Values d_o = call.in(7);
  const auto zeros = [](const Values& like) { return std::vector<double>(static_cast<std::size_t>(like.size())); };
  DeltaGradients out{zeros(x.q), zeros(x.k), zeros(x.v), zeros(x.g), zeros(x.beta)};
  for (std::int64_t s = 0; s < sequences.count(); ++s) {
    for (std::int64_t h = 0; h < x.heads(); ++h) {
      std::vector<Unit> keys;
      std::vector<Step> steps;
      State state(static_cast<std::size_t>(x.state_size()), 0.0);
      for (std::int64_t t = sequences.begin(s); t < sequences.end(s); ++t) {
        keys.push_back(x.unit_of(x.k, t, h));
        steps.push_back(step(x, t, h, state, keys.back()));
        state = steps.back().after;
      }
      State dstate(state.size(), 0.0);
      for (std::int64_t t = sequences.end(s) - 1; t >= sequences.begin(s); --t) {
        const auto place = static_cast<std::size_t>(t - sequences.begin(s));
        delta_token_gradient(x, d_o, t, h, steps[place], keys[place], dstate, out);
      }
    }
  }
  const std::vector<double>* results[] = {&out.dq, &out.dk, &out.dv, &out.dg, &out.dbeta};
  for (std::size_t i = 0; i < std::size(results); ++i) {
    Values to = call.out(i);
    for (std::int64_t e = 0; e < to.size(); ++e) to.set(e, (*results[i])[static_cast<std::size_t>(e)]);
  }
}

}  // namespace rondo::devices::reference
