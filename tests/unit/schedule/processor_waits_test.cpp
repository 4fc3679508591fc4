// What threads waited for processors.
#include "processor_waits.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "files.h"

namespace rondo::schedule {
namespace {

namespace fs = std::filesystem;

void tell(const fs::path& threads, const std::string& thread, const std::string& schedstat) {
  fs::create_directories(threads / thread);
  test::put(threads / thread / "schedstat", schedstat);
}

TEST(ProcessorWaits, OfTheThreadThatWaitedLongest_CountFromCallToCall) {
  const fs::path threads = test::fresh_folder();
  tell(threads, "7", "900000000 5000000000 3\n");
  tell(threads, "8", "100000000 1000000000 3\n");
  ProcessorWaits waits(threads);
  EXPECT_EQ(waits.since_last(), 0);
  tell(threads, "7", "900000000 5500000000 4\n");
  tell(threads, "8", "100000000 3000000000 4\n");
  tell(threads, "9", "100000000 9000000000 4\n");  // new
  EXPECT_EQ(waits.since_last(), 2);
  fs::remove_all(threads / "8");
  EXPECT_EQ(waits.since_last(), 0);
  tell(threads, "7", "900000000 6500000000 5\n");
  EXPECT_EQ(waits.since_last(), 1);
  waits.forget();
  EXPECT_EQ(waits.since_last(), 0);
}

TEST(ProcessorWaits, WhereTheKernelDoesNotCount_AreNone) {
  const fs::path threads = test::fresh_folder();
  EXPECT_EQ(ProcessorWaits(threads / "absent").since_last(), 0);
  fs::create_directories(threads / "7");
  ProcessorWaits waits(threads);
  EXPECT_EQ(waits.since_last(), 0);
  EXPECT_EQ(waits.since_last(), 0);
}

/// The first processor that this process may use: a container need not give it the machine's first.
cpu_set_t one_of_ours() {
  cpu_set_t ours;
  CPU_ZERO(&ours);
  EXPECT_EQ(::sched_getaffinity(0, sizeof(ours), &ours), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &ours)) CPU_SET(i, &one);
  }
  return one;
}

/// Three threads that want one processor: each waits for about two thirds of the time.
TEST(ProcessorWaits, OnAProcessorThatOthersUse_AreSeen) {
  if (!fs::exists("/proc/self/schedstat")) GTEST_SKIP() << "this kernel does not count them";
  const cpu_set_t one = one_of_ours();
  std::atomic<bool> ended = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&ended, &one] {
      EXPECT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
      while (!ended.load(std::memory_order_relaxed)) continue;
    });
  }
  ProcessorWaits waits;
  waits.since_last();
  double waited = 0;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (waited < 0.05 && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    waited += waits.since_last();
  }
  ended.store(true, std::memory_order_relaxed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(waited, 0.05);
}

}  // namespace
}  // namespace rondo::schedule
