// The gradients against finite differences, both by the reference in fp64: what the backward ops compute is the
// gradient of what the forward ops compute. Each input is moved along one random direction.
//
// A central difference with step h errs by h^2 / 6 of the third derivative and by 2^-53 |L| / h of cancellation: with
// h = 1e-5 both are below 1e-9 of the quantities here, a thousand times less than is allowed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "op_case.h"
#include "rondo/devices/reference/reference.h"

namespace rondo::devices::testing {
namespace {

constexpr double kStep = 1e-5;
constexpr double kAllowed = 1e-6;  // of the gradient's share in any direction

class EveryGradient : public ::testing::TestWithParam<std::size_t> {};

/// The scalar of OpCase::projections after running the list with `input` moved by `step` along `direction`.
double scalar_at(const OpCase& op_case, const CaseMemory& start, TensorId input, const std::vector<double>& direction,
                 double step) {
  CaseMemory memory = *CaseMemory::make(op_case, 0);
  memory.copy_from(start);
  for (std::size_t i = 0; i < direction.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    memory.set(input, place, memory.get(input, place) + step * direction[i]);
  }
  EXPECT_EQ(run_reference(op_case.list, memory.bindings()), absl::OkStatus());
  double scalar = 0;
  for (const auto& [result, projection] : op_case.projections) {
    for (std::int64_t i = 0; i < op_case.list.tensors[result].elements(); ++i) {
      // A loss is its own projection: it counts as it is.
      scalar += memory.get(result, i) * (result == projection ? 1.0 : start.get(projection, i));
    }
  }
  return scalar;
}

struct Slope {
  double along = 0;   // <gradient, direction>
  double length = 0;  // of the gradient: what `along` is of the order of
};

Slope slope(const OpCase& op_case, const CaseMemory& done, TensorId gradient, const std::vector<double>& direction) {
  Slope result;
  const auto count = [&](double g, double d) {
    result.along += g * d;
    result.length += g * g;
  };
  if (op_case.list.tensors[gradient].role == TensorRole::kRows) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(op_case.list.tensors[gradient].elements()));
    std::memcpy(ids.data(), done.data(gradient), ids.size() * sizeof(std::int32_t));
    const std::int64_t width = op_case.list.tensors[gradient + 1].shape[1];
    for (std::int64_t i = 0; i < ids[0] * width; ++i) {
      const std::int64_t place = ids[static_cast<std::size_t>(1 + i / width)] * width + i % width;
      count(done.get(gradient + 1, i), direction[static_cast<std::size_t>(place)]);
    }
  } else {
    for (std::size_t i = 0; i < direction.size(); ++i) {
      count(done.get(gradient, static_cast<std::int64_t>(i)), direction[i]);
    }
  }
  result.length = std::sqrt(result.length);
  return result;
}

TEST_P(EveryGradient, OfTheReference_AgreesWithFiniteDifferences) {
  const OpDescription& description = op_descriptions()[GetParam()];
  if (!description.has_gradient) GTEST_SKIP() << "never: it has no gradient, or that of another description";
  const OpCase op_case = description.make(DType::kFloat64, Scale::kOdd);
  absl::StatusOr<CaseMemory> start = CaseMemory::make(op_case, 1);
  absl::StatusOr<CaseMemory> done = CaseMemory::make(op_case, 1);
  ASSERT_EQ(start.status(), absl::OkStatus());
  ASSERT_EQ(done.status(), absl::OkStatus());
  ASSERT_EQ(run_reference(op_case.list, done->bindings()), absl::OkStatus());
  ASSERT_FALSE(op_case.gradients.empty());
  std::mt19937_64 generator(7);
  std::normal_distribution<double> normal;
  for (const auto& [input, gradient] : op_case.gradients) {
    std::vector<double> direction(static_cast<std::size_t>(op_case.list.tensors[input].elements()));
    for (double& d : direction) d = normal(generator);
    const double difference =
        (scalar_at(op_case, *start, input, direction, kStep) - scalar_at(op_case, *start, input, direction, -kStep)) /
        (2 * kStep);
    const Slope expected = slope(op_case, *done, gradient, direction);
    EXPECT_GT(expected.length, 0) << op_case.list.tensors[input].name;
    EXPECT_NEAR(difference, expected.along, kAllowed * expected.length) << op_case.list.tensors[input].name;
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryGradient, ::testing::Range<std::size_t>(0, op_descriptions().size()),
                         [](const auto& instance) { return op_descriptions()[instance.param].name; });

}  // namespace
}  // namespace rondo::devices::testing
