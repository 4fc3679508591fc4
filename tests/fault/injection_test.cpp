// A thousand failures: errors, hangs and corruptions at every kind of moment, several cards in a run. No run may hang,
// commit half a step, or give other bits than the undisturbed one.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "fault_case.h"
#include "rondo/devices/random.h"

namespace rondo::tiny {
namespace {

struct Kind {
  const char* name;
  const char* what;    // error, hang, corrupt
  const char* queue;   // compute, up, down
  std::uint64_t most;  // pieces of work that a card has in the run, about
  int runs;
};
void PrintTo(const Kind& kind, std::ostream* stream) { *stream << kind.name; }

constexpr int kBadCards = 3;  // in each run

class Injection : public Fault, public testing::WithParamInterface<Kind> {};

TEST_P(Injection, AtAnyMoment_EndsWithTheSameBits) {
  const Kind kind = GetParam();
  static_cast<void>(course());
  // Runs side by side: what takes long is the waiting for cards that hang.
  std::atomic<int> next = 0;
  std::atomic<int> lost = 0;
  std::atomic<int> retried = 0;
  const auto work = [&] {
    for (int i = next++; i < kind.runs; i = next++) {
      std::vector<std::string> fail_at;
      for (int card = 0; card < kBadCards; ++card) {
        const std::uint64_t key = devices::mix64(static_cast<std::uint64_t>(i * kBadCards + card) * 977 + 13);
        fail_at.push_back(fmt::format("{}@{}:{}", kind.what, kind.queue, 1 + key % kind.most));
      }
      Placement placement = pool(fail_at, 1, i % 3 == 2);
      placement.verify_transfers = std::string(kind.what) == "corrupt";
      if (i % 2 == 1) placement.boundaries_on_disk = 0;
      SCOPED_TRACE(placement.name);
      auto run = TinyRun::make(model_, job_, placement);
      ASSERT_TRUE(run.ok()) << run.status();
      expect_course(**run);
      lost += static_cast<int>((*run)->executor().lost_devices().size());
      retried += static_cast<int>((*run)->executor().retries());
    }
  };
  std::vector<std::thread> threads;
  const int side_by_side = std::string(kind.what) == "hang" ? 8 : 4;
  for (int i = 0; i < side_by_side; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  RecordProperty("lost", lost.load());
  RecordProperty("retried", retried.load());
  // Most injections strike: a card that fails late may have been spared by another's loss.
  EXPECT_GT(retried.load() + lost.load(), kind.runs);
}

// 336 runs of three failing cards each.
INSTANTIATE_TEST_SUITE_P(
    Kinds, Injection,
    testing::Values(Kind{"ErrorComputing", "error", "compute", 60, 42}, Kind{"ErrorUp", "error", "up", 60, 42},
                    Kind{"ErrorDown", "error", "down", 30, 42}, Kind{"HangComputing", "hang", "compute", 60, 35},
                    Kind{"HangUp", "hang", "up", 60, 35}, Kind{"HangDown", "hang", "down", 30, 35},
                    Kind{"CorruptUp", "corrupt", "up", 60, 52}, Kind{"CorruptDown", "corrupt", "down", 30, 53}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace rondo::tiny
