// What every backend promises about timelines, order across queues, poison, observers and the end of a device.
#include <array>
#include <atomic>
#include <thread>

#include "contract_fixture.h"

namespace rondo::devices::contract {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

CONTRACT_TEST(Timeline_SignalledByTheHost_WakesItsWaiter) {
  const auto line = timeline();
  std::thread host_thread([&] { line->signal(5); });
  EXPECT_TRUE(line->wait(4, patience()).ok());
  host_thread.join();
  EXPECT_EQ(line->completed(), 5U);
}

CONTRACT_TEST(Timeline_NeverSignalled_MissesTheDeadline) {
  const auto line = timeline();
  const auto begin = steady_clock::now();
  EXPECT_EQ(line->wait(1, begin + milliseconds(30)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(steady_clock::now(), begin + milliseconds(30));
}

CONTRACT_TEST(Timeline_PoisonedAndReset_CountsAgain) {
  const auto line = timeline();
  line->signal(1);
  line->poison(absl::InternalError("first"));
  line->poison(absl::InternalError("second"));
  line->signal(2);
  EXPECT_TRUE(line->wait(1, patience()).ok());
  EXPECT_EQ(line->wait(2, patience()).message(), "first");
  line->reset();
  EXPECT_EQ(line->completed(), 0U);
  line->signal(1);
  EXPECT_TRUE(line->wait(1, patience()).ok());
}

CONTRACT_TEST(Order_LongChainAcrossQueues_ArrivesWhole) {
  // Each link of the chain waits for the one before it, which another queue runs.
  constexpr std::size_t kLinks = 60;
  const Buffer data = pattern(4096, 11);
  const Buffer a = allocate(4096);
  const Buffer b = allocate(4096);
  const auto line = timeline();
  std::array<Queue*, 3> queues = {&up(), &compute(), &down()};
  queues[0]->copy(data.view(), a.view(), {}, {line.get(), 1}, {"contract"});
  for (std::size_t i = 1; i <= kLinks; ++i) {
    const Point before{line.get(), i};
    const BufferView from = i % 2 == 1 ? a.view() : b.view();
    const BufferView to = i % 2 == 1 ? b.view() : a.view();
    queues[i % 3]->copy(from, to, {&before, 1}, {line.get(), i + 1}, {"contract"});
    // What a queue runs later must not overtake: the source is cleared once it has been read.
    const Point copied{line.get(), i + 1};
    if (i == kLinks) queues[(i + 1) % 3]->clear(from, {&copied, 1}, {line.get(), i + 2}, {"contract"});
  }
  ASSERT_TRUE(line->wait(kLinks + 2, patience()).ok());
  expect_contents(a.view(), data.view());
}

CONTRACT_TEST(Order_ManyWaits_AreAllAwaited) {
  const Buffer here = allocate(4096);
  std::vector<std::shared_ptr<Timeline>> lines;
  std::vector<Point> waits;
  for (std::uint64_t i = 0; i < 16; ++i) {
    lines.push_back(timeline());
    Queue& queue = i % 2 == 0 ? up() : down();
    queue.clear(here.view().part(i * 64, 64), {}, {lines.back().get(), i + 1}, {"contract"});
    waits.push_back({lines.back().get(), i + 1});
  }
  const auto last = timeline();
  compute().clear(here.view(), waits, {last.get(), 1}, {"contract"});
  ASSERT_TRUE(last->wait(1, patience()).ok());
  for (std::uint64_t i = 0; i < 16; ++i) EXPECT_EQ(lines[i]->completed(), i + 1);
}

CONTRACT_TEST(Poison_OfAWait_SkipsTheWork) {
  const Buffer data = pattern(512, 1);
  const Buffer other = pattern(512, 2);
  const Buffer here = allocate(512);
  ASSERT_TRUE(copy(up(), data.view(), here.view()).ok());
  const auto failed = timeline();
  const auto middle = timeline();
  const auto last = timeline();
  failed->poison(absl::AbortedError("the attempt failed"));
  const Point wait_failed{failed.get(), 1};
  const Point wait_middle{middle.get(), 1};
  up().copy(other.view(), here.view(), {&wait_failed, 1}, {middle.get(), 1}, {"contract"});
  compute().clear(here.view(), {&wait_middle, 1}, {last.get(), 1}, {"contract"});
  EXPECT_EQ(last->wait(1, patience()).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(middle->wait(1, patience()).message(), "the attempt failed");
  EXPECT_EQ(last->completed(), 0U);
  expect_contents(here.view(), data.view());
}

CONTRACT_TEST(Poison_OfOneAttempt_LeavesOthersAlone) {
  const Buffer here = allocate(512);
  const auto failed = timeline();
  const auto dropped = timeline();
  const auto good = timeline();
  failed->poison(absl::AbortedError("the attempt failed"));
  const Point wait_failed{failed.get(), 1};
  for (QueueRole role : {QueueRole::kUp, QueueRole::kCompute, QueueRole::kDown}) {
    device().queue(role).clear(here.view(), {&wait_failed, 1}, {dropped.get(), 1}, {"contract"});
  }
  std::uint64_t value = 0;
  for (QueueRole role : {QueueRole::kUp, QueueRole::kCompute, QueueRole::kDown}) {
    // In order across queues, since the value must rise.
    const Point before{good.get(), value};
    device().queue(role).clear(here.view(), {&before, 1}, {good.get(), value + 1}, {"contract"});
    ++value;
  }
  EXPECT_TRUE(good->wait(3, patience()).ok());
  EXPECT_FALSE(dropped->wait(1, patience()).ok());
}

/// Counts what it is told, from any queue's thread.
class Witness : public WorkObserver {
 public:
  void on_work(QueueRole role, const WorkTag& tag, steady_clock::time_point begin,
               steady_clock::time_point end) override {
    // Relaxed: read after a timeline has ordered it.
    counts_[static_cast<std::size_t>(role)].fetch_add(1, std::memory_order_relaxed);
    if (tag.step != 3 || tag.slot != 4 || tag.microbatch != 5) wrong_.store(true, std::memory_order_relaxed);
    if (begin > end || end > steady_clock::now()) wrong_.store(true, std::memory_order_relaxed);
  }
  int count(QueueRole role) const { return counts_[static_cast<std::size_t>(role)].load(std::memory_order_relaxed); }
  bool wrong() const { return wrong_.load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<int>, 3> counts_{};
  std::atomic<bool> wrong_{false};
};

CONTRACT_TEST(Observer_IsToldOfEveryPieceBeforeItsSignal) {
  Witness witness;
  device().observe(&witness);
  const Buffer here = allocate(4096);
  const WorkTag tag{"contract", 3, 4, 5};
  std::vector<std::shared_ptr<Timeline>> lines;
  for (QueueRole role : {QueueRole::kUp, QueueRole::kCompute, QueueRole::kDown}) {
    lines.push_back(timeline());
    const BufferView part = here.view().part(1024 * static_cast<Bytes>(role), 1024);
    for (std::uint64_t i = 1; i <= 4; ++i) device().queue(role).clear(part, {}, {lines.back().get(), i}, tag);
  }
  for (const auto& line : lines) ASSERT_TRUE(line->wait(4, patience()).ok());
  for (QueueRole role : {QueueRole::kUp, QueueRole::kCompute, QueueRole::kDown}) EXPECT_EQ(witness.count(role), 4);
  EXPECT_FALSE(witness.wrong());
  device().observe(nullptr);
  ASSERT_TRUE(copy(up(), here.view().part(0, 64), here.view().part(64, 64)).ok());
  EXPECT_EQ(witness.count(QueueRole::kUp), 4);
}

CONTRACT_TEST(Destruction_WithWorkInFlight_FinishesIt) {
  const Buffer data = pattern(1_MiB, 4);
  const Buffer back = host(1_MiB);
  const auto line = timeline();
  {
    const Buffer here = allocate(1_MiB);
    for (std::uint64_t i = 0; i < 20; ++i) {
      const Point before{line.get(), 2 * i};
      const Point uploaded{line.get(), 2 * i + 1};
      up().copy(data.view(), here.view(), {&before, 1}, uploaded, {"contract"});
      down().copy(here.view(), back.view(), {&uploaded, 1}, {line.get(), 2 * i + 2}, {"contract"});
    }
    close();
  }
  EXPECT_EQ(line->completed(), 40U);
  EXPECT_TRUE(same_bytes(back.view(), data.view()));
}

}  // namespace
}  // namespace rondo::devices::contract
