// Runs as graphs: what is captured when, what a graph is known by, and how room is made.
#include "graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_fixture.h"
#include "kernels/params.h"
#include "kernels/product.h"
#include "rondo/base/status.h"
#include "rondo/devices/update_block.h"

namespace rondo::devices::cuda::testing {
namespace {

using ::testing::Key;
using ::testing::UnorderedElementsAre;

using test::patience;

/// What was called since.
std::map<std::string, int> calls_since(const std::map<std::string, int>& before) {
  std::map<std::string, int> since;
  for (const auto& [name, count] : all_calls()) {
    const auto found = before.find(name);
    const int more = count - (found == before.end() ? 0 : found->second);
    if (more > 0) since[name] = more;
  }
  return since;
}

class CudaGraphs : public CudaDevice {
 protected:
  static int graphs_made() { return calls_of("cuGraphInstantiateWithFlags"); }
  static int graphs_given_up() { return calls_of("cuGraphExecDestroy"); }
};

TEST_F(CudaGraphs, ARunThatRecurs_IsCapturedTheSecondTimeAndThenLaunchedAsAWhole) {
  open();
  const auto program = compile(tallies());
  const Bindings bindings = bind_tallies();
  const int steps_before = calls_of("cuLaunchKernel");
  ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  const int steps = calls_of("cuLaunchKernel") - steps_before;
  EXPECT_EQ(steps, kTallySteps);
  EXPECT_EQ(calls_of("cuStreamBeginCapture"), 0);
  ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  EXPECT_EQ(calls_of("cuStreamBeginCapture"), 1);
  EXPECT_EQ(calls_of("cuGraphUpload"), 1);
  EXPECT_EQ(calls_of("cuGraphDestroy"), 1);
  EXPECT_EQ(calls_of("cuGraphLaunch"), 1);
  const auto line = timeline();
  const auto before = all_calls();
  for (std::uint64_t i = 0; i < 300; ++i) {  // more than the ring holds
    const Point last{line.get(), i};
    compute().run(*program, bindings, {&last, 1}, {line.get(), i + 1}, {"layer 3"});
  }
  ASSERT_EQ(line->wait(300, patience()), absl::OkStatus());
  auto calls = calls_since(before);
  EXPECT_EQ(calls["cuGraphLaunch"], 300);
  calls.erase("cuStreamWaitEvent");  // only where the run before is still in flight
  EXPECT_THAT(calls, UnorderedElementsAre(Key("cuGraphLaunch"), Key("cuEventRecord"), Key("cuEventSynchronize")));
  expect_runs(bindings, 302);
}

TEST_F(CudaGraphs, ARunThatMayFault_HasOneCallMore) {
  open();
  const OpList list = look_up();
  const auto program = compile(list);
  const Bindings bindings = bind(list);
  put(bindings.tensors[0], std::vector<std::int32_t>(kTokens, 2).data());
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  const auto before = all_calls();
  ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  EXPECT_THAT(calls_since(before), UnorderedElementsAre(Key("cuGraphLaunch"), Key("cuMemcpyDtoHAsync"),
                                                        Key("cuEventRecord"), Key("cuEventSynchronize")));
}

/// Each expert's matrices have addresses of their own.
TEST_F(CudaGraphs, OfManyExperts_AreMadeAsAnyOther) {
  open();
  OpList list;
  list.tokens = kTokens;
  list.tensors = {{"dy", {kTokens, 8}, DType::kFloat32, TensorRole::kInput, 0},
                  {"offsets", {kMostExperts + 1}, DType::kInt32, TensorRole::kInput, 1}};
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    Op op{OpKind::kGroupedMatMulWeightGradient, GroupAttributes{}, {0, 0, 1}, {}};
    for (std::int64_t e = 0; e < kMostExperts; ++e) {
      op.writes.push_back(static_cast<TensorId>(list.tensors.size()));
      list.tensors.push_back({"dw", {8, 8}, DType::kFloat32, TensorRole::kGradient, op.writes.back()});
    }
    list.ops.push_back(op);
  }
  const auto program = compile(list);
  const Bindings bindings = bind(list);
  put(bindings.tensors[1], std::vector<std::int32_t>(kMostExperts + 1, 0).data());
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  EXPECT_EQ(calls_of("cuGraphLaunch"), 2);
}

TEST_F(CudaGraphs, ASingleStep_IsNeverCaptured) {
  open();
  const OpList list = addition();
  const auto program = compile(list);
  const Bindings bindings = bind(list);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  EXPECT_EQ(calls_of("cuStreamBeginCapture"), 0);
  EXPECT_EQ(calls_of("cuLaunchKernel"), 4);
}

/// Turns are counted by the computing queue alone.
TEST_F(CudaGraphs, OfRunsOnAnotherQueue_AreNotMade) {
  open();
  const auto program = compile(tallies());
  const Bindings bindings = bind_tallies();
  const auto line = timeline();
  for (std::uint64_t i = 1; i <= 4; ++i) {
    up().run(*program, bindings, {}, {line.get(), i}, {"layer 3"});
    ASSERT_EQ(line->wait(i, patience()), absl::OkStatus());
  }
  EXPECT_EQ(calls_of("cuStreamBeginCapture"), 0);
  expect_runs(bindings, 4);
}

TEST_F(CudaGraphs, SwitchedOff_AreNotMade) {
  open({}, {nullptr, std::nullopt});
  const auto program = compile(tallies());
  const Bindings bindings = bind_tallies();
  for (int i = 0; i < 4; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  EXPECT_EQ(calls_of("cuStreamBeginCapture"), 0);
  expect_runs(bindings, 4);
}

TEST_F(CudaGraphs, OfADriverWithoutThem_AreNotMade) {
  for (const char* lacking : {"cuGraphLaunch", "cuStreamBeginCapture", "cuGraphExecDestroy"}) {
    fake_lacks(lacking);
    Driver driver;
    const absl::Status filled = fill_driver(driver, fake_look_up, "");
    fake_lacks("");
    ASSERT_EQ(filled, absl::OkStatus()) << lacking;
    EXPECT_FALSE(driver.has_graphs()) << lacking;
    EXPECT_EQ(driver.capture_end, nullptr) << lacking;
    reset_fake();
    device_ = *open_card(driver, fake_image(), {}, {}, nullptr);
    auto program = compile(tallies());
    const Bindings bindings = bind_tallies();
    for (int i = 0; i < 4; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
    expect_runs(bindings, 4);
    EXPECT_EQ(graphs_made(), 0);
    program.reset();
    bound_.clear();
    device_.reset();  // before its driver
  }
}

TEST_F(CudaGraphs, OfOtherAddresses_AreOthers) {
  open();
  const auto program = compile(tallies());
  std::vector<Bindings> bindings;
  for (int i = 0; i < 3; ++i) bindings.push_back(bind_tallies());
  Bindings mixed = bindings[0];
  mixed.tensors[2] = bindings[1].tensors[2];  // one address is enough
  for (int i = 0; i < 5; ++i) {
    for (const Bindings& each : bindings) ASSERT_EQ(run(*program, each), absl::OkStatus());
  }
  EXPECT_EQ(graphs_made(), 3);
  EXPECT_EQ(calls_of("cuGraphLaunch"), 3 * 4);
  for (const Bindings& each : bindings) expect_runs(each, 5);
  ASSERT_EQ(run(*program, mixed), absl::OkStatus());
  EXPECT_EQ(get(bindings[0].tensors[2])[0], 5.0F * kTokens);
  EXPECT_EQ(get(bindings[1].tensors[2])[0], 6.0F * kTokens);
}

/// x through two dropouts, whose random numbers follow from the layer's number.
TEST_F(CudaGraphs, OfOtherLayers_AreOthersWhereTheLayerMatters) {
  OpList list;
  list.tokens = kTokens;
  const Shape shape{kTokens, kWidth};
  list.tensors = {{"x", shape, DType::kFloat32, TensorRole::kInput, 0},
                  {"keys", {kTokens}, DType::kUInt64, TensorRole::kBatch, 0},
                  {"y", shape, DType::kFloat32, TensorRole::kOutput, 0},
                  {"z", shape, DType::kFloat32, TensorRole::kOutput, 1}};
  list.ops = {{OpKind::kDropout, DropoutAttributes{0.3F, 5, false}, {0, 1}, {2}},
              {OpKind::kDropout, DropoutAttributes{0.3F, 6, false}, {2, 1}, {3}}};
  ASSERT_EQ(validate(list), absl::OkStatus());
  std::vector<std::vector<float>> results;
  for (const bool graphs : {true, false}) {
    open({}, {nullptr, graphs ? std::optional(GraphLimits{}) : std::nullopt});
    auto program = compile(list);
    Bindings bindings = bind(list);
    put(bindings.tensors[0], std::vector<float>(kTokens * kWidth, 1.0F).data());
    std::vector<std::uint64_t> keys(kTokens);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = 77 * i + 5;
    put(bindings.tensors[1], keys.data());
    for (const std::uint32_t layer : {3U, 4U}) {
      bindings.layer = layer;
      for (int i = 0; i < 4; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
      results.push_back(get(bindings.tensors[3]));
    }
    EXPECT_EQ(graphs_made(), graphs ? 2 : 0);
    program.reset();
    bound_.clear();
  }
  EXPECT_NE(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
}

/// An update lists what it changes among what it reads. With two gradients the order of two updates can be seen.
TEST_F(CudaGraphs, OfOpsThatChangeTheSameState_KeepTheirOrder) {
  constexpr auto kElements = static_cast<std::int64_t>(kUpdateBlock);
  OpList list;
  const auto flat = [&](const char* name, TensorRole role, std::uint32_t index) {
    list.tensors.push_back({name, {kElements}, DType::kFloat32, role, index});
    return static_cast<TensorId>(list.tensors.size() - 1);
  };
  list.tokens = 1;
  list.tensors = {{"factors", {1, kUpdateFactors}, DType::kFloat32, TensorRole::kInput, 0},
                  {"keys", {1}, DType::kUInt64, TensorRole::kInput, 1},
                  {"owners", {1, 2}, DType::kInt32, TensorRole::kInput, 2}};
  const TensorId gradients[] = {flat("one", TensorRole::kInput, 3), flat("other", TensorRole::kInput, 4)};
  const TensorId state[] = {flat("master", TensorRole::kState, 0), flat("first", TensorRole::kState, 1),
                            flat("second", TensorRole::kState, 2)};
  for (const TensorId gradient : gradients) {
    list.ops.push_back({OpKind::kAdamW, NoAttributes{}, {gradient, 0, 1, 2, state[0], state[1], state[2]}, {}});
  }
  ASSERT_EQ(validate(list), absl::OkStatus());
  open();
  const auto program = compile(list);
  const Bindings bindings = bind(list);
  const std::vector<float> factors = {1, 1, 0.1F, 0.9F, 0.1F, 1e-8F, 0.01F, 1};
  put(bindings.tensors[0], factors.data());
  put(bindings.tensors[1], std::vector<std::uint64_t>(1).data());
  put(bindings.tensors[2], std::vector<std::int32_t>(2).data());
  put(bindings.tensors[gradients[0]], std::vector<float>(kElements, 1.0F).data());
  put(bindings.tensors[gradients[1]], std::vector<float>(kElements, -3.0F).data());
  std::vector<float> masters;
  for (int i = 0; i < 4; ++i) {  // step by step, then by the graph
    for (const TensorId id : state) put(bindings.tensors[id], std::vector<float>(kElements, 0.5F).data());
    ASSERT_EQ(run(*program, bindings), absl::OkStatus());
    masters.push_back(get(bindings.tensors[state[0]])[0]);
  }
  EXPECT_EQ(graphs_made(), 1);
  EXPECT_THAT(masters, ::testing::Each(masters[0]));
}

TEST_F(CudaGraphs, OfTensorsThatLieOverEachOther_KeepTheirOrder) {
  OpList list;
  list.tokens = kTokens;
  const Shape shape{kTokens, kWidth};
  list.tensors = {{"a", shape, DType::kFloat32, TensorRole::kInput, 0},
                  {"b", shape, DType::kFloat32, TensorRole::kInput, 1},
                  {"sum", shape, DType::kFloat32, TensorRole::kOutput, 0},
                  {"double", shape, DType::kFloat32, TensorRole::kOutput, 1}};
  list.ops = {{OpKind::kAdd, NoAttributes{}, {0, 1}, {2}}, {OpKind::kAdd, NoAttributes{}, {1, 1}, {3}}};
  ASSERT_EQ(validate(list), absl::OkStatus());
  open();
  const auto program = compile(list);
  Bindings bindings = bind(list);
  bindings.tensors[3] = bindings.tensors[0];  // written once it has been read
  put(bindings.tensors[1], std::vector<float>(kTokens * kWidth, 7.0F).data());
  for (int i = 0; i < 4; ++i) {
    put(bindings.tensors[0], std::vector<float>(kTokens * kWidth, 1.0F).data());
    ASSERT_EQ(run(*program, bindings), absl::OkStatus());
    EXPECT_EQ(get(bindings.tensors[2])[0], 8.0F) << i;
    EXPECT_EQ(get(bindings.tensors[3])[0], 14.0F) << i;
  }
}

TEST_F(CudaGraphs, OfOtherLayers_AreTheSameWhereItDoesNot) {
  open();
  const auto program = compile(tallies());
  Bindings bindings = bind_tallies();
  for (std::uint32_t layer = 0; layer < 6; ++layer) {
    bindings.layer = layer;
    ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  }
  EXPECT_EQ(graphs_made(), 1);
  expect_runs(bindings, 6);
}

/// The same of so many rows, whose sums by chunks need workspace.
OpList with_workspace(std::int64_t rows) {
  OpList list = tallies();
  list.tokens = static_cast<std::uint32_t>(rows);
  list.tensors[0].shape = {rows, kWidth};
  return list;
}

TEST_F(CudaGraphs, OfAWorkspaceThatWasLeft_AreNotLaunched) {
  open();
  const auto program = compile(tallies());
  const Bindings bindings = bind_tallies();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  EXPECT_EQ(graphs_made(), 1);
  const int workspaces = calls_of("cuMemFree");
  const Buffer in_the_way = *device_->allocate(1U << 20U, MemoryKind::kDevice);
  const auto larger = compile(with_workspace(64 * kTokens));
  ASSERT_GT(calls_of("cuMemFree"), workspaces) << "the workspace did not move";
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  EXPECT_EQ(graphs_made(), 2);
  expect_runs(bindings, 6);
}

TEST_F(CudaGraphs, OfAProgramThatIsGone_AreGone) {
  open();
  auto program = compile(tallies());
  const auto other = compile(tallies());
  const Bindings bindings = bind_tallies();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(run(*program, bindings), absl::OkStatus());
    ASSERT_EQ(run(*other, bindings), absl::OkStatus());
  }
  EXPECT_EQ(graphs_made(), 2);
  const int synchronized = calls_of("cuStreamSynchronize");
  program.reset();
  EXPECT_EQ(graphs_given_up(), 1);
  EXPECT_EQ(calls_of("cuStreamSynchronize"), synchronized) << "the host saw it end";
  ASSERT_EQ(run(*other, bindings), absl::OkStatus());
  EXPECT_EQ(graphs_made(), 2);
  expect_runs(bindings, 7);
}

TEST_F(CudaGraphs, OfAProgramThatOutlivesItsDevice_AreGoneWithIt) {
  open();
  const auto program = compile(tallies());
  const Bindings bindings = bind_tallies();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  bound_.clear();
  device_.reset();
  EXPECT_EQ(graphs_given_up(), 1);
}

TEST_F(CudaGraphs, PastTheirLimit_LetTheRestGoStepByStep) {
  GraphLimits limits;
  limits.steps = 2 * kTallySteps + 1;  // two graphs
  open({}, {nullptr, limits});
  const auto program = compile(tallies());
  std::vector<Bindings> bindings;
  for (int i = 0; i < 3; ++i) bindings.push_back(bind_tallies());
  // In turn: giving up the one that ran longest ago would make a graph for every run.
  for (int i = 0; i < 20; ++i) {
    for (const Bindings& each : bindings) ASSERT_EQ(run(*program, each), absl::OkStatus());
  }
  EXPECT_EQ(graphs_made(), 2);
  EXPECT_EQ(graphs_given_up(), 0);
  for (const Bindings& each : bindings) expect_runs(each, 20);
}

TEST_F(CudaGraphs, PastTheirLimit_GiveUpWhatHasNotRunForLong) {
  GraphLimits limits;
  limits.steps = 2 * kTallySteps + 1;
  limits.idle_turns = 8;
  open({}, {nullptr, limits});
  const auto program = compile(tallies());
  std::vector<Bindings> bindings;
  for (int i = 0; i < 3; ++i) bindings.push_back(bind_tallies());
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(run(*program, bindings[0]), absl::OkStatus());
    ASSERT_EQ(run(*program, bindings[1]), absl::OkStatus());
  }
  EXPECT_EQ(graphs_made(), 2);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(run(*program, bindings[1]), absl::OkStatus());
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(*program, bindings[2]), absl::OkStatus());
  EXPECT_EQ(graphs_given_up(), 1);
  EXPECT_EQ(graphs_made(), 3);
  const int launched = calls_of("cuGraphLaunch");
  ASSERT_EQ(run(*program, bindings[1]), absl::OkStatus());  // it was not this one
  EXPECT_EQ(calls_of("cuGraphLaunch"), launched + 1);
  expect_runs(bindings[0], 3);
  expect_runs(bindings[1], 12);
  expect_runs(bindings[2], 3);
}

/// What may still be running is not given up: that would have to wait for the stream.
TEST_F(CudaGraphs, PastTheirLimit_NeverWaitForTheStream) {
  GraphLimits limits;
  limits.steps = kTallySteps + 1;  // one graph
  limits.idle_turns = 1;
  open({}, {nullptr, limits});
  const OpList list = with_workspace(std::int64_t{1} << 15U);
  const auto large = compile(list);
  const auto small = compile(tallies());
  const Bindings many = bind(list);
  const Bindings few = bind_tallies();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(run(*large, many), absl::OkStatus());
  ASSERT_EQ(graphs_made(), 1);
  const int synchronized = calls_of("cuStreamSynchronize");
  const auto line = timeline();
  std::uint64_t value = 0;
  for (int i = 0; i < 3; ++i) compute().run(*large, many, {}, {line.get(), ++value}, {"large"});
  for (int i = 0; i < 3; ++i) compute().run(*small, few, {}, {line.get(), ++value}, {"small"});
  ASSERT_EQ(line->wait(value, patience()), absl::OkStatus());
  EXPECT_EQ(calls_of("cuStreamSynchronize"), synchronized);
  expect_runs(few, 3);
}

TEST_F(CudaGraphs, OnACardWithoutFreeMemory_AreNotMade) {
  GraphLimits limits;
  limits.free_memory = Bytes{1} << 40U;
  open({}, {nullptr, limits});
  const auto program = compile(tallies());
  const Bindings bindings = bind_tallies();
  for (int i = 0; i < 6; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  EXPECT_EQ(calls_of("cuStreamBeginCapture"), 0);
  EXPECT_LE(calls_of("cuMemGetInfo"), 2);  // opening, and once for all these runs
  expect_runs(bindings, 6);
}

/// What a library of products does in a stream, played with our own kernel.
class StreamEngine final : public ProductEngine {
 public:
  absl::StatusOr<std::uint32_t> plan(const ProductShape& shape) override {
    shapes_.push_back(shape);
    return static_cast<std::uint32_t>(shapes_.size() - 1);
  }
  absl::Status run(std::uint32_t plan, const Operands& operands, DevicePointer, StreamHandle stream) override {
    ++runs;
    if (allocates) {
      DevicePointer memory = 0;
      if (fake_driver().memory_allocate(&memory, 64) == kSuccess) (void)fake_driver().memory_free(memory);
    }
    const ProductShape& shape = shapes_[plan];
    const auto pointer = [](DevicePointer address) { return reinterpret_cast<void*>(address); };
    ProductParams p{};
    p.a = pointer(operands.a);
    p.b = pointer(operands.b);
    p.addend = shape.has_addend ? pointer(operands.addend) : nullptr;
    p.c = pointer(operands.c);
    p.rows = shape.rows;
    p.columns = shape.columns;
    p.inner = shape.inner;
    p.a_row = shape.a_transposed ? 1 : shape.inner;
    p.a_column = shape.a_transposed ? shape.rows : 1;
    p.b_row = shape.b_transposed ? 1 : shape.columns;
    p.b_column = shape.b_transposed ? shape.inner : 1;
    p.alpha = operands.alpha;
    p.c_storage = shape.result;
    void* arguments[] = {&p};
    FunctionHandle function = nullptr;
    EXPECT_EQ(fake_driver().module_function(&function, nullptr, entry_of(KernelId::k_product_fp32)), kSuccess);
    const auto blocks = [](std::int64_t size) { return static_cast<unsigned>((size + kTile - 1) / kTile); };
    const Result result = fake_driver().launch(function, blocks(shape.columns), blocks(shape.rows), 1, kTileThreads, 1,
                                               1, kProductShared, stream, arguments, nullptr);
    return status_of(fake_driver(), result, "cublasLtMatmul");
  }
  Bytes workspace_bytes(std::uint32_t) const override { return 256; }
  std::string name() const override { return "played"; }

  int runs = 0;
  bool allocates = false;  // which a stream that captures does not go along with

 private:
  std::vector<ProductShape> shapes_;
};

class CudaGraphsOfProducts : public CudaGraphs {
 protected:
  void SetUp() override {
    list_.tokens = kTokens;
    list_.tensors = {{"dy", {kTokens, 8}, DType::kFloat32, TensorRole::kInput, 0},
                     {"x", {kTokens, 12}, DType::kFloat32, TensorRole::kInput, 1},
                     {"dw", {8, 12}, DType::kFloat32, TensorRole::kGradient, 0},
                     {"again", {8, 12}, DType::kFloat32, TensorRole::kGradient, 1}};
    list_.ops = {{OpKind::kMatMulWeightGradient, MatMulAttributes{}, {0, 1}, {2}},
                 {OpKind::kMatMulWeightGradient, MatMulAttributes{}, {0, 1}, {3}}};
    const EngineFactory make = [this]() -> absl::StatusOr<std::unique_ptr<ProductEngine>> {
      auto made = std::make_unique<StreamEngine>();
      engine_ = made.get();
      return made;
    };
    open({}, {make, GraphLimits{}});
    bindings_ = bind(list_);
    put(bindings_.tensors[0], std::vector<float>(kTokens * 8, 2.0F).data());
    put(bindings_.tensors[1], std::vector<float>(kTokens * 12, 0.5F).data());
    for (const std::size_t gradient : {2U, 3U}) put(bindings_.tensors[gradient], std::vector<float>(8 * 12).data());
  }
  void expect_sums(int runs) {
    const std::vector<float> expected(8 * 12, static_cast<float>(runs * kTokens));
    EXPECT_EQ(get(bindings_.tensors[2]), expected);
    EXPECT_EQ(get(bindings_.tensors[3]), expected);
  }

  OpList list_;
  Bindings bindings_;
  StreamEngine* engine_ = nullptr;
};

TEST_F(CudaGraphsOfProducts, OfALibrary_HoldThemToo) {
  const auto program = compile(list_);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(run(*program, bindings_), absl::OkStatus());
  EXPECT_EQ(engine_->runs, 4);  // two of the first run, two that were captured
  EXPECT_EQ(calls_of("cuGraphLaunch"), 4);
  expect_sums(5);
}

TEST_F(CudaGraphsOfProducts, OfAWorkspaceThatTheLibraryLeft_AreNotLaunched) {
  const auto program = compile(list_);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(*program, bindings_), absl::OkStatus());
  const int workspaces = calls_of("cuMemFree");
  const Buffer in_the_way = *device_->allocate(1U << 20U, MemoryKind::kDevice);
  const auto larger = compile(with_workspace(64 * kTokens));
  ASSERT_GT(calls_of("cuMemFree"), workspaces) << "the workspace did not move";
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(*program, bindings_), absl::OkStatus());
  EXPECT_EQ(graphs_made(), 2);
  expect_sums(6);
}

TEST_F(CudaGraphsOfProducts, OfALibraryThatCannotBeCaptured_AreNotMade) {
  const auto program = compile(list_);
  engine_->allocates = true;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(run(*program, bindings_), absl::OkStatus());
  EXPECT_EQ(calls_of("cuStreamBeginCapture"), 1);
  EXPECT_EQ(calls_of("cuGraphLaunch"), 0);
  expect_sums(5);
}

}  // namespace
}  // namespace rondo::devices::cuda::testing
