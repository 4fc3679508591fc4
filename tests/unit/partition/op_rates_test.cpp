// Times read off measured rates: exact where they were measured, careful where not, and fitted to what a run has seen.
#include "rondo/partition/op_rates.h"

#include <gmock/gmock.h>

#include "scene.h"

namespace rondo::partition {
namespace {

using devices::DType;
using devices::OpKind;
using devices::OpShape;

OpShape product(std::int64_t rows, std::int64_t columns, std::int64_t inner = 64) {
  OpShape shape;
  shape.kind = OpKind::kMatMul;
  shape.dtype = DType::kBfloat16;
  shape.reads = 2;
  shape.writes = 1;
  shape.rows = rows;
  shape.columns = columns;
  shape.inner = inner;
  return shape;
}

OpShape norm(std::int64_t rows) {
  OpShape shape = product(rows, 64, 0);
  shape.kind = OpKind::kNorm;
  return shape;
}

TEST(OpRates, MeasuredShape_HasItsRate) {
  OpRates rates;
  rates.set(product(256, 128), 3e9);
  rates.set(product(512, 128), 4e9);
  EXPECT_DOUBLE_EQ(rates.rate(product(256, 128)).value_or(0), 3e9);
  rates.set(product(256, 128), 5e9);
  EXPECT_DOUBLE_EQ(rates.rate(product(256, 128)).value_or(0), 5e9);
}

TEST(OpRates, BetweenTokenCounts_LiesBetweenOverTheirLogarithm) {
  OpRates rates;
  rates.set(product(64, 128), 1e9);
  rates.set(product(1024, 128), 5e9);
  EXPECT_DOUBLE_EQ(rates.rate(product(256, 128)).value_or(0), 3e9);
  EXPECT_DOUBLE_EQ(rates.rate(product(16, 128)).value_or(0), 1e9);
  EXPECT_DOUBLE_EQ(rates.rate(product(4096, 128)).value_or(0), 5e9);
}

TEST(OpRates, UnknownMatrix_TakesTheSlowestNeighbour) {
  OpRates rates;
  rates.set(product(256, 100, 64), 7e9);
  rates.set(product(256, 200, 64), 3e9);
  rates.set(product(256, 1000, 64), 1e9);
  EXPECT_DOUBLE_EQ(rates.rate(product(256, 150, 64)).value_or(0), 3e9);
  EXPECT_DOUBLE_EQ(rates.rate(product(256, 150, 40)).value_or(0), 3e9);
  EXPECT_FALSE(rates.rate(product(256, 450, 64)).has_value());
  EXPECT_FALSE(rates.rate(product(256, 150, 1000)).has_value());
}

TEST(OpRates, OtherOps_AreNoNeighbours) {
  OpRates rates;
  rates.set(product(256, 128), 3e9);
  OpShape other = product(256, 128);
  other.kind = OpKind::kMatMulInputGradient;
  EXPECT_FALSE(rates.rate(other).has_value());
  other = product(256, 128);
  other.dtype = DType::kFloat32;
  EXPECT_FALSE(rates.rate(other).has_value());
  other = product(256, 128);
  other.reads = 3;  // with an addend
  EXPECT_FALSE(rates.rate(other).has_value());
}

TEST(OpRates, Slower_DividesEveryRate) {
  OpRates rates;
  rates.set(product(256, 128), 3e9);
  rates.set(norm(256), 8e9);
  const OpRates slow = rates.slower(2);
  EXPECT_DOUBLE_EQ(slow.rate(product(256, 128)).value_or(0), 1.5e9);
  EXPECT_DOUBLE_EQ(slow.rate(norm(256)).value_or(0), 4e9);
  EXPECT_EQ(slow.list().size(), 2U);
}

/// 1e12 FLOP/s, 1e9 bytes/s, by profile.
DeviceShape plain_device() {
  DeviceShape device;
  device.profile.flops = {{DType::kBfloat16, 1e12}};
  device.profile.memory_bandwidth = 1e9;
  return device;
}

TEST(PhaseCost, MeasuredOps_TakeTheirTimeAndOthersTheRoofline) {
  DeviceShape device = plain_device();
  PhaseCost cost;
  cost.ops = {{1e12, 0, product(256, 128)}, {0, 1e9, norm(256)}, {2e12, 0, product(256, 4096)}};
  EXPECT_DOUBLE_EQ(cost.seconds(device, DType::kBfloat16), 1 + 1 + 2);
  OpRates rates;
  rates.set(product(256, 128), 4e12);
  rates.set(norm(256), 5e8);
  device.rates = std::make_shared<const OpRates>(rates);
  EXPECT_DOUBLE_EQ(cost.seconds(device, DType::kBfloat16), 0.25 + 2 + 2);
}

TEST(PhaseCost, RatesOfADevice_EnterItsPlan) {
  Scene scene = make_scene(4, 4);
  for (LayerShape& layer : scene.model.layers) {
    for (PhaseCost::OpCost& op : layer.forward.ops) op.shape = product(512, 128);
    for (PhaseCost& cost : layer.backward) {
      for (PhaseCost::OpCost& op : cost.ops) op.shape = product(512, 128);
    }
  }
  add_device(scene, 1e12);
  const auto before = make_plan(scene.model, scene.work, scene.machine, {});
  ASSERT_TRUE(before.ok()) << before.status();
  OpRates rates;
  rates.set(product(512, 128), 0.5e12);
  scene.machine.devices[0].rates = std::make_shared<const OpRates>(rates);
  const auto after = make_plan(scene.model, scene.work, scene.machine, {});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_NEAR(after->predicted.step_seconds, 2 * before->predicted.step_seconds, 1e-6 * before->predicted.step_seconds);
}

TEST(FitRates, ProgramsThatTakeTwiceTheirTime_HalveTheirRates) {
  const DeviceShape device = plain_device();
  PhaseCost first;
  first.ops = {{1e12, 0, product(256, 128)}, {0, 1e9, norm(256)}};
  const OpRates fitted = fit_rates({{&first, 4.0, 1}}, device, DType::kBfloat16);
  EXPECT_NEAR(fitted.rate(product(256, 128)).value_or(0), 0.5e12, 1e6);
  EXPECT_NEAR(fitted.rate(norm(256)).value_or(0), 0.5e9, 1e3);
}

TEST(FitRates, OpsOfSeveralPrograms_AreToldApart) {
  const DeviceShape device = plain_device();
  // The product really takes 3 s, the norm 1 s as the profile says.
  PhaseCost both;
  both.ops = {{1e12, 0, product(256, 128)}, {0, 1e9, norm(256)}};
  PhaseCost alone;
  alone.ops = {{0, 1e9, norm(256)}};
  const OpRates fitted = fit_rates({{&both, 4.0, 10}, {&alone, 1.0, 10}}, device, DType::kBfloat16);
  DeviceShape learned = device;
  learned.rates = std::make_shared<const OpRates>(fitted);
  EXPECT_NEAR(both.seconds(learned, DType::kBfloat16), 4.0, 0.04);
  EXPECT_NEAR(alone.seconds(learned, DType::kBfloat16), 1.0, 0.02);
  EXPECT_NEAR(1e12 / fitted.rate(product(256, 128)).value_or(1), 3.0, 0.1);
}

/// How the time of a program is shared out no other program tells: fitted again and again, a share may go to nothing.
TEST(FitRates, OpsThatSeemToTakeNothing_AreNoFasterThanTheDevice) {
  DeviceShape device = plain_device();
  OpRates before;
  before.set(product(256, 128), 1e16);
  before.set(norm(256), 1e9);
  device.rates = std::make_shared<const OpRates>(before);
  PhaseCost both;
  both.ops = {{1e12, 0, product(256, 128)}, {0, 1e9, norm(256)}};
  const OpRates fitted = fit_rates({{&both, 4.0, 1}}, device, DType::kBfloat16);
  EXPECT_LE(fitted.rate(product(256, 128)).value_or(0), 4e12);
  DeviceShape learned = device;
  learned.rates = std::make_shared<const OpRates>(fitted);
  EXPECT_NEAR(both.seconds(learned, DType::kBfloat16), 4.0, 0.01);
  // What is quick for the profile may be quicker in a cache.
  before.set(norm(256), 1e13);
  device.rates = std::make_shared<const OpRates>(before);
  PhaseCost alone;
  alone.ops = {{0, 1e9, norm(256)}};
  EXPECT_DOUBLE_EQ(fit_rates({{&alone, 1e-4, 1}}, device, DType::kBfloat16).rate(norm(256)).value_or(0), 32e9);
}

TEST(FitRates, NothingSeen_FitsNothing) {
  PhaseCost cost;
  cost.ops = {{1e12, 0, product(256, 128)}, {0, 0, norm(256)}};
  EXPECT_TRUE(fit_rates({}, plain_device(), DType::kBfloat16).empty());
  EXPECT_TRUE(fit_rates({{&cost, 0.0, 1}}, plain_device(), DType::kBfloat16).empty());
}

}  // namespace
}  // namespace rondo::partition
