// Rates read off measured ones, and rates that explain measured times.
#include "rondo/partition/op_rates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rondo/partition/shape.h"

namespace rondo::partition {
namespace {

constexpr double kNear = 2.0;  // times as large or as small
constexpr int kSweeps = 16;
/// Of what the device's profile says, an op is at most so much faster: its speeds may have been measured while others
/// worked, and what an op reads may lie in a cache.
constexpr double kMostOfFlops = 4.0;
constexpr double kMostOfBandwidth = 32.0;

devices::OpShape without_rows(devices::OpShape shape) {
  shape.rows = 0;
  return shape;
}

bool near(std::int64_t a, std::int64_t b) {
  if (a == b) return true;
  const auto [least, most] = std::minmax({static_cast<double>(a), static_cast<double>(b)});
  return least > 0 && most <= kNear * least;
}

/// The same op on a matrix of about the same size.
bool is_neighbour(const devices::OpShape& a, const devices::OpShape& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.reads == b.reads && a.writes == b.writes &&
         near(a.columns, b.columns) && near(a.inner, b.inner);
}

double most_rate(const PhaseCost::OpCost& op, const DeviceShape& device, devices::DType dtype) {
  const double computing = device.profile.seconds({op.flops, 0, 0}, dtype, op.shape.fp8) / kMostOfFlops;
  const double moving = device.profile.seconds({0, op.bytes, 0}, dtype, op.shape.fp8) / kMostOfBandwidth;
  const double seconds = std::max(computing, moving);
  return seconds > 0 ? devices::work_of({op.flops, op.bytes}) / seconds : std::numeric_limits<double>::infinity();
}

}  // namespace

void OpRates::set(const devices::OpShape& shape, double rate) { classes_[without_rows(shape)][shape.rows] = rate; }

double OpRates::on(const Curve& curve, std::int64_t rows) {
  const auto above = curve.lower_bound(rows);
  if (above == curve.end()) return std::prev(above)->second;
  if (above == curve.begin() || above->first == rows) return above->second;
  const auto below = std::prev(above);
  const auto position = [](std::int64_t n) { return std::log(static_cast<double>(std::max<std::int64_t>(n, 1))); };
  const double span = position(above->first) - position(below->first);
  const double share = span > 0 ? (position(rows) - position(below->first)) / span : 1;
  return below->second + share * (above->second - below->second);
}

std::optional<double> OpRates::rate(const devices::OpShape& shape) const {
  const auto own = classes_.find(without_rows(shape));
  if (own != classes_.end()) return on(own->second, shape.rows);
  std::optional<double> lowest;
  for (const auto& [other, curve] : classes_) {
    if (!is_neighbour(shape, other)) continue;
    const double rate = on(curve, shape.rows);
    lowest = std::min(lowest.value_or(rate), rate);
  }
  return lowest;
}

OpRates OpRates::slower(double factor) const {
  OpRates rates = *this;
  for (auto& entry : rates.classes_) {
    for (auto& point : entry.second) point.second /= factor;
  }
  return rates;
}

std::vector<std::pair<devices::OpShape, double>> OpRates::list() const {
  std::vector<std::pair<devices::OpShape, double>> all;
  for (const auto& [shape, curve] : classes_) {
    for (const auto& [rows, rate] : curve) {
      all.emplace_back(shape, rate);
      all.back().first.rows = rows;
    }
  }
  return all;
}

OpRates fit_rates(const std::vector<ObservedProgram>& programs, const DeviceShape& device, devices::DType dtype) {
  struct Fit {
    double rate = 0;
    double most = 0;
    double stretched = 0;  // by the programs that hold it, weighed by the time that they spend in it
    double weight = 0;
  };
  std::map<devices::OpShape, Fit> fits;
  for (const ObservedProgram& program : programs) {
    for (const PhaseCost::OpCost& op : program.cost->ops) {
      const double work = devices::work_of({op.flops, op.bytes});
      const double seconds = op.seconds(device, dtype);
      if (work <= 0 || seconds <= 0) continue;
      Fit& fit = fits[op.shape];
      fit.most = most_rate(op, device, dtype);
      fit.rate = work / seconds;
    }
  }
  const auto seconds_of = [&](const PhaseCost::OpCost& op) {
    const auto fit = fits.find(op.shape);
    return fit == fits.end() ? 0 : devices::work_of({op.flops, op.bytes}) / fit->second.rate;
  };
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (auto& entry : fits) entry.second.stretched = entry.second.weight = 0;
    for (const ObservedProgram& program : programs) {
      double planned = 0;
      for (const PhaseCost::OpCost& op : program.cost->ops) planned += seconds_of(op);
      if (planned <= 0 || program.seconds <= 0) continue;
      for (const PhaseCost::OpCost& op : program.cost->ops) {
        const double seconds = seconds_of(op);
        if (seconds <= 0) continue;
        fits[op.shape].stretched += program.weight * seconds * program.seconds / planned;
        fits[op.shape].weight += program.weight * seconds;
      }
    }
    for (auto& entry : fits) {
      Fit& fit = entry.second;
      if (fit.weight > 0) fit.rate = std::min(fit.rate * fit.weight / fit.stretched, fit.most);
    }
  }
  OpRates rates;
  for (const auto& [shape, fit] : fits) {
    if (fit.weight > 0) rates.set(shape, fit.rate);
  }
  return rates;
}

}  // namespace rondo::partition
