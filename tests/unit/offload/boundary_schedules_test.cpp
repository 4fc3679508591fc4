// Workers over boundaries on disk, under every schedule that there is as data and under random ones, with no more
// buffers than they may pin together: whatever the order of work, nobody waits for ever and every byte comes back.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "rondo/offload/activation_store.h"
#include "rondo/partition/schedules.h"

namespace rondo::offload {
namespace {

using partition::PipelineOp;
using partition::PipelineSchedule;
using partition::Work;

constexpr Bytes kBytes = 5000;

/// One piece of work: places that it reads and the one that it fills.
struct Piece {
  std::vector<std::uint32_t> reads;
  std::vector<std::uint32_t> writes;
};

/// What the pieces of a schedule pass to each other, each boundary a place of its own.
class Course {
 public:
  explicit Course(const PipelineSchedule& schedule) : schedule_(schedule) {
    const auto stages = static_cast<std::uint32_t>(schedule.device_of_stage.size());
    for (const std::vector<PipelineOp>& order : schedule.orders) {
      std::vector<Piece>& pieces = workers.emplace_back();
      for (const PipelineOp& op : order) {
        Piece piece;
        const bool last = op.stage + 1 == stages;
        if (op.stage > 0) piece.reads.push_back(place(0, op.stage, op.microbatch));
        const bool forward = op.work == Work::kForward || op.work == Work::kVisit;
        if (!forward && op.work != Work::kWeightGradient && !last) {
          piece.reads.push_back(place(1, op.stage + 1, op.microbatch));
        }
        if (forward && !last) piece.writes.push_back(place(0, op.stage + 1, op.microbatch));
        if (!forward && op.work != Work::kWeightGradient && op.stage > 0) {
          piece.writes.push_back(place(1, op.stage, op.microbatch));
        }
        for (const std::uint32_t read : piece.reads) ++readers[read];
        pieces.push_back(std::move(piece));
      }
    }
  }
  std::vector<std::vector<Piece>> workers;
  std::map<std::uint32_t, std::uint32_t> readers;

 private:
  std::uint32_t place(std::uint32_t kind, std::uint32_t stage, std::uint32_t microbatch) const {
    const auto stages = static_cast<std::uint32_t>(schedule_.device_of_stage.size());
    return (kind * stages + stage) * schedule_.microbatches + microbatch;
  }
  const PipelineSchedule& schedule_;
};

class Execution {
 public:
  Execution(const Course& course, std::uint32_t places, std::uint32_t buffers, std::uint64_t seed,
            const std::filesystem::path& folder)
      : course_(course), left_(places) {
    ActivationStoreOptions options;
    for (std::uint32_t i = 0; i < places; ++i) options.activation_cuts.push_back(i);
    options.boundary_bytes = kBytes;
    options.rounds = 1;
    options.buffers = buffers;
    options.disk_folder = folder;
    store_ = *ActivationStore::make(options);
    std::mt19937_64 random(seed);
    for (std::uint32_t i = 0; i < places; ++i) {
      const auto readers = course.readers.find(i);
      left_[i] = readers == course.readers.end() ? 0 : readers->second;
      // Any hints: a wrong one costs time and nothing else.
      orders_.push_back({{1 + random() % 1000, 1000 + random() % 1000}});
    }
  }

  /// False when somebody waited for too long.
  bool go() {
    std::vector<std::thread> threads;
    for (const auto& pieces : course_.workers) {
      threads.emplace_back([&] { work(pieces); });
    }
    for (std::thread& thread : threads) thread.join();
    return !failed_;
  }
  Bytes written() const { return store_->tier()->stats().written; }
  bool wrong() const { return wrong_; }

 private:
  static BoundaryPlace at(std::uint32_t id) { return {BoundaryKind::kActivation, 0, id, 0}; }

  /// As a worker does: one thread feeds, at most two pieces ahead of the one that retires.
  void work(const std::vector<Piece>& pieces) {
    Mutex mutex;
    CondVar changed;
    std::size_t fed = 0;
    std::size_t retired = 0;
    std::thread retiring([&] {
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        {
          const MutexLock lock(mutex);
          while (fed <= i && !failed_) changed.wait(mutex);
          if (failed_) return;
        }
        retire(pieces[i]);
        const MutexLock lock(mutex);
        ++retired;
        changed.notify_all();
      }
    });
    for (const Piece& piece : pieces) {
      {
        const MutexLock lock(mutex);
        while (retired + 1 < fed && !failed_) changed.wait(mutex);
      }
      if (!failed_) feed(piece);
      const MutexLock lock(mutex);
      ++fed;
      changed.notify_all();
    }
    retiring.join();
  }

  void feed(const Piece& piece) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    absl::Status status;
    for (const std::uint32_t id : piece.writes) {
      if (status.ok()) status = store_->reserve(at(id), deadline, kBytes, orders_[id]);
    }
    for (const std::uint32_t id : piece.reads) {
      if (status.ok()) status = store_->hold(at(id), deadline);
    }
    if (status.ok()) return;
    failed_ = true;
    store_->fail(status);
  }

  void retire(const Piece& piece) {
    for (const std::uint32_t id : piece.reads) {
      const auto* bytes = store_->view(at(id), kBytes).host();
      for (Bytes i = 0; i < kBytes; i += 97) {
        if (bytes[i] != value(id, i)) wrong_ = true;
      }
      store_->let_go(at(id));
      if (--left_[id] == 0) store_->release(at(id));
    }
    for (const std::uint32_t id : piece.writes) {
      auto* bytes = store_->view(at(id), kBytes).host();
      for (Bytes i = 0; i < kBytes; ++i) bytes[i] = value(id, i);
      store_->publish(at(id));
    }
  }
  static std::byte value(std::uint32_t id, Bytes i) { return static_cast<std::byte>(id * 29 + i * 3); }

  const Course& course_;
  std::unique_ptr<ActivationStore> store_;
  std::vector<std::atomic<std::uint32_t>> left_;
  std::vector<ReadOrder> orders_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> wrong_ = false;
};

class Schedules : public testing::Test {
 protected:
  ~Schedules() override { std::filesystem::remove_all(folder_); }
  /// Two pieces in flight a worker, each with two inputs and an output.
  void expect_ends(const PipelineSchedule& schedule, std::uint64_t seed) {
    SCOPED_TRACE(schedule.name + ", " + std::to_string(schedule.orders.size()) + " devices, " +
                 std::to_string(schedule.microbatches) + " microbatches, seed " + std::to_string(seed));
    ASSERT_TRUE(partition::validate(schedule).ok());
    const Course course(schedule);
    const auto stages = static_cast<std::uint32_t>(schedule.device_of_stage.size());
    Execution run(course, 2 * stages * schedule.microbatches, static_cast<std::uint32_t>(schedule.orders.size()) * 6,
                  seed, folder_);
    EXPECT_TRUE(run.go()) << "somebody waited for ever";
    EXPECT_FALSE(run.wrong()) << "other bytes";
    written_ += run.written();
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("rondo_boundary_schedules_" + std::to_string(::getpid()));
  Bytes written_ = 0;
};

TEST_F(Schedules, OfEveryKind_EndWithTheFewestBuffers) {
  for (const std::uint32_t devices : {1U, 2U, 3U, 5U}) {
    for (const std::uint32_t rounds : {1U, 3U, 5U}) {
      const std::uint32_t m = devices * rounds;
      expect_ends(partition::gpipe(devices, m), m);
      expect_ends(partition::one_f_one_b(devices, m), m);
      expect_ends(partition::interleaved(devices, m, 3), m);
      expect_ends(partition::looped_breadth_first(devices, m, 3), m);
      expect_ends(partition::zb_h1(devices, m), m);
      expect_ends(partition::zb_v(devices, m), m);
      expect_ends(partition::roundpipe(devices, m, 4, 3, true), m);
      expect_ends(partition::roundpipe(devices, m, 4, 3, false), m);
    }
  }
  EXPECT_GT(written_, 0U);
}

/// Stages dealt at random; each device works through its pieces in an order that follows one over all of them.
TEST_F(Schedules, AtRandom_EndWithTheFewestBuffers) {
  std::mt19937_64 random(7);
  const auto below = [&](std::uint64_t most) { return static_cast<std::uint32_t>(random() % most); };
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    PipelineSchedule schedule;
    schedule.name = "random";
    schedule.microbatches = 1 + below(8);
    const std::uint32_t stages = 2 + below(6);
    schedule.orders.resize(1 + below(4));
    for (std::uint32_t s = 0; s < stages; ++s) {
      schedule.device_of_stage.push_back(below(schedule.orders.size()));
    }
    // The next piece of a microbatch drawn at random, forward up and backward down, until none is left.
    std::vector<std::uint32_t> next(schedule.microbatches, 0);
    for (std::uint32_t left = schedule.microbatches * 2 * stages; left > 0;) {
      const std::uint32_t m = below(schedule.microbatches);
      if (next[m] == 2 * stages) continue;
      const std::uint32_t step = next[m]++;
      const bool forward = step < stages;
      const std::uint32_t stage = forward ? step : 2 * stages - 1 - step;
      schedule.orders[schedule.device_of_stage[stage]].push_back(
          {forward ? Work::kForward : Work::kBackward, stage, m});
      --left;
    }
    expect_ends(schedule, seed);
  }
  EXPECT_GT(written_, 0U);
}

}  // namespace
}  // namespace rondo::offload
