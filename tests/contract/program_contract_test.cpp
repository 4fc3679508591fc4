// What every backend promises about programs: compilation, bindings, replay, scratch, and that running allocates
// nothing. Whether ops compute the right numbers is another suite's matter; here an addition must do.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "allocation_count.h"
#include "contract_fixture.h"

namespace rondo::devices::contract {
namespace {

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kWidth = 96;
constexpr Bytes kTensor = kTokens * kWidth * sizeof(float);

/// y = `adds` + 1 times x: a chain through scratch tensors.
OpList times(int adds) {
  OpList list;
  list.tokens = static_cast<std::uint32_t>(kTokens);
  const Shape shape{kTokens, kWidth};
  list.tensors.push_back({"x", shape, DType::kFloat32, TensorRole::kInput, 0});
  TensorId last = 0;
  for (int i = 0; i < adds; ++i) {
    const TensorRole role = i + 1 == adds ? TensorRole::kOutput : TensorRole::kScratch;
    list.tensors.push_back({"t" + std::to_string(i), shape, DType::kFloat32, role, 0});
    const auto y = static_cast<TensorId>(list.tensors.size() - 1);
    list.ops.push_back({OpKind::kAdd, NoAttributes{}, {last, 0}, {y}});
    last = y;
  }
  return list;
}

/// A program with its own buffers on the device.
struct Bound {
  Buffer x;
  Buffer y;
  Buffer scratch;
  Bindings bindings;
};

class ProgramContract : public Contract {
 protected:
  absl::Status build(int adds, TensorRole role_of_x = TensorRole::kInput) {
    list_ = times(adds);
    list_.tensors.front().role = role_of_x;
    layout_ = plan_arena(list_);
    auto compiled = device().compile(list_, layout_);
    if (!compiled.ok()) return compiled.status();
    program_ = *std::move(compiled);
    return absl::OkStatus();
  }
  Bound bind() {
    Bound bound;
    bound.x = allocate(kTensor);
    bound.y = allocate(kTensor);
    bound.scratch = allocate(std::max<Bytes>(layout_.size, 64));
    bound.bindings.tensors.assign(list_.tensors.size(), BufferView{});
    bound.bindings.tensors.front() = bound.x.view();
    bound.bindings.tensors.back() = bound.y.view();
    bound.bindings.scratch = bound.scratch.view();
    return bound;
  }
  /// Small whole numbers: sums are exact in fp32.
  static Buffer numbers(float seed, float factor = 1) {
    Buffer buffer = host(kTensor);
    auto* values = reinterpret_cast<float*>(buffer.view().host());
    for (std::int64_t i = 0; i < kTokens * kWidth; ++i) values[i] = factor * (seed + static_cast<float>(i % 1000));
    return buffer;
  }

  OpList list_;
  ArenaLayout layout_;
  std::unique_ptr<Program> program_;
};
#define PROGRAM_TEST(Name) CONTRACT_TEST_ON(ProgramContract, Name)

PROGRAM_TEST(Compile_AnAddition_SucceedsOrNamesTheOp) {
  const absl::Status status = build(1);
  if (status.ok()) {
    EXPECT_EQ(program_->ops().ops.size(), 1U);
    return;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("'add'"));
}

PROGRAM_TEST(Run_TwoBindings_GivesEachItsAnswer) {
  ASSERT_TRUE(build(1).ok());
  const Bound a = bind();
  const Bound b = bind();
  ASSERT_TRUE(copy(up(), numbers(1).view(), a.x.view()).ok());
  ASSERT_TRUE(copy(up(), numbers(100).view(), b.x.view()).ok());
  const auto line = timeline();
  compute().run(*program_, a.bindings, {}, {line.get(), 1}, {"contract"});
  compute().run(*program_, b.bindings, {}, {line.get(), 2}, {"contract"});
  ASSERT_TRUE(line->wait(2, patience()).ok()) << line->wait(2, patience());
  expect_contents(a.y.view(), numbers(1, 2).view());
  expect_contents(b.y.view(), numbers(100, 2).view());
}

PROGRAM_TEST(Run_WithScratchAndManyInFlight_GivesEachItsAnswer) {
  ASSERT_TRUE(build(7).ok());
  ASSERT_GT(layout_.size, 0U);
  std::vector<Bound> bounds;
  for (int i = 0; i < 6; ++i) {
    bounds.push_back(bind());
    ASSERT_TRUE(copy(up(), numbers(static_cast<float>(i)).view(), bounds.back().x.view()).ok());
  }
  const auto line = timeline();
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    compute().run(*program_, bounds[i].bindings, {}, {line.get(), i + 1}, {"contract"});
  }
  ASSERT_TRUE(line->wait(bounds.size(), patience()).ok());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    expect_contents(bounds[i].y.view(), numbers(static_cast<float>(i), 8).view());
  }
}

PROGRAM_TEST(Run_UploadComputeDownload_OrderedByPointsAlone) {
  ASSERT_TRUE(build(3).ok());
  const Bound bound = bind();
  std::vector<Buffer> inputs;
  std::vector<Buffer> outputs;
  const auto uploaded = timeline();
  const auto computed = timeline();
  const auto downloaded = timeline();
  for (std::uint64_t i = 0; i < 12; ++i) {
    inputs.push_back(numbers(static_cast<float>(i)));
    outputs.push_back(host(kTensor));
  }
  for (std::uint64_t i = 0; i < 12; ++i) {
    // The one pair of buffers is used again only when the piece before is through with it.
    const Point input_free{computed.get(), i};
    const std::array<Point, 2> can_run = {Point{uploaded.get(), i + 1}, Point{downloaded.get(), i}};
    const Point output_ready{computed.get(), i + 1};
    up().copy(inputs[i].view(), bound.x.view(), {&input_free, 1}, {uploaded.get(), i + 1}, {"contract"});
    compute().run(*program_, bound.bindings, can_run, {computed.get(), i + 1}, {"contract"});
    down().copy(bound.y.view(), outputs[i].view(), {&output_ready, 1}, {downloaded.get(), i + 1}, {"contract"});
  }
  ASSERT_TRUE(downloaded->wait(12, patience()).ok());
  for (std::uint64_t i = 0; i < 12; ++i) {
    EXPECT_TRUE(same_bytes(outputs[i].view(), numbers(static_cast<float>(i), 4).view())) << i;
  }
}

PROGRAM_TEST(Run_ManyTimes_AllocatesNothing) {
  ASSERT_TRUE(build(5).ok());
  const Bound bound = bind();
  const Buffer home = host(kTensor);
  const auto line = timeline();
  const auto round = [&](std::uint64_t i) {
    const Point a{line.get(), 4 * i};
    const Point b{line.get(), 4 * i + 1};
    const Point c{line.get(), 4 * i + 2};
    const Point d{line.get(), 4 * i + 3};
    up().copy(home.view(), bound.x.view(), {&a, 1}, b, {"contract"});
    compute().run(*program_, bound.bindings, {&b, 1}, c, {"contract"});
    down().copy(bound.y.view(), home.view(), {&c, 1}, d, {"contract"});
    compute().clear(bound.y.view(), {&d, 1}, {line.get(), 4 * i + 4}, {"contract"});
    return line->wait(4 * i + 4, patience());
  };
  // Threads may set themselves up once, and a backend what serves runs that recur.
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(round(i).ok());
  const std::uint64_t before = rondo::allocation::allocations_so_far();
  bool good = true;
  for (std::uint64_t i = 3; i <= 50; ++i) good = round(i).ok() && good;
  EXPECT_EQ(rondo::allocation::allocations_so_far(), before);
  EXPECT_TRUE(good);
}

PROGRAM_TEST(Run_BoundToHostMemory_FollowsTheCapability) {
  ASSERT_TRUE(build(1).ok());
  Bound bound = bind();
  const Buffer input = numbers(5);
  const Buffer output = host(kTensor);
  bound.bindings.tensors.front() = input.view();
  bound.bindings.tensors.back() = output.view();
  const auto line = timeline();
  compute().run(*program_, bound.bindings, {}, {line.get(), 1}, {"contract"});
  const absl::Status status = line->wait(1, patience());
  if (device().caps().unified_memory) {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(same_bytes(output.view(), numbers(5, 2).view()));
  } else {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("'x'"));
  }
}

PROGRAM_TEST(Run_WithWeightsInPlace_ReadsWhatLiesThereThen) {
  const Buffer weights = *allocate_host_pages(3 * kTensor, "contract");
  const BufferView x = weights.view().part(kTensor, kTensor);
  if (!device().caps().weights_in_place) {
    EXPECT_EQ(device().use_in_place(x).code(), absl::StatusCode::kUnimplemented);
    return;
  }
  ASSERT_TRUE(build(1, TensorRole::kWeight).ok());
  Bound bound = bind();
  const auto line = timeline();
  const auto run = [&](BufferView view, std::uint64_t value) {
    bound.bindings.tensors.front() = view;
    compute().run(*program_, bound.bindings, {}, {line.get(), value}, {"contract"});
    return line->wait(value, patience());
  };
  ASSERT_TRUE(device().use_in_place(x).ok());
  ASSERT_TRUE(device().use_in_place(weights.view()).ok());
  for (std::uint64_t value = 1; value < 4; ++value) {
    const Buffer now = numbers(static_cast<float>(value));
    std::memcpy(x.host(), now.view().host(), kTensor);
    const absl::Status status = run(x, value);
    ASSERT_TRUE(status.ok()) << status;
    expect_contents(bound.y.view(), numbers(static_cast<float>(value), 2).view());
  }
  const Buffer other = *allocate_host_pages(kTensor, "contract");
  const absl::Status status = run(other.view(), 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("'x'"));
}

PROGRAM_TEST(Compile_OfAProductInFp8_IsRefusedByNameWhereThereIsNone) {
  OpList list;
  list.tokens = 16;
  list.tensors = {{"x", {16, 32}, DType::kBfloat16, TensorRole::kInput, 0},
                  {"w", {48, 32}, DType::kBfloat16, TensorRole::kWeight, 0},
                  {"y", {16, 48}, DType::kBfloat16, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kMatMul, MatMulAttributes{.fp8 = Fp8Format::kE4m3}, {0, 1}, {2}}};
  const absl::Status status = device().compile(list, plan_arena(list)).status();
  if (device().caps().fp8) {
    EXPECT_TRUE(status.ok()) << status;
  } else {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("'w'"));
  }
}

PROGRAM_TEST(Run_AfterAFailedAttempt_IsUntouchedByIt) {
  ASSERT_TRUE(build(2).ok());
  const Bound lost = bind();
  const Bound good = bind();
  ASSERT_TRUE(copy(up(), numbers(1).view(), good.x.view()).ok());
  const auto cause = timeline();
  const auto attempt = timeline();
  const auto again = timeline();
  cause->poison(absl::DataLossError("told to fail"));
  const Point wait_cause{cause.get(), 1};
  const Point wait_attempt{attempt.get(), 1};
  const Buffer home = pattern(kTensor, 8);
  up().copy(home.view(), lost.x.view(), {&wait_cause, 1}, {attempt.get(), 1}, {"contract"});
  compute().run(*program_, lost.bindings, {&wait_attempt, 1}, {attempt.get(), 2}, {"contract"});
  const Point lost_result{attempt.get(), 2};
  down().copy(lost.y.view(), home.view(), {&lost_result, 1}, {attempt.get(), 3}, {"contract"});
  compute().run(*program_, good.bindings, {}, {again.get(), 1}, {"contract"});
  ASSERT_TRUE(again->wait(1, patience()).ok());
  EXPECT_EQ(attempt->wait(3, patience()).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(attempt->completed(), 0U);
  EXPECT_TRUE(same_bytes(home.view(), pattern(kTensor, 8).view()));  // nothing left the device
  expect_contents(good.y.view(), numbers(1, 3).view());
}

}  // namespace
}  // namespace rondo::devices::contract
