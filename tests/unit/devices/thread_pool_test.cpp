// Every task runs once, whatever the number of threads, tasks and callers.
#include "rondo/devices/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "few_threads.h"
#include "patience.h"

namespace rondo::devices {
namespace {

TEST(ThreadPool, AnyNumberOfTasks_EachRunsOnce) {
  for (const std::uint32_t threads : {1U, 2U, 5U}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t tasks : {0, 1, 2, 3, 64, 1000}) {
      std::vector<int> runs(static_cast<std::size_t>(tasks), 0);  // plain ints: the pool must order the accesses
      pool.parallel_for(tasks, [&](std::int64_t task, std::uint32_t member) {
        ASSERT_LT(member, threads);
        ++runs[static_cast<std::size_t>(task)];
      });
      for (const int n : runs) EXPECT_EQ(n, 1);
    }
  }
}

TEST(ThreadPool, ManyShortJobs_SeeEachOthersWrites) {
  ThreadPool pool(3);
  std::vector<std::int64_t> from(8, 0);
  std::vector<std::int64_t> to(8, 0);
  for (int job = 0; job < 20000; ++job) {
    // Reads what another member may have written in the job before.
    pool.parallel_for(8, [&](std::int64_t task, std::uint32_t) {
      to[static_cast<std::size_t>(task)] = from[static_cast<std::size_t>((task + 1) % 8)] + 1;
    });
    std::swap(from, to);
    if (job % 2000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // helpers fall asleep
  }
  for (const std::int64_t value : from) EXPECT_EQ(value, 20000);
}

TEST(ThreadPool, Members_AreNeverTwoAtATime) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> shared{false};
  for (int job = 0; job < 200; ++job) {
    pool.parallel_for(50, [&](std::int64_t, std::uint32_t member) {
      if (inside[member].fetch_add(1) != 0) shared = true;
      inside[member].fetch_sub(1);
    });
  }
  EXPECT_FALSE(shared);
}

TEST(ThreadPool, ConcurrentCallers_TakeTurns) {
  ThreadPool pool(3);
  std::atomic<int> owner{-1};
  std::atomic<int> mixed{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int job = 0; job < 300; ++job) {
        std::atomic<int> done{0};
        pool.parallel_for(6, [&](std::int64_t, std::uint32_t) {
          int nobody = -1;
          if (!owner.compare_exchange_strong(nobody, caller) && nobody != caller) ++mixed;
          if (done.fetch_add(1) == 5) owner = -1;
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(mixed, 0);
}

TEST(ThreadPool, TasksThatWaitForEachOther_RunAtTheSameTime) {
  constexpr int kTasks = 4;
  ThreadPool pool(kTasks);
  std::atomic<int> arrived{0};
  std::atomic<int> alone{0};
  pool.parallel_for(kTasks, [&](std::int64_t, std::uint32_t) {
    ++arrived;
    const auto patience = test::patience();
    while (arrived < kTasks && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    if (arrived < kTasks) ++alone;
  });
  EXPECT_EQ(alone, 0);
}

TEST(ThreadPool, ZeroThreads_MeansWhatTheProcessMayUse) { EXPECT_GE(ThreadPool(0).threads(), 1U); }

TEST(ThreadPool, FewerThreadsThanAsked_DoAllTasks) {
  if (!test::kCanHaveFewThreads) GTEST_SKIP() << "a sanitizer's threads are its own";
  for (const std::uint32_t more : {0U, 2U}) {
    const test::FewThreads few(more);
    ThreadPool pool(8);
    EXPECT_LE(pool.threads(), more + 1);
    std::vector<int> runs(1000, 0);
    pool.parallel_for(1000, [&](std::int64_t task, std::uint32_t member) {
      ASSERT_LT(member, pool.threads());
      ++runs[static_cast<std::size_t>(task)];
    });
    for (const int n : runs) EXPECT_EQ(n, 1);
  }
}

TEST(ThreadPool, IdlePools_EndAtOnce) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

}  // namespace
}  // namespace rondo::devices
