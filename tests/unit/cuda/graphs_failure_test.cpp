// What becomes of failures at each call that has to do with graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_fixture.h"
#include "rondo/base/status.h"

namespace rondo::devices::cuda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using test::patience;

constexpr Result kRefused = 801;  // CUDA_ERROR_NOT_SUPPORTED
constexpr Result kLost = 719;     // CUDA_ERROR_LAUNCH_FAILED

/// In the second run of tallies(), which is the one that is captured. `at`: the call's number, from 1.
struct Refusal {
  const char* call;
  int at;
};
class CudaGraphMaking : public CudaDevice, public ::testing::WithParamInterface<Refusal> {};

TEST_P(CudaGraphMaking, RefusedByTheDriver_LosesNothing) {
  FakeScript script;
  script.fail_call = GetParam().call;
  script.fail_at = GetParam().at;
  script.fail_result = kRefused;
  open(script);
  const auto program = compile(tallies());
  const auto other = compile(tallies());
  const Bindings bindings = bind_tallies();
  ASSERT_EQ(calls_of("cuLaunchKernel"), 0);
  const int left = things_left();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run(*program, bindings), absl::OkStatus()) << i;
  expect_runs(bindings, 5);
  EXPECT_EQ(calls_of("cuGraphLaunch"), 0);
  EXPECT_EQ(calls_of("cuStreamBeginCapture"), 1) << "it is tried once for a program";
  const int streams_and_events = 2 + kTallySteps + 1;  // made once, for whatever is captured
  EXPECT_EQ(things_left(), left + streams_and_events);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(*other, bindings), absl::OkStatus());
  EXPECT_EQ(calls_of("cuGraphLaunch"), 2) << "another program has graphs";
  expect_runs(bindings, 8);
}

TEST_P(CudaGraphMaking, ThatLosesTheCard_IsHeardOfByEverything) {
  FakeScript script;
  script.fail_call = GetParam().call;
  script.fail_at = GetParam().at;
  script.fail_result = kLost;
  open(script);
  const auto program = compile(tallies());
  const Bindings bindings = bind_tallies();
  ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  const absl::Status status = run(*program, bindings);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(message_of(status), AllOf(HasSubstr("layer 3"), HasSubstr("lost"), HasSubstr(GetParam().call)));
  EXPECT_LE(calls_of("cuLaunchKernel"), 2 * kTallySteps) << "the steps are not sent after it";
  const auto before = all_calls();
  EXPECT_THAT(message_of(run(*program, bindings)), HasSubstr("lost"));
  EXPECT_EQ(all_calls(), before) << "nothing is sent to a lost card";
}

INSTANTIATE_TEST_SUITE_P(, CudaGraphMaking,
                         ::testing::Values(Refusal{"cuStreamBeginCapture", 1},
                                           Refusal{"cuLaunchKernel", kTallySteps + 2}, Refusal{"cuStreamEndCapture", 1},
                                           Refusal{"cuGraphInstantiateWithFlags", 1}, Refusal{"cuGraphDestroy", 1},
                                           Refusal{"cuGraphUpload", 1}),
                         [](const auto& one) { return std::string(one.param.call); });

class CudaGraphFailure : public CudaDevice {};

/// What a launch that failed has done is not known: to send the steps after it might add a gradient twice.
TEST_F(CudaGraphFailure, OfALaunch_PoisonsItsAttemptAloneAndEndsTheGraph) {
  FakeScript script;
  script.fail_call = "cuGraphLaunch";
  script.fail_at = 3;
  script.fail_result = kRefused;
  open(script);
  const auto program = compile(tallies());
  const Bindings bindings = bind_tallies();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  const absl::Status status = run(*program, bindings);
  EXPECT_THAT(message_of(status), AllOf(HasSubstr("cuda:0"), HasSubstr("layer 3"), HasSubstr("cuGraphLaunch")));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(*program, bindings), absl::OkStatus());
  EXPECT_EQ(calls_of("cuGraphLaunch"), 3);
  expect_runs(bindings, 6);
}

TEST_F(CudaGraphFailure, OfTheCardAtALaunch_LosesItForEverything) {
  FakeScript script;
  script.fail_call = "cuGraphLaunch";
  script.fail_at = 2;
  script.fail_result = kLost;
  open(script);
  const auto program = compile(tallies());
  const Bindings bindings = bind_tallies();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  EXPECT_THAT(message_of(run(*program, bindings)), AllOf(HasSubstr("lost"), HasSubstr("cuGraphLaunch")));
  EXPECT_THAT(message_of(device_->allocate(64, MemoryKind::kDevice).status()), HasSubstr("lost"));
}

TEST_F(CudaGraphFailure, OfAKernelInAGraph_LosesTheCardForEverything) {
  FakeScript script;
  script.fault_at = 2 * kTallySteps + 2;  // the second step of the third run
  open(script);
  const auto program = compile(tallies());
  const Bindings bindings = bind_tallies();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  EXPECT_THAT(message_of(run(*program, bindings)), AllOf(HasSubstr("lost"), HasSubstr("ILLEGAL_ADDRESS")));
  EXPECT_THAT(message_of(run(*program, bindings)), HasSubstr("lost"));
}

/// The host never sees such a run end: it has to ask the stream before the graph goes.
TEST_F(CudaGraphFailure, OfTheEventBehindAGraph_DoesNotGiveItUpWhileItRuns) {
  OpList list = tallies();
  list.tokens = 1U << 15U;
  list.tensors[0].shape = {list.tokens, kWidth};
  open();
  auto program = compile(list);
  Bindings bindings = bind(list);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  fail_next("cuEventRecord", kRefused);
  EXPECT_THAT(message_of(run(*program, bindings)), HasSubstr("cuEventRecord"));
  program.reset();                                    // the fake card ends the program if the graph is running
  EXPECT_EQ(calls_of("cuStreamSynchronize"), 1 + 1);  // compile()'s, and this
}

TEST_F(CudaGraphFailure, OfATarget_IsLaidToTheRunOfTheGraphThatMetIt) {
  open();
  const OpList list = look_up();
  const auto program = compile(list);
  const Bindings bindings = bind(list);
  std::vector<std::int32_t> ids(kTokens, 2);
  put(bindings.tensors[0], ids.data());
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(*program, bindings), absl::OkStatus());
  // One graph, one binding: what differs is what lies in the ids when it runs.
  auto good = allocate_host(kTokens * 4, "test");
  auto bad = allocate_host(kTokens * 4, "test");
  std::memcpy(good->view().host(), ids.data(), kTokens * 4);
  ids[9] = 8;
  std::memcpy(bad->view().host(), ids.data(), kTokens * 4);
  constexpr std::uint64_t kRuns = 12;
  const auto uploads = timeline();
  std::vector<std::unique_ptr<Timeline>> runs;
  std::vector<std::unique_ptr<Timeline>> ends;
  for (std::uint64_t i = 0; i < kRuns; ++i) {
    const Buffer& from = i % 3 == 1 ? *bad : *good;
    // Behind the run before, whatever became of it.
    if (i > 0) (void)runs.back()->wait(1, patience());
    up().copy(from.view().part(0, kTokens * 4), bindings.tensors[0], {}, {uploads.get(), i + 1}, {"ids"});
    runs.push_back(timeline());
    const Point uploaded{uploads.get(), i + 1};
    compute().run(*program, bindings, {&uploaded, 1}, {runs.back().get(), 1}, {"embedding"});
  }
  for (std::uint64_t i = 0; i < kRuns; ++i) {
    const absl::Status status = runs[i]->wait(1, patience());
    EXPECT_EQ(status.ok(), i % 3 != 1) << i << " " << status;
    EXPECT_THAT(message_of(status), HasSubstr(i % 3 == 1 ? "token 9 has id 8" : ""));
  }
  EXPECT_EQ(calls_of("cuGraphLaunch"), 2 + static_cast<int>(kRuns));
}

}  // namespace
}  // namespace rondo::devices::cuda::testing
