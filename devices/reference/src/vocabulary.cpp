// Cross-entropy over a vocabulary, whole or in parts: statistics from part to part, then gradients back.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "values.h"

namespace rondo::devices::reference {
namespace {

/// Of one token, over the parts so far.
struct Statistics {
  double maximum = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double target = 0;

  double loss() const { return std::log(sum) + maximum - target; }
};

struct Normaliser {
  double maximum = 0;
  double inverse = 0;  // of the sum
};

class Vocabulary {
 public:
  explicit Vocabulary(const Call& call)
      : call_(call), attributes_(call.attributes<VocabularyAttributes>()), x_(call.in(0)) {}

  std::int64_t tokens() const { return x_.rows(); }
  std::int64_t width() const { return x_.columns(); }
  std::int64_t target(std::int64_t token) const { return call_.in(1).integers()[token]; }
  std::int64_t first_row(std::uint32_t part) const {
    std::int64_t first = attributes_.first_row;
    for (std::uint32_t i = 0; i < part; ++i) first += call_.in(2 + i).extent(0);
    return first;
  }

  double cap() const { return static_cast<double>(attributes_.cap); }

  std::vector<double> logits(std::uint32_t part, std::int64_t token) const {
    const Values w = call_.in(2 + part);
    std::vector<double> row(static_cast<std::size_t>(w.extent(0)));
    for (std::int64_t v = 0; v < w.extent(0); ++v) {
      for (std::int64_t c = 0; c < width(); ++c) {
        row[static_cast<std::size_t>(v)] += x_[token * width() + c] * w[v * width() + c];
      }
    }
    for (double& logit : row) {
      if (cap() > 0) logit = cap() * std::tanh(logit / cap());
    }
    return row;
  }

  /// After all of the op's parts.
  Statistics statistics(std::int64_t token) const {
    Statistics s;
    if (attributes_.first_row > 0) {
      const Values before = call_.in(2 + attributes_.parts);
      s = {before[token * 3], before[token * 3 + 1], before[token * 3 + 2]};
    }
    for (std::uint32_t part = 0; part < attributes_.parts; ++part) {
      const std::vector<double> row = logits(part, token);
      const double maximum = std::max(s.maximum, *std::ranges::max_element(row));
      s.sum *= std::exp(s.maximum - maximum);
      for (const double logit : row) s.sum += std::exp(logit - maximum);
      s.maximum = maximum;
      const std::int64_t place = target(token) - first_row(part);
      if (place >= 0 && place < static_cast<std::int64_t>(row.size())) s.target = row[static_cast<std::size_t>(place)];
    }
    return s;
  }

  /// dx += p w and dw += p^T x of one part and token, p = (softmax - onehot) * loss scale, times a capped logit's
  /// slope.
  void add_gradients(std::uint32_t part, std::int64_t token, const Normaliser& normaliser, std::vector<double>& dx,
                     std::vector<double>& dw) const {
    const double scale = attributes_.has_loss_scale ? call_.in(call_.op.reads.size() - 1)[0] : 1.0;
    std::vector<double> p = logits(part, token);
    const Values w = call_.in(2 + part);
    for (std::size_t v = 0; v < p.size(); ++v) {
      const bool hit = static_cast<std::int64_t>(v) == target(token) - first_row(part);
      const double slope = cap() > 0 ? 1.0 - p[v] / cap() * (p[v] / cap()) : 1.0;
      p[v] = (std::exp(p[v] - normaliser.maximum) * normaliser.inverse - (hit ? 1.0 : 0.0)) * scale * slope;
      for (std::int64_t c = 0; c < width(); ++c) {
        const std::int64_t place = static_cast<std::int64_t>(v) * width() + c;
        dx[static_cast<std::size_t>(c)] += p[v] * w[place];
        if (!dw.empty()) dw[static_cast<std::size_t>(place)] += p[v] * x_[token * width() + c];
      }
    }
  }

  /// Zeros like the gradient of a part's w; empty where it is frozen.
  std::vector<double> weight_gradient(std::uint32_t part) const {
    return std::vector<double>(attributes_.has_weight_gradient ? static_cast<std::size_t>(call_.in(2 + part).size())
                                                               : 0);
  }

 private:
  const Call& call_;
  const VocabularyAttributes& attributes_;
  const Values x_;
};

void set_row(Values to, std::int64_t token, const std::vector<double>& row) {
  for (std::size_t c = 0; c < row.size(); ++c) {
    to.set(token * static_cast<std::int64_t>(row.size()) + static_cast<std::int64_t>(c), row[c]);
  }
}

void add_all(Values to, const std::vector<double>& sums) {
  for (std::size_t i = 0; i < sums.size(); ++i) to.add(static_cast<std::int64_t>(i), sums[i]);
}

std::vector<double> row_of(const Values& from, std::int64_t token) {
  std::vector<double> row(static_cast<std::size_t>(from.columns()));
  for (std::size_t c = 0; c < row.size(); ++c) row[c] = from[token * from.columns() + static_cast<std::int64_t>(c)];
  return row;
}

}  // namespace

void vocabulary_statistics(const Call& call) {
  const Vocabulary vocabulary(call);
  Values out = call.out(0);
  const Values passed = call.out(1);
  out.fill(0);
  for (std::int64_t t = 0; t < vocabulary.tokens(); ++t) {
    set_row(passed, t, row_of(call.in(0), t));
    if (vocabulary.target(t) < 0) continue;
    const Statistics s = vocabulary.statistics(t);
    set_row(out, t, {s.maximum, s.sum, s.target});
  }
}

void vocabulary_loss(const Call& call) {
  const auto& attributes = call.attributes<VocabularyAttributes>();
  const Vocabulary vocabulary(call);
  const bool before = attributes.first_row > 0;
  double loss = 0;
  std::vector<std::vector<double>> dw;
  for (std::uint32_t part = 0; part < attributes.parts; ++part) dw.push_back(vocabulary.weight_gradient(part));
  for (std::int64_t t = 0; t < vocabulary.tokens(); ++t) {
    const bool has_target = vocabulary.target(t) >= 0;
    const Statistics s = has_target ? vocabulary.statistics(t) : Statistics{};
    if (has_target) loss += s.loss();
    if (!attributes.has_input_gradient) continue;
    const Normaliser normaliser = has_target ? Normaliser{s.maximum, 1 / s.sum} : Normaliser{};
    if (before) set_row(call.out(2), t, {normaliser.maximum, normaliser.inverse});
    const Values out = call.out(1);
    set_row(out, t, std::vector<double>(static_cast<std::size_t>(vocabulary.width())));
    for (std::uint32_t part = attributes.parts; has_target && part-- > 0;) {
      std::vector<double> dx = row_of(out, t);  // rounded after each part
      vocabulary.add_gradients(part, t, normaliser, dx, dw[part]);
      set_row(out, t, dx);
    }
  }
  call.out(0).set(0, loss);
  for (std::uint32_t part = 0; part < attributes.parts && attributes.has_weight_gradient; ++part) {
    add_all(call.out(2 + (before ? 1U : 0U) + part), dw[part]);
  }
}

void vocabulary_gradient(const Call& call) {
  const auto& attributes = call.attributes<VocabularyAttributes>();
  const Vocabulary vocabulary(call);
  const bool before = attributes.first_row > 0;
  const Values out = call.out(0);
  std::vector<double> dw = vocabulary.weight_gradient(0);
  for (std::int64_t t = 0; t < vocabulary.tokens(); ++t) {
    std::vector<double> dx = row_of(call.in(4), t);
    const std::vector<double> normaliser = row_of(call.in(3), t);
    if (vocabulary.target(t) >= 0) vocabulary.add_gradients(0, t, {normaliser[0], normaliser[1]}, dx, dw);
    set_row(out, t, dx);
    if (before) set_row(call.out(1), t, normaliser);
  }
  if (attributes.has_weight_gradient) add_all(call.out(before ? 2 : 1), dw);
}

}  // namespace rondo::devices::reference
