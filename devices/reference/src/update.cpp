// What an optimizer does, element by element.
#include "rondo/devices/update.h"

#include <cmath>
#include <vector>

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

/// The random bits are update.h's, all else is PyTorch's formula.
void adamw(const Call& call) {
  const Values gradient = call.in(0);
  const std::int32_t* owners = call.in(3).integers();
  Values master = call.in(4);
  Values first = call.in(5);
  Values second = call.in(6);
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

}  // namespace rondo::devices::reference
