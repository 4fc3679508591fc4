// What an optimizer does, element by element.
#include "rondo/devices/update.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "rondo/devices/moment_codes.h"
#include "values.h"

namespace rondo::devices::reference {
namespace {

constexpr auto kBlock = static_cast<std::int64_t>(kUpdateBlock);

}  // namespace

void add_rows(const Call& call) {
  const std::int32_t* ids = call.in(0).integers();
  const Values rows = call.in(1);
  Values table = call.out(0);
  for (std::int64_t i = 0; i < ids[0]; ++i) {
    const std::int64_t row = ids[1 + i];
    if (row == call.attributes<AddRowsAttributes>().padding_row) continue;
    for (std::int64_t c = 0; c < rows.columns(); ++c) table.add(row * rows.columns() + c, rows[i * rows.columns() + c]);
  }
}

void sum_of_squares(const Call& call) {
  const Values x = call.in(0);
  Values sums = call.out(0);
  sums.fill(0);
  for (std::int64_t i = 0; i < x.size(); ++i) sums.add(i / kBlock, x[i] * x[i]);
}

namespace {

/// A moment in codes, decoded; put() encodes it anew, each number by looking for the nearest value.
class CodedMoment {
 public:
  CodedMoment(Values codes, const Values& scales, bool is_signed)
      : codes_(codes.bytes()),
        scales_(scales),
        table_(moment_values(is_signed)),
        numbers_(4 * static_cast<std::size_t>(codes.size())) {
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      numbers_[i] = static_cast<double>(table_[code(i)]) * scales_[static_cast<std::int64_t>(i / kMomentBlock)];
    }
  }
  double operator[](std::int64_t i) const { return numbers_[static_cast<std::size_t>(i)]; }
  void set(std::int64_t i, double x) { numbers_[static_cast<std::size_t>(i)] = x; }
  void put() {
    for (std::size_t begin = 0; begin < numbers_.size(); begin += kMomentBlock) {
      double scale = 0;
      for (std::size_t i = 0; i < kMomentBlock; ++i) scale = std::max(scale, std::abs(numbers_[begin + i]));
      scales_.set(static_cast<std::int64_t>(begin / kMomentBlock), scale);
      for (std::size_t i = begin; i < begin + kMomentBlock; ++i) {
        codes_[i] = static_cast<std::byte>(nearest(scale > 0 ? numbers_[i] / scale : 0));
      }
    }
  }

 private:
  std::uint8_t code(std::size_t i) const { return static_cast<std::uint8_t>(codes_[i]); }
  /// Of those on the number's side of zero; 0 counts as positive.
  std::size_t nearest(double x) const {
    std::size_t best = 256;
    for (std::size_t i = 0; i < 256; ++i) {
      const double value = table_[i];
      if ((value < 0) != (x < 0)) continue;
      if (best == 256 || std::abs(value - x) < std::abs(table_[best] - x)) best = i;
    }
    return best;
  }

  std::byte* codes_;
  Values scales_;
  std::span<const float, 256> table_;
  std::vector<double> numbers_;
};

/// The random bits are update.h's, all else is PyTorch's formula.
template <typename Moment>
void update(const Call& call, Moment& first, Moment& second) {
  const Values gradient = call.in(0);
  const std::int32_t* owners = call.in(3).integers();
  Values master = call.in(4);
  std::vector<StepFactors> of_parameters;
  const auto* factors = reinterpret_cast<const float*>(call.in(1).bytes());
  for (std::int64_t p = 0; p < call.in(2).size(); ++p) of_parameters.push_back(unpack(factors + p * kUpdateFactors));
  for (std::int64_t i = 0; i < gradient.size(); ++i) {
    const StepFactors& of = of_parameters[static_cast<std::size_t>(owners[2 * (i / kBlock)])];
    const auto factor = [&](float StepFactors::*which) { return static_cast<double>(of.*which); };
    const double g = gradient[i] * factor(&StepFactors::gradient_factor);
    const double m = first[i] + (g - first[i]) * factor(&StepFactors::rest1);
    const double v = second[i] * factor(&StepFactors::beta2) + g * g * factor(&StepFactors::rest2);
    const double root = std::sqrt(v) * factor(&StepFactors::inverse_correction2) + factor(&StepFactors::epsilon);
    first.set(i, m);
    second.set(i, v);
    master.set(i, master[i] * factor(&StepFactors::kept) - factor(&StepFactors::step_size) * m / root);
  }
  if (call.op.writes.empty()) return;
  const DType dtype = call.list.tensors[call.op.writes[0]].dtype;
  auto* published = reinterpret_cast<std::uint16_t*>(call.out(0).bytes());
  for (std::int64_t block = 0; block < gradient.size() / kBlock; ++block) {
    const std::uint64_t key = call.in(2).keys()[owners[2 * block]];
    round_stochastically(reinterpret_cast<const float*>(master.bytes()) + block * kBlock, narrow_of(dtype),
                         published + block * kBlock, kUpdateBlock,
                         rounding_key(key, static_cast<std::size_t>(owners[2 * block + 1])));
  }
}

}  // namespace

void adamw(const Call& call) {
  if (call.op.kind == OpKind::kAdamW) {
    Values first = call.in(5);
    Values second = call.in(6);
    return update(call, first, second);
  }
  CodedMoment first(call.in(5), call.in(6), true);
  CodedMoment second(call.in(7), call.in(8), false);
  update(call, first, second);
  first.put();
  second.put();
}

}  // namespace rondo::devices::reference
