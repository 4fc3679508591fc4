// Short measured runs of single ops: every op of a program can be run alone, whole or on fewer tokens.
#include "rondo/devices/measure_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "rondo/devices/host_queue.h"
#include "rondo/devices/pool.h"

namespace rondo::devices {
namespace {

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kHeadSize = 16;
constexpr std::int64_t kWidth = kHeads * kHeadSize;

/// Adds, multiplies and attends; the sum and the product are the program's own.
OpList program() {
  OpList list;
  list.tokens = kTokens;
  list.sequence_length = 32;
  list.tensors = {
      {"x", {kTokens, kWidth}, DType::kFloat32, TensorRole::kInput, 0},
      {"sum", {kTokens, kWidth}, DType::kFloat32, TensorRole::kScratch, 0},
      {"w", {kTokens, kWidth}, DType::kFloat32, TensorRole::kWeight, 0},  // as many rows as tokens
      {"wide", {kTokens, kTokens}, DType::kFloat32, TensorRole::kScratch, 0},
      {"q", {kTokens, kHeads, kHeadSize}, DType::kFloat32, TensorRole::kInput, 1},
      {"bounds", {kTokens + 2}, DType::kInt32, TensorRole::kBatch, static_cast<std::uint32_t>(BatchTensor::kBounds)},
      {"o", {kTokens, kHeads, kHeadSize}, DType::kFloat32, TensorRole::kSaved, 0},
      {"lse", {kTokens, kHeads}, DType::kFloat32, TensorRole::kSaved, 1},
      {"dw", {kTokens, kWidth}, DType::kFloat32, TensorRole::kGradient, 0}};
  list.ops = {{OpKind::kAdd, NoAttributes{}, {0, 0}, {1}},
              {OpKind::kMatMul, MatMulAttributes{}, {1, 2}, {3}},
              {OpKind::kAttention, AttentionAttributes{}, {4, 4, 4, 5}, {6, 7}},
              {OpKind::kMatMulWeightGradient, MatMulAttributes{}, {3, 1}, {8}}};
  return list;
}

DeviceProfile expected(double flops) {
  DeviceProfile profile;
  profile.flops[DType::kFloat32] = flops;
  profile.memory_bandwidth = flops;
  return profile;
}

std::vector<OpProbe> probes_of(const OpList& list) {
  std::vector<OpProbe> probes;
  for (std::size_t op = 0; op < list.ops.size(); ++op) probes.push_back({&list, op, 32});
  return probes;
}

TEST(Alone, EveryOpOfAProgram_IsAProgram) {
  const OpList list = program();
  ASSERT_TRUE(validate(list).ok()) << validate(list);
  for (const std::uint32_t rows : {64U, 16U}) {
    for (const OpProbe& probe : probes_of(list)) {
      const OpList one = alone(probe, rows);
      EXPECT_TRUE(validate(one).ok()) << validate(one);
      EXPECT_EQ(one.tokens, rows);
      const OpShape shape = shape_of(one, one.ops[0], one.sequence_length);
      EXPECT_EQ(shape.rows, rows);
      EXPECT_EQ(shape.columns, probe.shape().columns);
    }
  }
}

TEST(Alone, FewerTokens_LeaveWeightsWhole) {
  const OpList list = program();
  const OpList product = alone({&list, 1, 32}, 16);
  EXPECT_EQ(product.tensors[product.ops[0].reads[0]].shape[0], 16);
  EXPECT_EQ(product.tensors[product.ops[0].reads[1]].shape[0], kTokens);
  EXPECT_EQ(product.tensors[product.ops[0].writes[0]].shape[0], 16);
  const OpList gradient = alone({&list, 3, 32}, 16);
  EXPECT_EQ(gradient.tensors[gradient.ops[0].writes[0]].shape[0], kTokens);
  const OpList attention = alone({&list, 2, 32}, 16);
  EXPECT_EQ(attention.tensors[attention.ops[0].reads[3]].shape[0], 16 + 2);
  EXPECT_EQ(attention.sequence_length, 16U);
}

TEST(Alone, ScalesOfDora_AreNoTokensWhereThereAreAsManyColumns) {
  OpList list;
  list.tokens = kTokens;
  list.sequence_length = 32;
  list.tensors = {{"w", {kTokens, kWidth}, DType::kFloat32, TensorRole::kScratch, 0},  // expanded
                  {"a", {4, kWidth}, DType::kFloat32, TensorRole::kWeight, 0},
                  {"b", {kTokens, 4}, DType::kFloat32, TensorRole::kWeight, 1},
                  {"m", {kTokens}, DType::kFloat32, TensorRole::kWeight, 2},
                  {"scale", {kTokens}, DType::kFloat32, TensorRole::kScratch, 1},
                  {"inverse", {kTokens}, DType::kFloat32, TensorRole::kScratch, 2},
                  {"x", {kTokens, kTokens}, DType::kFloat32, TensorRole::kInput, 0},
                  {"y", {kTokens, kTokens}, DType::kFloat32, TensorRole::kScratch, 3},
                  {"dx", {kTokens, kTokens}, DType::kFloat32, TensorRole::kOutput, 0},
                  {"dm", {kTokens}, DType::kFloat32, TensorRole::kGradient, 2}};
  list.ops = {{OpKind::kMagnitudeScale, MagnitudeAttributes{}, {0, 1, 2, 3}, {4, 5}},
              {OpKind::kColumnScale, ColumnScaleAttributes{}, {6, 4}, {7}},
              {OpKind::kColumnScaleBackward, NoAttributes{}, {6, 4, 5, 7}, {8, 9}}};
  for (const OpProbe& probe : probes_of(list)) {
    const OpList one = alone(probe, 16);
    EXPECT_TRUE(validate(one).ok()) << validate(one);
    // The lengths of a matrix's rows cost the same whatever the tokens.
    EXPECT_EQ(probe.shape().rows, kTokens);
    EXPECT_EQ(shape_of(one, one.ops[0], 16).rows, probe.op == 0 ? kTokens : 16);
  }
  EXPECT_EQ(shape_of(list, list.ops[0], 32).inner, 4);
}

TEST(OpShape, OfAProduct_NamesItsMatrix) {
  const OpList list = program();
  const OpShape shape = shape_of(list, list.ops[1], 32);
  EXPECT_EQ(shape.kind, OpKind::kMatMul);
  EXPECT_EQ(shape.rows, kTokens);
  EXPECT_EQ(shape.columns, kTokens);
  EXPECT_EQ(shape.inner, kWidth);
  EXPECT_EQ(shape.reads, 2);
  const OpShape gradient = shape_of(list, list.ops[3], 32);
  EXPECT_EQ(gradient.columns, kTokens);
  EXPECT_EQ(gradient.inner, kWidth);
  const OpShape attention = shape_of(list, list.ops[2], 32);
  EXPECT_EQ(attention.inner, 32);
  EXPECT_EQ(attention.heads, kHeads);
}

class MeasureOps : public testing::Test {
 protected:
  Device& open(const std::string& devices) {
    auto pool = open_pool({devices, ""}, threads_);
    EXPECT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
    return *pool_[0].device;
  }
  ThreadPool threads_{1};
  std::vector<PoolMember> pool_;
  const OpList list_ = program();
};

TEST_F(MeasureOps, EveryProbe_HasARate) {
  const auto measured = measure_ops(open("cpu"), probes_of(list_), expected(1e9), 10);
  ASSERT_EQ(measured.size(), list_.ops.size());
  for (const MeasuredOp& op : measured) {
    EXPECT_GT(op.rate, 0);
    EXPECT_EQ(op.shape.rows, kTokens);
    // Not the one by which it was told how long it would take.
    EXPECT_NE(op.rate, 1e9);
  }
  EXPECT_EQ(pool_[0].device->allocated_bytes(), 0U);
}

TEST_F(MeasureOps, LongOps_RunOnFewerTokensAndCountForAll) {
  // By these speeds the product alone would take minutes.
  const auto measured = measure_ops(open("cpu"), {{&list_, 1, 32}}, expected(3e3), 30);
  ASSERT_EQ(measured.size(), 2U);
  EXPECT_EQ(measured[0].shape.rows, kTokens);
  EXPECT_EQ(measured[1].shape.rows, 16);
  EXPECT_EQ(measured[0].rate, measured[1].rate);
}

TEST_F(MeasureOps, NoTimeLeft_TakesWhatIsExpected) {
  Device& cpu = open("cpu");
  const auto measured = measure_ops(cpu, probes_of(list_), expected(1e9), 0);
  ASSERT_GE(measured.size(), list_.ops.size());
  for (const MeasuredOp& op : measured) EXPECT_NEAR(op.rate, 1e9, 1);
  EXPECT_EQ(cpu.peak_bytes(), 0U);
}

/// Of few rows a product is all weights.
TEST_F(MeasureOps, NoTimeLeft_TakesWhatAllRowsWouldTake) {
  DeviceProfile profile = expected(1e12);
  profile.memory_bandwidth = 1e11;
  const OpProbe product{&list_, 1, 32};
  const OpCost cost = cost_of(alone(product, kTokens), 32);
  const auto measured = measure_ops(open("cpu"), {product}, profile, 0);
  ASSERT_EQ(measured.size(), 1U);
  EXPECT_DOUBLE_EQ(measured[0].rate, work_of(cost) / profile.seconds(cost, product.shape().dtype));
}

TEST_F(MeasureOps, DeviceThatComputesNothing_TakesWhatIsExpected) {
  for (const MeasuredOp& op : measure_ops(open("null"), probes_of(list_), expected(1e9), 1)) {
    EXPECT_NEAR(op.rate, 1e9, 1);
  }
}

/// Its driver takes a program over when it first runs; then a run takes a millisecond.
class LateDevice final : public Device, private Queue {
 public:
  static constexpr std::chrono::milliseconds kFirst{200};
  static constexpr std::chrono::milliseconds kLater{1};

  explicit LateDevice(double first_use_seconds) {
    caps_.memory_bytes = Bytes{1} << 30U;
    caps_.first_use_seconds = first_use_seconds;
  }
  const DeviceCaps& caps() const override { return caps_; }
  absl::StatusOr<Buffer> allocate(Bytes size, MemoryKind) override { return allocate_host(size, "test"); }
  absl::StatusOr<std::unique_ptr<Program>> compile(const OpList& list, const ArenaLayout&) override {
    return std::make_unique<LateProgram>(list);
  }
  absl::StatusOr<std::unique_ptr<Timeline>> timeline() override { return std::make_unique<HostTimeline>(); }
  Queue& queue(QueueRole) override { return *this; }
  void observe(WorkObserver*) override {}
  Bytes allocated_bytes() const override { return 0; }
  Bytes peak_bytes() const override { return 0; }

 private:
  class LateProgram final : public Program {
   public:
    explicit LateProgram(OpList list) : list_(std::move(list)) {}
    const OpList& ops() const override { return list_; }

   private:
    OpList list_;
  };

  void run(const Program& program, const Bindings&, std::span<const Point>, Point signal, const WorkTag&) override {
    std::this_thread::sleep_for(&program == known_ ? kLater : kFirst);
    known_ = &program;
    signal.timeline->signal(signal.value);
  }
  void copy(BufferView, BufferView, std::span<const Point>, Point signal, const WorkTag&) override {
    signal.timeline->signal(signal.value);
  }
  void clear(BufferView, std::span<const Point>, Point signal, const WorkTag&) override {
    signal.timeline->signal(signal.value);
  }

  DeviceCaps caps_;
  const Program* known_ = nullptr;
};

TEST(MeasureOpsLate, DriverThatCompilesAtTheFirstRun_IsNotTakenForASlowDevice) {
  LateDevice device(60);
  const OpList list = program();
  // Less time than one first run takes.
  const auto measured = measure_ops(device, probes_of(list), expected(1e9), 0.1);
  ASSERT_EQ(measured.size(), list.ops.size());
  for (const OpProbe& probe : probes_of(list)) {
    const auto op = std::ranges::find(measured, probe.shape(), &MeasuredOp::shape);
    ASSERT_NE(op, measured.end());
    const OpList one = alone(probe, kTokens);
    const double work = work_of(cost_of(one, one.ops[0], one.sequence_length));
    // A run takes its millisecond and what the host makes of it, not the fifth of a second.
    EXPECT_GT(op->rate, work / 0.1) << probe.op;
    EXPECT_LE(op->rate, work / 1e-3) << probe.op;
  }
}

TEST(MeasureOpsLate, FirstRunThatIsUnlikelyLong_IsNotCountedAlone) {
  LateDevice device(0);
  const OpList list = program();
  // The first run takes more than an op's share of it.
  const auto measured = measure_ops(device, probes_of(list), expected(1e9), 0.6);
  ASSERT_EQ(measured.size(), list.ops.size());
  for (const OpProbe& probe : probes_of(list)) {
    const auto op = std::ranges::find(measured, probe.shape(), &MeasuredOp::shape);
    ASSERT_NE(op, measured.end());
    const OpList one = alone(probe, kTokens);
    EXPECT_GT(op->rate, work_of(cost_of(one, one.ops[0], one.sequence_length)) / 0.1) << probe.op;
  }
}

}  // namespace
}  // namespace rondo::devices
