// Norm, rotary embedding, gated activation, addition, soft cap, dropout, noise.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "rondo/devices/random.h"
#include "rondo/devices/rope.h"
#include "values.h"

namespace rondo::devices::reference {
namespace {

/// A row as a norm has it before its gain: r c, c being x or x - mean(x) and r = 1 / sqrt(mean(c^2) + epsilon).
struct NormalRow {
  NormalRow(const Values& x, std::int64_t row, std::int64_t width, const NormAttributes& attributes)
      : n(static_cast<std::size_t>(width)) {
    const auto count = static_cast<double>(width);
    double mean = 0;
    for (std::int64_t d = 0; d < width && attributes.centred; ++d) mean += x[row * width + d] / count;
    double squares = 0;
    for (std::int64_t d = 0; d < width; ++d) {
      const double centred = x[row * width + d] - mean;
      n[static_cast<std::size_t>(d)] = centred;
      squares += centred * centred;
    }
    r = 1.0 / std::sqrt(squares / count + static_cast<double>(attributes.epsilon));
    for (double& value : n) value *= r;
  }

  std::vector<double> n;
  double r = 0;
};

struct Activated {
  double value;
  double slope;
};

Activated activate(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kSilu: {
      const double sigmoid = 1.0 / (1.0 + std::exp(-x));
      return {x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid))};
    }
    case ActivationKind::kGelu: {
      const double phi = 0.5 * std::erfc(-x / std::numbers::sqrt2);
      const double density = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
      return {x * phi, phi + x * density};
    }
    case ActivationKind::kGeluTanh: {
      const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
      const double tanh = std::tanh(scale * (x + 0.044715 * x * x * x));
      const double inner_slope = scale * (1.0 + 3.0 * 0.044715 * x * x);
      return {0.5 * x * (1.0 + tanh), 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner_slope};
    }
    case ActivationKind::kSigmoid: {
      const double sigmoid = 1.0 / (1.0 + std::exp(-x));
      return {sigmoid, sigmoid * (1.0 - sigmoid)};
    }
    case ActivationKind::kRelu:
      return {x < 0 ? 0.0 : x, x > 0 ? 1.0 : 0.0};
    case ActivationKind::kIdentity:
      return {x, 1.0};
    case ActivationKind::kClampedSwiglu:
      break;  // not of the gate alone
  }
  return {0, 0};
}

/// activation(gate) * up and its gradients.
struct Gated {
  double value;
  double by_gate;
  double by_up;
};

Gated gated(const GatedActivationAttributes& attributes, double gate, double up) {
  if (attributes.activation != ActivationKind::kClampedSwiglu) {
    const Activated activated = activate(attributes.activation, gate);
    return {activated.value * up, up * activated.slope, activated.value};
  }
  const auto alpha = static_cast<double>(attributes.alpha);
  const auto limit = static_cast<double>(attributes.limit);
  const double g = std::min(gate, limit);
  const double factor = std::clamp(up, -limit, limit) + 1.0;
  const double sigmoid = 1.0 / (1.0 + std::exp(-alpha * g));
  const double slope = sigmoid * (1.0 + alpha * g * (1.0 - sigmoid));
  return {g * sigmoid * factor, gate > limit ? 0.0 : factor * slope, std::abs(up) > limit ? 0.0 : g * sigmoid};
}

/// What a norm multiplies column d by.
double gain_of(const Call& call, const NormOperands& operands, std::int64_t d) {
  const auto& attributes = call.attributes<NormAttributes>();
  const double w = attributes.has_weight() ? call.in(operands.weight)[d] : 0.0;
  return static_cast<double>(attributes.weight_factor) * w + static_cast<double>(attributes.weight_offset);
}

}  // namespace

void norm(const Call& call) {
  const auto& attributes = call.attributes<NormAttributes>();
  const NormOperands operands(call.list, call.op);
  const Values x = call.in(0);
  Values y = call.out(0);
  for (std::int64_t row = 0; row < operands.rows; ++row) {
    const NormalRow normal(x, row, operands.width, attributes);
    for (std::int64_t d = 0; d < operands.width; ++d) {
      const double bias = attributes.has_bias ? call.in(operands.bias)[d] : 0.0;
      y.set(row * operands.width + d, normal.n[static_cast<std::size_t>(d)] * gain_of(call, operands, d) + bias);
    }
  }
}

/// With n = r c, g = factor w + offset: dx = r (g dy - n mean(n g dy)), less r mean(g dy) where it is centred;
/// dw = factor times the sum over rows of n dy.
void norm_backward(const Call& call) {
  const auto& attributes = call.attributes<NormAttributes>();
  const NormOperands operands(call.list, call.op);
  const Values x = call.in(0);
  const Values dy = call.in(operands.gradient);
  Values dx = call.out(0);
  const std::int64_t width = operands.width;
  std::vector<double> dw(static_cast<std::size_t>(width));
  for (std::int64_t row = 0; row < operands.rows; ++row) {
    const NormalRow normal(x, row, width, attributes);
    double product = 0;
    double slope = 0;
    for (std::int64_t d = 0; d < width; ++d) {
      const double risen = gain_of(call, operands, d) * dy[row * width + d];
      product += normal.n[static_cast<std::size_t>(d)] * risen / static_cast<double>(width);
      slope += risen / static_cast<double>(width);
    }
    for (std::int64_t d = 0; d < width; ++d) {
      const std::int64_t i = row * width + d;
      const double n = normal.n[static_cast<std::size_t>(d)];
      double gradient = gain_of(call, operands, d) * dy[i] - n * product;
      if (attributes.centred) gradient -= slope;
      dw[static_cast<std::size_t>(d)] += static_cast<double>(attributes.weight_factor) * n * dy[i];
      dx.set(i, normal.r * gradient + (attributes.has_addend ? call.in(operands.addend)[i] : 0.0));
    }
  }
  if (!attributes.has_weight_gradient) return;
  for (std::int64_t d = 0; d < width; ++d) call.out(1).add(d, dw[static_cast<std::size_t>(d)]);
}

void rope(const Call& call) {
  const auto& attributes = call.attributes<RopeAttributes>();
  const Values x = call.in(0);
  const std::int32_t* positions = call.in(1).integers();
  const Sequences sequences(call.in(2));
  Values y = call.out(0);
  const std::int64_t heads = x.extent(1);
  const std::int64_t head_dim = x.extent(2);
  const auto half = static_cast<std::int64_t>(attributes.frequencies.size());
  for (std::int64_t t = 0; t < x.extent(0); ++t) {
    const std::int64_t length = sequences.length_at(t);
    const auto amplitude = static_cast<double>(rope_amplitude(attributes, positions[t]));
    for (std::int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(positions[t]) * rope_frequency(attributes, length, i);
      const double cosine = std::cos(static_cast<double>(angle)) * amplitude;
      const double sine = std::sin(static_cast<double>(angle)) * amplitude * static_cast<double>(attributes.direction);
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t a = (t * heads + h) * head_dim + i;
        const std::int64_t b = a + half;
        y.set(a, x[a] * cosine - x[b] * sine);
        y.set(b, x[b] * cosine + x[a] * sine);
      }
    }
    for (std::int64_t i = t * heads * head_dim; i < (t + 1) * heads * head_dim; ++i) {
      if (i % head_dim >= 2 * half) y.set(i, x[i]);
    }
  }
}

void gated_activation(const Call& call) {
  const auto& attributes = call.attributes<GatedActivationAttributes>();
  const bool alone = call.op.reads.size() == 1;
  const Values gate = call.in(0);
  Values y = call.out(0);
  for (std::int64_t i = 0; i < y.size(); ++i) {
    y.set(i, gated(attributes, gate[i], alone ? 1.0 : call.in(1)[i]).value);
  }
}

void gated_activation_backward(const Call& call) {
  const auto& attributes = call.attributes<GatedActivationAttributes>();
  const bool alone = call.op.reads.size() == 2;
  const Values gate = call.in(0);
  const Values dy = call.in(alone ? 1 : 2);
  Values dgate = call.out(0);
  for (std::int64_t i = 0; i < dy.size(); ++i) {
    const Gated at = gated(attributes, gate[i], alone ? 1.0 : call.in(1)[i]);
    dgate.set(i, dy[i] * at.by_gate);
    if (!alone) call.out(1).set(i, dy[i] * at.by_up);
  }
}

void add(const Call& call) {
  const Values a = call.in(0);
  const bool alone = call.op.reads.size() == 1;
  Values y = call.out(0);
  for (std::int64_t i = 0; i < y.size(); ++i) y.set(i, alone ? a[i] : a[i] + call.in(1)[i]);
}

void soft_cap(const Call& call) {
  const auto cap = static_cast<double>(call.attributes<SoftCapAttributes>().cap);
  const Values x = call.in(0);
  Values y = call.out(0);
  for (std::int64_t i = 0; i < y.size(); ++i) y.set(i, cap * std::tanh(x[i] / cap));
}

void dropout(const Call& call) {
  const auto& attributes = call.attributes<DropoutAttributes>();
  const Values x = call.in(0);
  const std::uint64_t* keys = call.in(1).keys();
  Values y = call.out(0);
  const double scale = 1.0 / (1.0 - static_cast<double>(attributes.probability));
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const bool keep = dropout_keeps(keys[i / x.columns()], call.bindings.layer, attributes.site,
                                    static_cast<std::uint64_t>(i % x.columns()), attributes.probability);
    const double factor = keep ? scale : 0.0;
    y.set(i, x[i] * (attributes.rest ? 1.0 - factor : factor));
  }
}

void noise(const Call& call) {
  const auto& attributes = call.attributes<NoiseAttributes>();
  const Values x = call.in(0);
  const std::uint64_t* keys = call.in(1).keys();
  const Sequences sequences(call.in(2));
  Values y = call.out(0);
  for (std::int64_t token = 0; token < x.rows(); ++token) {
    const auto numbers = static_cast<std::uint64_t>(sequences.length_at(token) * x.columns());
    const float scale = numbers == 0 ? 0.0F : attributes.amount * inverse_root(numbers);
    for (std::int64_t channel = 0; channel < x.columns(); ++channel) {
      const std::int64_t i = token * x.columns() + channel;
      const float drawn =
          signed_uniform(keys[token], call.bindings.layer, attributes.site, static_cast<std::uint64_t>(channel));
      y.set(i, x[i] + static_cast<double>(scale * drawn));
    }
  }
}

}  // namespace rondo::devices::reference
