// The device over the fake driver: what it asks of the driver on the step path, and what failures become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "device_fixture.h"
#include "rondo/base/status.h"
#include "rondo/devices/host_queue.h"

namespace rondo::devices::cuda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using test::patience;

TEST_F(CudaDevice, OnTheStepPath_NeitherAllocatesNorWaitsForStreams) {
  open();
  const OpList list = addition();
  const auto program = compile(list);
  const Bindings bindings = bind(list);
  const auto pinned = device_->allocate(kTokens * kWidth * 4, MemoryKind::kPinned);
  ASSERT_EQ(pinned.status(), absl::OkStatus());
  const auto line = timeline();
  const int allocated = calls_of("cuMemAlloc");
  const int pinned_before = calls_of("cuMemHostAlloc");
  const int synchronized = calls_of("cuStreamSynchronize");
  for (std::uint64_t i = 0; i < 300; ++i) {  // more than the ring holds
    const Point before{line.get(), 2 * i};
    const Point uploaded{line.get(), 2 * i + 1};
    up().copy(pinned->view(), bindings.tensors[0], {&before, 1}, uploaded, {"up"});
    compute().run(*program, bindings, {&uploaded, 1}, {line.get(), 2 * i + 2}, {"run"});
  }
  ASSERT_EQ(line->wait(600, patience()), absl::OkStatus());
  EXPECT_EQ(calls_of("cuMemAlloc"), allocated);
  EXPECT_EQ(calls_of("cuMemHostAlloc"), pinned_before);
  EXPECT_EQ(calls_of("cuStreamSynchronize"), synchronized);
  EXPECT_EQ(calls_of("cuLaunchKernel"), 300);
}

TEST_F(CudaDevice, AWaitOfAnotherStream_IsLeftToTheCard) {
  open();
  const Bindings bindings = bind(addition());
  const auto pinned = device_->allocate(kTokens * kWidth * 4, MemoryKind::kPinned);
  ASSERT_EQ(pinned.status(), absl::OkStatus());
  const auto first = timeline();
  const auto second = timeline();
  // Whether the copy is still in flight when the clearing is enqueued is the fake's affair: try until it was.
  for (std::uint64_t i = 1; i <= 200 && calls_of("cuStreamWaitEvent") == 0; ++i) {
    const Point copied{first.get(), i};
    up().copy(pinned->view(), bindings.tensors[0], {}, copied, {"up"});
    compute().clear(bindings.tensors[0], {&copied, 1}, {second.get(), i}, {"clear"});
    ASSERT_EQ(second->wait(i, patience()), absl::OkStatus());
  }
  EXPECT_GT(calls_of("cuStreamWaitEvent"), 0);
}

TEST_F(CudaDevice, ALaunchThatTheDriverRefuses_PoisonsItsAttemptAlone) {
  FakeScript script;
  script.fail_call = "cuLaunchKernel";
  script.fail_at = 1;
  script.fail_result = 701;  // CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: the context lives on
  open(script);
  const OpList list = addition();
  const auto program = compile(list);
  const Bindings bindings = bind(list);
  const auto failed = timeline();
  const auto follower = timeline();
  const auto good = timeline();
  compute().run(*program, bindings, {}, {failed.get(), 1}, {"layer 3"});
  const Point after{failed.get(), 1};
  up().clear(bindings.tensors[0], {&after, 1}, {follower.get(), 1}, {"clear"});
  compute().run(*program, bindings, {}, {good.get(), 1}, {"layer 3"});
  EXPECT_EQ(good->wait(1, patience()), absl::OkStatus());
  const absl::Status status = failed->wait(1, patience());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(message_of(status), AllOf(HasSubstr("cuda:0"), HasSubstr("layer 3"), HasSubstr("cuLaunchKernel")));
  EXPECT_EQ(follower->wait(1, patience()).message(), status.message());
}

TEST_F(CudaDevice, AFaultOnTheCard_LosesItForEverything) {
  FakeScript script;
  script.fault_at = 2;
  open(script);
  const OpList list = addition();
  const auto program = compile(list);
  const Bindings bindings = bind(list);
  const auto good = timeline();
  const auto failed = timeline();
  const auto later = timeline();
  compute().run(*program, bindings, {}, {good.get(), 1}, {"first"});
  ASSERT_EQ(good->wait(1, patience()), absl::OkStatus());
  compute().run(*program, bindings, {}, {failed.get(), 1}, {"second"});
  EXPECT_THAT(message_of(failed->wait(1, patience())), AllOf(HasSubstr("lost"), HasSubstr("ILLEGAL_ADDRESS")));
  up().clear(bindings.tensors[0], {}, {later.get(), 1}, {"third"});
  EXPECT_THAT(message_of(later->wait(1, patience())), HasSubstr("lost"));
  EXPECT_THAT(message_of(device_->allocate(64, MemoryKind::kDevice).status()), HasSubstr("lost"));
  EXPECT_EQ(good->completed(), 1U);
}

TEST_F(CudaDevice, AnIdPastTheTable_PoisonsWithTokenAndId) {
  open();
  const OpList list = look_up();
  const auto program = compile(list);
  const Bindings bindings = bind(list);
  std::vector<std::int32_t> ids(kTokens, 2);
  ids[5] = 7;
  auto host = allocate_host(kTokens * 4, "test");
  ASSERT_EQ(host.status(), absl::OkStatus());
  std::memcpy(host->view().host(), ids.data(), kTokens * 4);
  const auto line = timeline();
  const auto after = timeline();
  up().copy(host->view().part(0, kTokens * 4), bindings.tensors[0], {}, {line.get(), 1}, {"ids"});
  const Point uploaded{line.get(), 1};
  compute().run(*program, bindings, {&uploaded, 1}, {line.get(), 2}, {"embedding"});
  const Point looked_up{line.get(), 2};
  up().clear(bindings.tensors[0], {&looked_up, 1}, {after.get(), 1}, {"next"});
  EXPECT_THAT(message_of(line->wait(2, patience())), HasSubstr("token 5 has id 7, but the table has 7 rows"));
  EXPECT_FALSE(after->wait(1, patience()).ok());  // enqueued in good faith, known to be worthless now
  EXPECT_EQ(line->completed(), 1U);
}

/// Runs follow one another on the card before the host looks at the first: each has a record of its own.
TEST_F(CudaDevice, AnIdPastTheTable_IsLaidToTheRunThatMetIt) {
  open();
  const OpList list = look_up();
  const auto program = compile(list);
  const Bindings good = bind(list);
  const Bindings bad = bind(list);
  const auto line = timeline();
  auto host = allocate_host(kTokens * 4, "test");
  ASSERT_EQ(host.status(), absl::OkStatus());
  std::vector<std::int32_t> ids(kTokens, 2);
  std::memcpy(host->view().host(), ids.data(), kTokens * 4);
  up().copy(host->view().part(0, kTokens * 4), good.tensors[0], {}, {line.get(), 1}, {"ids"});
  ASSERT_EQ(line->wait(1, patience()), absl::OkStatus());
  ids[9] = 8;
  std::memcpy(host->view().host(), ids.data(), kTokens * 4);
  up().copy(host->view().part(0, kTokens * 4), bad.tensors[0], {}, {line.get(), 2}, {"ids"});
  ASSERT_EQ(line->wait(2, patience()), absl::OkStatus());
  constexpr std::size_t kRuns = 12;
  std::vector<std::unique_ptr<Timeline>> runs;
  for (std::size_t i = 0; i < kRuns; ++i) {
    runs.push_back(timeline());
    compute().run(*program, i % 3 == 1 ? bad : good, {}, {runs.back().get(), 1}, {"embedding"});
  }
  for (std::size_t i = 0; i < kRuns; ++i) {
    const absl::Status status = runs[i]->wait(1, patience());
    if (i % 3 == 1) {
      EXPECT_THAT(message_of(status), HasSubstr("token 9 has id 8")) << i;
    } else {
      EXPECT_EQ(status, absl::OkStatus()) << i;
    }
  }
}

TEST_F(CudaDevice, AnIdPastTheTable_IsNotLaidToWhatTakesItsPlaceInTheRing) {
  open();
  const OpList list = look_up();
  const auto program = compile(list);
  const Bindings bindings = bind(list);
  put(bindings.tensors[0], std::vector<std::int32_t>(kTokens, 8).data());
  EXPECT_THAT(message_of(run(*program, bindings)), HasSubstr("has id 8"));
  const auto line = timeline();
  for (std::uint64_t i = 1; i <= 300; ++i) {  // more than the ring holds
    compute().clear(bindings.tensors[0], {}, {line.get(), i}, {"clear"});
  }
  EXPECT_EQ(line->wait(300, patience()), absl::OkStatus());
  EXPECT_EQ(run(*program, bindings), absl::OkStatus());
}

TEST_F(CudaDevice, WrongBindings_AreRefusedByName) {
  open();
  const OpList list = addition();
  const auto program = compile(list);
  Bindings bindings = bind(list);
  auto host = allocate_host(kTokens * kWidth * 4, "test");
  ASSERT_EQ(host.status(), absl::OkStatus());
  const BufferView good = bindings.tensors[1];
  const auto on_host = timeline();
  const auto too_small = timeline();
  bindings.tensors[1] = host->view();
  compute().run(*program, bindings, {}, {on_host.get(), 1}, {"run"});
  EXPECT_THAT(message_of(on_host->wait(1, patience())), HasSubstr("'b'"));
  bindings.tensors[1] = good.part(0, good.size - 4);
  compute().run(*program, bindings, {}, {too_small.get(), 1}, {"run"});
  EXPECT_THAT(message_of(too_small->wait(1, patience())), AllOf(HasSubstr("'b'"), HasSubstr("5120")));
  auto longer = device_->allocate(good.size + 4, MemoryKind::kDevice);
  ASSERT_EQ(longer.status(), absl::OkStatus());
  const auto crooked = timeline();
  bindings.tensors[1] = longer->view().part(4, good.size);
  compute().run(*program, bindings, {}, {crooked.get(), 1}, {"run"});
  EXPECT_THAT(message_of(crooked->wait(1, patience())), AllOf(HasSubstr("'b'"), HasSubstr("multiple of 16")));
  EXPECT_EQ(calls_of("cuLaunchKernel"), 0);
}

TEST_F(CudaDevice, ScratchAtACrookedAddress_IsRefused) {
  open();
  OpList list = addition();
  list.tensors.push_back({"sum", list.tensors[2].shape, DType::kFloat32, TensorRole::kScratch, 0});
  list.ops = {{OpKind::kAdd, NoAttributes{}, {0, 1}, {3}}, {OpKind::kAdd, NoAttributes{}, {3, 1}, {2}}};
  const auto program = compile(list);
  Bindings bindings = bind(list);
  const Bytes size = plan_arena(list).size;
  auto scratch = device_->allocate(size + 4, MemoryKind::kDevice);
  ASSERT_EQ(scratch.status(), absl::OkStatus());
  const auto straight = timeline();
  const auto crooked = timeline();
  bindings.scratch = scratch->view().part(0, size);
  compute().run(*program, bindings, {}, {straight.get(), 1}, {"run"});
  EXPECT_EQ(straight->wait(1, patience()), absl::OkStatus());
  bindings.scratch = scratch->view().part(4, size);
  compute().run(*program, bindings, {}, {crooked.get(), 1}, {"run"});
  EXPECT_THAT(message_of(crooked->wait(1, patience())), AllOf(HasSubstr("scratch"), HasSubstr("multiple of 16")));
}

TEST_F(CudaDevice, MemoryOfAnotherCard_IsRefused) {
  open();
  auto other = open_fake({});
  ASSERT_EQ(other.status(), absl::OkStatus());
  Buffer foreign = *(*other)->allocate(64, MemoryKind::kDevice);
  const auto line = timeline();
  up().clear(foreign.view(), {}, {line.get(), 1}, {"clear"});
  EXPECT_EQ(line->wait(1, patience()).code(), absl::StatusCode::kInternal);
}

/// Once however often it is expected, and back to the driver before the memory goes.
TEST_F(CudaDevice, MemoryThatIsCopiedAgainAndAgain_IsLockedUnlessTheDriverRefuses) {
  for (const bool refuses : {false, true}) {
    FakeScript script;
    if (refuses) {
      script.fail_call = "cuMemHostRegister";
      script.fail_at = 1;
      script.fail_result = kOutOfMemory;
    }
    open(script);
    absl::StatusOr<Buffer> home = allocate_host(256_KiB, "weights");
    absl::StatusOr<Buffer> small = allocate_host(1_KiB, "weights");
    ASSERT_EQ(home.status(), absl::OkStatus());
    ASSERT_EQ(small.status(), absl::OkStatus());
    device_->expect_copies(small->view(), QueueRole::kUp);
    EXPECT_EQ(calls_of("cuMemHostRegister"), 0);  // not worth it
    device_->expect_copies(home->view().part(0, 128_KiB), QueueRole::kUp);
    device_->expect_copies(home->view().part(128_KiB, 128_KiB), QueueRole::kDown);
    EXPECT_EQ(calls_of("cuMemHostRegister"), refuses ? 2 : 1);
    const Buffer here = *device_->allocate(256_KiB, MemoryKind::kDevice);
    const auto line = timeline();
    up().copy(home->view(), here.view(), {}, {line.get(), 1}, {"up"});
    EXPECT_EQ(line->wait(1, patience()), absl::OkStatus());
    *home = Buffer();
    EXPECT_EQ(registered_memory(), 0);
  }
}

TEST_F(CudaDevice, WithoutMemoryForTheWorkspace_CompileSaysSo) {
  FakeScript script;
  script.fail_call = "cuMemAlloc";
  script.fail_at = 4;  // behind the queues' records of faults
  script.fail_result = kOutOfMemory;
  open(script);
  OpList list;
  list.tokens = kTokens;
  list.tensors = {{"dy", {kTokens, kWidth}, DType::kFloat32, TensorRole::kInput, 0},
                  {"db", {kWidth}, DType::kFloat32, TensorRole::kGradient, 0}};
  list.ops = {{OpKind::kBiasGradient, NoAttributes{}, {0}, {1}}};
  EXPECT_EQ(device_->compile(list, plan_arena(list)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(compile(list), nullptr);  // the next one can have it
}

TEST_F(CudaDevice, BfloatOnACardWithoutIt_IsComputedByOurOwnProducts) {
  FakeScript script;
  script.major = 7;
  script.minor = 5;
  open(script);
  EXPECT_THAT(device_->caps().compute_dtypes, ::testing::Contains(DType::kBfloat16));
}

TEST_F(CudaDevice, BuffersThatOutliveIt_AreGivenBack) {
  open();
  Buffer late = *device_->allocate(4096, MemoryKind::kDevice);
  Buffer pinned = *device_->allocate(4096, MemoryKind::kPinned);
  device_.reset();
  EXPECT_GT(things_left(), 0);
  late = Buffer();
  pinned = Buffer();
  EXPECT_EQ(things_left(), 0);
}

}  // namespace
}  // namespace rondo::devices::cuda::testing
