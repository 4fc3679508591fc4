// Host timelines and queues: order, poison, ideal clocks, back-pressure and the end of a queue.
#include "rondo/devices/host_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "few_threads.h"
#include "rondo/base/status.h"

namespace rondo::devices {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Moment soon(int ms = 5000) { return steady_clock::now() + milliseconds(ms); }

TEST(HostTimeline, ValueNotReached_MissesItsDeadline) {
  HostTimeline timeline;
  timeline.signal(3);
  EXPECT_TRUE(timeline.wait(3, soon()).ok());
  EXPECT_EQ(timeline.wait(4, soon(20)).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(HostTimeline, Poison_StandsForWhatWasNotReached) {
  HostTimeline timeline;
  timeline.signal(1);
  timeline.poison(absl::InternalError("first"));
  timeline.poison(absl::InternalError("second"));
  timeline.signal(2);
  EXPECT_TRUE(timeline.wait(1, soon()).ok());
  EXPECT_EQ(timeline.wait(2, soon()).message(), "first");
  EXPECT_EQ(timeline.completed(), 1U);
  timeline.reset();
  EXPECT_EQ(timeline.completed(), 0U);
  timeline.signal(1);
  EXPECT_TRUE(timeline.wait(1, soon()).ok());
}

TEST(HostTimeline, Reached_IsTheMomentOfTheFirstSignalThatCoversIt) {
  HostTimeline timeline;
  const Moment base = steady_clock::now();
  for (std::uint64_t i = 1; i <= 300; ++i) timeline.signal_at(2 * i, base + milliseconds(i));
  EXPECT_EQ(*timeline.wait_reached(600), base + milliseconds(300));
  EXPECT_EQ(*timeline.wait_reached(599), base + milliseconds(300));
  EXPECT_EQ(*timeline.wait_reached(400), base + milliseconds(200));
  EXPECT_EQ(*timeline.wait_reached(2), base + milliseconds(173));  // forgotten: the oldest remembered
  EXPECT_EQ(*timeline.wait_reached(0), Moment{});
}

TEST(HostTimeline, Waiter_IsWokenByThePoison) {
  HostTimeline timeline;
  std::thread waiter([&] { EXPECT_EQ(timeline.wait(1, Moment::max()).code(), absl::StatusCode::kAborted); });
  std::this_thread::sleep_for(milliseconds(5));
  timeline.poison(absl::AbortedError("gone"));
  waiter.join();
}

TEST(HostTimeline, Waiters_AreEachWokenByTheirOwnValue) {
  HostTimeline timeline;
  std::vector<std::thread> waiters;
  const Moment deadline = soon();
  for (const std::uint64_t value : {9U, 2U, 40U, 3U, 9U}) {
    waiters.emplace_back([&timeline, value, deadline] {
      EXPECT_TRUE(timeline.wait(value, deadline).ok()) << value;
      EXPECT_TRUE(timeline.wait(value + 31, deadline).ok()) << value;
    });
    std::this_thread::sleep_for(milliseconds(2));  // in this order, mostly
  }
  for (std::uint64_t value = 1; value <= 71; ++value) {
    timeline.signal(value);
    if (value % 8 == 3 || value == 70) std::this_thread::sleep_for(milliseconds(2));
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_LT(steady_clock::now(), deadline);  // nobody was woken by the deadline
}

/// Notes what it executed; takes `cost` of its own time a piece; work named "fail" fails.
class Recorder : public HostBackend {
 public:
  absl::StatusOr<HostSpan> execute(const HostWork& work, Moment ready) override {
    const MutexLock lock(mutex_);
    names_.emplace_back(work.tag.name);
    readies_.push_back(ready);
    if (names_.back() == "fail") return internal_error("told to fail");
    if (names_.back() == "slow") std::this_thread::sleep_for(milliseconds(20));
    // An ideal clock that does not wait: ends lie in the past of the thread that says so.
    return cost > milliseconds(0) ? HostSpan{ready, ready + cost} : span_since(ready);
  }
  std::vector<std::string> names() {
    const MutexLock lock(mutex_);
    return names_;
  }
  std::vector<Moment> readies() {
    const MutexLock lock(mutex_);
    return readies_;
  }
  milliseconds cost{0};

 private:
  Mutex mutex_;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
  std::vector<Moment> readies_ ABSL_GUARDED_BY(mutex_);
};

TEST(HostQueue, Work_RunsInOrderAcrossRoles) {
  Recorder backend;
  HostTimeline done;
  HostQueue queue(backend);
  queue.role(QueueRole::kUp).clear({}, {}, {&done, 1}, {"a"});
  queue.role(QueueRole::kCompute).clear({}, {}, {&done, 2}, {"b"});
  queue.role(QueueRole::kDown).clear({}, {}, {&done, 3}, {"c"});
  ASSERT_TRUE(done.wait(3, soon()).ok());
  EXPECT_THAT(backend.names(), testing::ElementsAre("a", "b", "c"));
}

TEST(HostQueue, FailedWork_PoisonsWhatWaitsOnItAndNothingElse) {
  Recorder backend;
  HostTimeline attempt;
  HostTimeline dependent;
  HostTimeline other;
  HostQueue queue(backend);
  Queue& compute = queue.role(QueueRole::kCompute);
  const Point wait{&attempt, 1};
  compute.clear({}, {}, {&attempt, 1}, {"fail"});
  compute.clear({}, {&wait, 1}, {&dependent, 1}, {"skipped"});
  compute.clear({}, {}, {&attempt, 2}, {"skipped too"});
  compute.clear({}, {}, {&other, 1}, {"runs"});
  EXPECT_TRUE(other.wait(1, soon()).ok());
  EXPECT_EQ(dependent.wait(1, soon()).message(), "told to fail");
  EXPECT_EQ(attempt.wait(2, soon()).message(), "told to fail");
  EXPECT_THAT(backend.names(), testing::ElementsAre("fail", "runs"));
}

TEST(HostQueue, CopyOfUnequalSizes_Fails) {
  Recorder backend;
  HostTimeline done;
  const Buffer a = phantom_host(10);
  HostQueue queue(backend);
  queue.role(QueueRole::kUp).copy(a.view(), a.view().part(0, 5), {}, {&done, 1}, {"uneven"});
  EXPECT_THAT(std::string(done.wait(1, soon()).message()), testing::HasSubstr("10 bytes to 5"));
}

TEST(HostQueue, WithoutAThread_SaysSoAndEnds) {
  if (!test::kCanHaveFewThreads) GTEST_SKIP() << "a sanitizer's threads are its own";
  Recorder backend;
  const test::FewThreads none(0);
  const HostQueue queue(backend);
  EXPECT_EQ(queue.started().code(), absl::StatusCode::kResourceExhausted);
}

TEST(HostQueue, IdealEnds_ChainWithoutTheHostsDelays) {
  Recorder backend;
  backend.cost = milliseconds(10);
  HostTimeline host;
  HostTimeline up;
  HostTimeline compute;
  HostQueue up_queue(backend);
  HostQueue compute_queue(backend);
  const Moment base = steady_clock::now();
  const Point after_host{&host, 1};
  const Point after_up{&up, 2};
  up_queue.role(QueueRole::kUp).clear({}, {&after_host, 1}, {&up, 1}, {"u1"});
  up_queue.role(QueueRole::kUp).clear({}, {}, {&up, 2}, {"u2"});
  compute_queue.role(QueueRole::kCompute).clear({}, {&after_up, 1}, {&compute, 1}, {"c1"});
  host.signal_at(1, base + milliseconds(100));
  ASSERT_TRUE(compute.wait(1, soon()).ok());
  EXPECT_EQ(*up.wait_reached(1), base + milliseconds(110));
  EXPECT_EQ(*up.wait_reached(2), base + milliseconds(120));
  EXPECT_EQ(*compute.wait_reached(1), base + milliseconds(130));
}

TEST(HostQueue, MoreWorkThanTheRingHolds_WaitsAndFinishes) {
  Recorder backend;
  HostTimeline gate;
  HostTimeline done;
  HostQueue queue(backend);
  std::thread producer([&] {
    const Point wait{&gate, 1};
    for (std::uint64_t i = 1; i <= 1000; ++i) {
      queue.role(QueueRole::kCompute).clear({}, {&wait, 1}, {&done, i}, {"w"});
    }
  });
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(done.completed(), 0U);
  gate.signal(1);
  producer.join();
  EXPECT_TRUE(done.wait(1000, soon()).ok());
}

TEST(HostQueue, DestroyedWithWorkInFlight_FinishesIt) {
  Recorder backend;
  HostTimeline done;
  {
    HostQueue queue(backend);
    for (std::uint64_t i = 1; i <= 3; ++i) queue.role(QueueRole::kCompute).clear({}, {}, {&done, i}, {"slow"});
  }
  EXPECT_EQ(done.completed(), 3U);
}

class NoProgram : public Program {
 public:
  const OpList& ops() const override { return list_; }

 private:
  const OpList list_;
};

/// Notes what it began and finished; work named "fail" fails at its end, work named "refused" cannot be begun.
class Starter : public Recorder {
 public:
  absl::StatusOr<std::uint64_t> begin(const HostWork& work) override {
    if (work.kind != HostWork::Kind::kRun) return 0;
    note("begin", work);
    if (std::string_view(work.tag.name) == "refused") return internal_error("told to refuse");
    return ++begun_;
  }
  absl::Status finish(const HostWork& work, std::uint64_t begun) override {
    EXPECT_EQ(begun, ++finished_);
    note("finish", work);
    return std::string_view(work.tag.name) == "fail" ? internal_error("told to fail") : absl::OkStatus();
  }
  /// "begin a, begin b, finish a, ..."
  std::string events() {
    const MutexLock lock(events_mutex_);
    return events_;
  }

 private:
  void note(const char* what, const HostWork& work) {
    const MutexLock lock(events_mutex_);
    if (!events_.empty()) events_ += ", ";
    events_ += what + std::string(" ") + work.tag.name;
  }
  std::uint64_t begun_ = 0;
  std::uint64_t finished_ = 0;
  Mutex events_mutex_;
  std::string events_ ABSL_GUARDED_BY(events_mutex_);
};

/// Work is enqueued while the first piece waits for the gate, so that the queue sees all of it.
class HostQueueThatBegins : public testing::Test {
 protected:
  void run(const char* name, std::vector<Point> waits, Point signal) {
    queue_.role(QueueRole::kCompute).run(program_, bindings_, waits, signal, {name});
  }
  const NoProgram program_;
  const Bindings bindings_;
  Starter backend_;
  HostTimeline gate_;
  HostTimeline done_;
  HostTimeline other_;
  HostQueue queue_{backend_};
};

TEST_F(HostQueueThatBegins, WhatWaitsForTheWorkBefore_IsBegunBehindIt) {
  run("a", {{&gate_, 1}}, {&done_, 1});
  run("b", {{&done_, 1}, {&gate_, 1}}, {&done_, 2});
  run("c", {{&done_, 2}}, {&done_, 3});
  gate_.signal(1);
  ASSERT_TRUE(done_.wait(3, soon()).ok());
  EXPECT_EQ(backend_.events(), "begin a, begin b, finish a, begin c, finish b, finish c");
}

TEST_F(HostQueueThatBegins, WhatWaitsForSomethingElse_IsNotBegunBefore) {
  run("a", {{&gate_, 1}}, {&done_, 1});
  run("b", {{&other_, 1}}, {&done_, 2});
  gate_.signal(1);
  ASSERT_TRUE(done_.wait(1, soon()).ok());
  EXPECT_EQ(backend_.events(), "begin a, finish a");
  other_.signal(1);
  ASSERT_TRUE(done_.wait(2, soon()).ok());
  EXPECT_EQ(backend_.events(), "begin a, finish a, begin b, finish b");
}

TEST_F(HostQueueThatBegins, WorkOfOtherKinds_ComesInItsTurn) {
  run("a", {{&gate_, 1}}, {&done_, 1});
  queue_.role(QueueRole::kUp).clear({}, {}, {&done_, 2}, {"clear"});
  run("b", {}, {&done_, 3});
  gate_.signal(1);
  ASSERT_TRUE(done_.wait(3, soon()).ok());
  EXPECT_EQ(backend_.events(), "begin a, finish a, begin b, finish b");
  EXPECT_THAT(backend_.names(), testing::ElementsAre("clear"));
}

TEST_F(HostQueueThatBegins, BehindFailedWork_OnlyWhatWaitsForItFails) {
  HostTimeline dependent;
  run("fail", {{&gate_, 1}}, {&done_, 1});
  run("b", {{&done_, 1}}, {&dependent, 1});
  run("fail", {{&gate_, 1}}, {&done_, 2});
  run("c", {}, {&other_, 1});
  gate_.signal(1);
  EXPECT_TRUE(other_.wait(1, soon()).ok());
  EXPECT_EQ(dependent.wait(1, soon()).message(), "told to fail");
  EXPECT_EQ(done_.wait(2, soon()).message(), "told to fail");
}

TEST_F(HostQueueThatBegins, WorkThatCannotBeBegun_FailsInItsTurn) {
  run("a", {{&gate_, 1}}, {&done_, 1});
  run("refused", {}, {&other_, 1});
  run("c", {}, {&done_, 2});
  gate_.signal(1);
  ASSERT_TRUE(done_.wait(2, soon()).ok());
  EXPECT_EQ(other_.wait(1, soon()).message(), "told to refuse");
  EXPECT_EQ(backend_.events(), "begin a, begin refused, finish a, begin c, finish c");
}

class Witness : public WorkObserver {
 public:
  void on_work(QueueRole role, const WorkTag& tag, Moment begin, Moment end) override {
    role_ = role;
    slot_ = tag.slot;
    ordered_ = begin <= end;
    ++calls_;
  }
  QueueRole role_ = QueueRole::kCompute;
  std::uint32_t slot_ = 0;
  bool ordered_ = false;
  int calls_ = 0;
};

TEST(HostQueue, Observer_IsToldBeforeTheSignalAndNotOfFailures) {
  Recorder backend;
  Witness witness;
  HostTimeline done;
  HostTimeline failed;
  HostQueue queue(backend);
  queue.observe(&witness);
  queue.role(QueueRole::kDown).clear({}, {}, {&failed, 1}, {"fail", 1, 8, 0});
  queue.role(QueueRole::kDown).clear({}, {}, {&done, 1}, {"w", 1, 7, 0});
  ASSERT_TRUE(done.wait(1, soon()).ok());
  EXPECT_EQ(witness.calls_, 1);
  EXPECT_EQ(witness.role_, QueueRole::kDown);
  EXPECT_EQ(witness.slot_, 7U);
  EXPECT_TRUE(witness.ordered_);
}

}  // namespace
}  // namespace rondo::devices
