// Mixture of experts: which tokens go where, what comes back, and the products of each expert's rows.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "values.h"

namespace rondo::devices::reference {

namespace {

/// The places of the `count` largest numbers, of equal ones the first, from the largest on.
std::vector<std::int32_t> largest_of(const std::vector<double>& numbers, std::int64_t count) {
  std::vector<std::int32_t> order(numbers.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return numbers[static_cast<std::size_t>(a)] > numbers[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(count));
  return order;
}

/// Of all experts of a token.
std::vector<double> scores_of(const std::vector<double>& logits, bool sigmoid) {
  std::vector<double> scores;
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) {
    scores.push_back(sigmoid ? 1.0 / (1.0 + std::exp(-logit)) : std::exp(logit - largest));
    sum += scores.back();
  }
  for (double& score : scores) score /= sigmoid ? 1.0 : sum;
  return scores;
}

std::vector<double> logits_of(const Values& logits, std::int64_t token) {
  std::vector<double> own;
  for (std::int64_t e = 0; e < logits.columns(); ++e) own.push_back(logits[token * logits.columns() + e]);
  return own;
}

/// Leaves only the experts of the chosen groups something to be compared by.
void mask_groups(std::vector<double>& compared, const RouteAttributes& route) {
  const std::size_t size = compared.size() / static_cast<std::size_t>(route.groups);
  std::vector<double> sums;
  for (std::size_t first = 0; first < compared.size(); first += size) {
    const auto begin = compared.begin() + static_cast<std::ptrdiff_t>(first);
    std::vector<double> group(begin, begin + static_cast<std::ptrdiff_t>(size));
    std::partial_sort(group.begin(), group.begin() + 2, group.end(), std::greater<>());
    sums.push_back(group[0] + group[1]);
  }
  const std::vector<std::int32_t> best = largest_of(sums, route.chosen_groups);
  for (std::size_t e = 0; e < compared.size(); ++e) {
    const bool kept = std::find(best.begin(), best.end(), static_cast<std::int32_t>(e / size)) != best.end();
    if (!kept) compared[e] = -std::numeric_limits<double>::infinity();
  }
}

/// Of row `row` of `left` by a matrix that begins with number `first` of `weights`, which `transposed` says to read by
/// rows: number `column` of `columns`.
double product(const Values& left, std::int64_t row, const Values& weights, std::int64_t first, std::int64_t column,
               std::int64_t columns, bool transposed) {
  const std::int64_t inner = left.columns();
  double sum = 0;
  for (std::int64_t i = 0; i < inner; ++i) {
    sum += left[row * inner + i] * weights[first + (transposed ? column * inner + i : i * columns + column)];
  }
  return sum;
}

void multiply(const Call& call, bool transposed) {
  const auto& group = call.attributes<GroupAttributes>();
  const Values left = call.in(0);
  const std::int32_t* offsets = call.in(1).integers();
  Values out = call.out(0);
  out.fill(0);
  for (std::size_t e = 0; e < experts_of(call.op); ++e) {
    const ExpertPlace place_of_w = expert_place(call.op, e, left.columns() * out.columns());
    const Values weights = call.in(2 + place_of_w.tensor);
    for (std::int64_t row = offsets[e]; row < offsets[e + 1]; ++row) {
      for (std::int64_t c = 0; c < out.columns(); ++c) {
        const std::int64_t place = row * out.columns() + c;
        const double addend = group.has_addend ? call.at(call.op.reads.back())[place] : 0.0;
        out.set(place,
                group.alpha * product(left, row, weights, place_of_w.first, c, out.columns(), transposed) + addend);
      }
    }
  }
}

}  // namespace

void route(const Call& call) {
  const Values logits = call.in(0);
  const std::int64_t real = Sequences(call.in(1)).real_tokens();
  Values shares = call.out(0);
  std::int32_t* experts = call.out(1).integers();
  std::int32_t* rows = call.out(2).integers();
  std::int32_t* offsets = call.out(3).integers();
  const std::int64_t choices = shares.columns();
  const auto& route = call.attributes<RouteAttributes>();
  for (std::int64_t t = 0; t < logits.rows(); ++t) {
    std::vector<double> compared = logits_of(logits, t);
    const std::vector<double> scores = scores_of(compared, route.sigmoid);
    if (route.compares_scores()) compared = scores;
    for (std::size_t e = 0; e < scores.size() && route.has_bias; ++e) {
      compared[e] += call.in(2)[static_cast<std::int64_t>(e)];
    }
    if (route.groups > 1) mask_groups(compared, route);
    const std::vector<std::int32_t> best = largest_of(compared, choices);
    double sum = 0;
    for (const std::int32_t e : best) sum += scores[static_cast<std::size_t>(e)];
    const double factor = route.factor / (route.normalised ? sum + route.added : 1.0);
    for (std::int64_t j = 0; j < choices; ++j) {
      const std::int32_t e = t < real ? best[static_cast<std::size_t>(j)] : 0;
      shares.set(t * choices + j, t < real ? factor * scores[static_cast<std::size_t>(e)] : 0.0);
      experts[t * choices + j] = e;
      rows[t * choices + j] = static_cast<std::int32_t>(t * choices + j);
    }
  }
  std::int32_t next = 0;
  for (std::int32_t e = 0; e < logits.columns(); ++e) {
    offsets[e] = next;
    for (std::int64_t i = 0; i < real * choices; ++i) {
      if (experts[i] == e) rows[i] = next++;
    }
  }
  offsets[logits.columns()] = next;
}

void route_backward(const Call& call) {
  const Values logits = call.in(0);
  const Values shares = call.in(1);
  const std::int32_t* experts = call.in(2).integers();
  const Values dshares = call.in(3);
  Values dlogits = call.out(0);
  dlogits.fill(0);
  const std::int64_t choices = shares.columns();
  const std::int64_t count = logits.columns();
  const auto& route = call.attributes<RouteAttributes>();
  for (std::int64_t t = 0; t < logits.rows(); ++t) {
    double mean = 0;
    for (std::int64_t j = t * choices; j < (t + 1) * choices; ++j) mean += shares[j] * dshares[j];
    const double common = route.normalised ? mean / route.factor : 0.0;
    const std::vector<double> scores = scores_of(logits_of(logits, t), route.sigmoid);
    std::vector<double> gradient(scores.size());
    const bool all = !route.normalised && !route.sigmoid;  // have a gradient
    for (std::size_t e = 0; e < scores.size() && all; ++e) gradient[e] = -scores[e] * mean;
    for (std::int64_t j = t * choices; j < (t + 1) * choices; ++j) {
      const auto e = static_cast<std::size_t>(experts[j]);
      gradient[e] += shares[j] * (dshares[j] - common) * (route.sigmoid ? 1.0 - scores[e] : 1.0);
    }
    for (std::int64_t e = 0; e < count; ++e) dlogits.set(t * count + e, gradient[static_cast<std::size_t>(e)]);
  }
}

void share_scale(const Call& call) {
  const Values shares = call.in(0);
  const std::int32_t* experts = call.in(1).integers();
  Values y = call.out(0);
  for (std::int64_t i = 0; i < shares.size(); ++i) y.set(i, shares[i] * call.in(2)[experts[i]]);
}

void share_scale_backward(const Call& call) {
  const Values shares = call.in(0);
  const std::int32_t* experts = call.in(1).integers();
  const Values scale = call.in(2);
  const Values dy = call.in(3);
  Values dshares = call.out(0);
  std::vector<double> sums(static_cast<std::size_t>(scale.size()));
  for (std::int64_t i = 0; i < shares.size(); ++i) {
    dshares.set(i, dy[i] * scale[experts[i]]);
    sums[static_cast<std::size_t>(experts[i])] += dy[i] * shares[i];
  }
  if (call.op.writes.size() == 1) return;
  for (std::int64_t e = 0; e < scale.size(); ++e) call.out(1).add(e, sums[static_cast<std::size_t>(e)]);
}

void dispatch(const Call& call) {
  const Values x = call.in(0);
  const std::int32_t* rows = call.in(1).integers();
  Values y = call.out(0);
  const std::int64_t choices = call.in(1).columns();
  const std::int64_t width = x.columns();
  for (std::int64_t i = 0; i < x.rows() * choices; ++i) {
    for (std::int64_t c = 0; c < width; ++c) y.set(rows[i] * width + c, x[i / choices * width + c]);
  }
}

void combine(const Call& call) {
  const auto& attributes = call.attributes<CombineAttributes>();
  const Values x = call.in(0);
  const std::int32_t* rows = call.in(1).integers();
  Values y = call.out(0);
  const std::int64_t choices = call.in(1).columns();
  const std::int64_t width = y.columns();
  for (std::int64_t t = 0; t < y.rows(); ++t) {
    for (std::int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (std::int64_t j = t * choices; j < (t + 1) * choices; ++j) {
        sum += (attributes.has_shares ? call.in(2)[j] : 1.0) * x[rows[j] * width + c];
      }
      sum *= static_cast<double>(attributes.alpha);
      if (attributes.has_addend) sum += call.at(call.op.reads.back())[t * width + c];
      y.set(t * width + c, sum);
    }
  }
}

void combine_backward(const Call& call) {
  const double alpha = static_cast<double>(call.attributes<CombineAttributes>().alpha);
  const Values dy = call.in(0);
  const Values x = call.in(1);
  const std::int32_t* rows = call.in(2).integers();
  const Values shares = call.in(3);
  Values dx = call.out(0);
  Values dshares = call.out(1);
  const std::int64_t choices = shares.columns();
  const std::int64_t width = dy.columns();
  for (std::int64_t i = 0; i < dy.rows() * choices; ++i) {
    double sum = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      const double along = alpha * dy[i / choices * width + c];
      sum += along * x[rows[i] * width + c];
      dx.set(rows[i] * width + c, along * shares[i]);
    }
    dshares.set(i, sum);
  }
}

void grouped_matmul(const Call& call) { multiply(call, true); }

void grouped_matmul_input_gradient(const Call& call) { multiply(call, false); }

void grouped_matmul_weight_gradient(const Call& call) {
  const Values dy = call.in(0);
  const Values x = call.in(1);
  const std::int32_t* offsets = call.in(2).integers();
  const double alpha = call.attributes<GroupAttributes>().alpha;
  const std::int64_t matrix = dy.columns() * x.columns();
  for (std::size_t e = 0; e < experts_of(call.op); ++e) {
    const ExpertPlace place = expert_place(call.op, e, matrix);
    Values dw = call.out(place.tensor);
    for (std::int64_t i = 0; i < matrix; ++i) {
      double sum = 0;
      for (std::int64_t row = offsets[e]; row < offsets[e + 1]; ++row) {
        sum += dy[row * dy.columns() + i / x.columns()] * x[row * x.columns() + i % x.columns()];
      }
      dw.add(place.first + i, alpha * sum);
    }
  }
}

void grouped_bias(const Call& call) {
  const Values x = call.in(0);
  const std::int32_t* offsets = call.in(1).integers();
  const Values bias = call.in(2);
  Values y = call.out(0);
  const std::int64_t width = x.columns();
  y.fill(0);
  for (std::int64_t e = 0; e < bias.rows(); ++e) {
    for (std::int64_t i = offsets[e] * width; i < offsets[e + 1] * width; ++i) {
      y.set(i, x[i] + bias[e * width + i % width]);
    }
  }
}

void grouped_bias_gradient(const Call& call) {
  const Values dy = call.in(0);
  const std::int32_t* offsets = call.in(1).integers();
  Values db = call.out(0);
  const std::int64_t width = dy.columns();
  for (std::int64_t i = 0; i < db.size(); ++i) {
    double sum = 0;
    for (std::int64_t row = offsets[i / width]; row < offsets[i / width + 1]; ++row) sum += dy[row * width + i % width];
    db.add(i, sum);
  }
}

}  // namespace rondo::devices::reference
