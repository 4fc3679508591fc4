// The engine over a device of which the test decides when a copy lands.
#include "rondo/transfer/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <thread>

#include "patience.h"
#include "rondo/base/mutex.h"
#include "rondo/devices/host_queue.h"

namespace rondo::transfer {
namespace {

using devices::BufferView;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;

using test::patience;

/// Copies wait here until the test lets them land, one by one.
class HandQueue final : public devices::Queue {
 public:
  void run(const devices::Program&, const devices::Bindings&, std::span<const devices::Point>, devices::Point,
           const devices::WorkTag&) override {}
  void clear(BufferView, std::span<const devices::Point>, devices::Point, const devices::WorkTag&) override {}
  void copy(BufferView from, BufferView to, std::span<const devices::Point>, devices::Point signal,
            const devices::WorkTag& tag) override {
    const MutexLock lock(mutex_);
    copies_.push_back({from, to, signal, tag});
    changed_.notify_all();
  }

  /// Waits for the next copy, carries it out and says whose it was ("name:bytes").
  std::string land_next() {
    Copy copy;
    bool change = false;
    {
      const MutexLock lock(mutex_);
      while (copies_.empty()) {
        if (!changed_.wait_until(mutex_, patience()) && copies_.empty()) return "nothing came";
      }
      copy = copies_.front();
      copies_.pop_front();
      change = changing_ > 0;
      if (change) --changing_;
    }
    if (copy.from.host() != nullptr) std::memcpy(copy.to.host(), copy.from.host(), copy.from.size);
    if (change) copy.to.host()[copy.to.size / 2] ^= std::byte{4};
    copy.signal.timeline->signal(copy.signal.value);
    return copy.tag.name + (":" + std::to_string(copy.from.size));
  }
  /// From now on each of the next `n` copies arrives with one bit changed.
  void change_next(std::size_t n) {
    const MutexLock lock(mutex_);
    changing_ = n;
  }
  void fail_next(const absl::Status& error) {
    const MutexLock lock(mutex_);
    while (copies_.empty()) changed_.wait(mutex_);
    copies_.front().signal.timeline->poison(error);
    copies_.pop_front();
  }
  /// Waits until `n` copies are under way.
  void await(std::size_t n) {
    const MutexLock lock(mutex_);
    while (copies_.size() < n) ASSERT_TRUE(changed_.wait_until(mutex_, patience()) || copies_.size() >= n);
  }
  std::size_t under_way() {
    const MutexLock lock(mutex_);
    return copies_.size();
  }

 private:
  struct Copy {
    BufferView from;
    BufferView to;
    devices::Point signal;
    devices::WorkTag tag;
  };
  Mutex mutex_;
  CondVar changed_;
  std::deque<Copy> copies_ ABSL_GUARDED_BY(mutex_);
  std::size_t changing_ ABSL_GUARDED_BY(mutex_) = 0;
};

class HandDevice final : public devices::Device {
 public:
  const devices::DeviceCaps& caps() const override { return caps_; }
  absl::StatusOr<devices::Buffer> allocate(Bytes size, devices::MemoryKind) override {
    if (refuses_memory) return absl::ResourceExhaustedError("no pinned memory");
    return devices::allocate_host(size, "test");
  }
  absl::StatusOr<std::unique_ptr<devices::Program>> compile(const devices::OpList&,
                                                            const devices::ArenaLayout&) override {
    return absl::UnimplementedError("no programs");
  }
  absl::StatusOr<std::unique_ptr<devices::Timeline>> timeline() override {
    return std::make_unique<devices::HostTimeline>();
  }
  devices::Queue& queue(devices::QueueRole role) override { return role == devices::QueueRole::kDown ? down : up; }
  void observe(devices::WorkObserver*) override {}
  Bytes allocated_bytes() const override { return 0; }
  Bytes peak_bytes() const override { return 0; }

  HandQueue up;
  HandQueue down;
  bool refuses_memory = false;

 private:
  devices::DeviceCaps caps_;
};

struct Told final : TransferListener {
  void on_transfer(std::uint64_t cookie, const absl::Status& status) override {
    const MutexLock lock(mutex);
    cookies.push_back(cookie);
    codes.push_back(status.code());
  }
  Mutex mutex;
  std::vector<std::uint64_t> cookies;
  std::vector<absl::StatusCode> codes;
};

class Engine : public testing::Test {
 protected:
  static constexpr Bytes kChunk = 1000;
  void make(const EngineOptions& options = {kChunk, 16}) {
    auto made = TransferEngine::make(device_, options);
    ASSERT_TRUE(made.ok()) << made.status();
    engine_ = *std::move(made);
  }
  /// A transfer of `size` bytes of a pattern, named for the device's log.
  Transfer transfer(const char* name, Bytes size, Urgency urgency) {
    Transfer made;
    buffers_.push_back(*devices::allocate_host(size, "test"));
    made.from = buffers_.back().view();
    for (Bytes i = 0; i < size; ++i) made.from.host()[i] = static_cast<std::byte>(i * 7 + size);
    buffers_.push_back(*devices::allocate_host(size, "test"));
    made.to = buffers_.back().view();
    made.urgency = urgency;
    made.tag.name = name;
    return made;
  }
  static bool arrived(const Transfer& transfer) {
    return std::memcmp(transfer.from.host(), transfer.to.host(), transfer.from.size) == 0;
  }
  std::vector<std::string> land(std::size_t n) {
    std::vector<std::string> log;
    for (std::size_t i = 0; i < n; ++i) log.push_back(device_.up.land_next());
    return log;
  }

  HandDevice device_;
  std::deque<devices::Buffer> buffers_;
  std::unique_ptr<TransferEngine> engine_;
};

TEST_F(Engine, LargeTransfer_GoesInChunksAndArrivesWhole) {
  make();
  const Transfer one = transfer("w", 2500, Urgency::kWeight);
  const Ticket ticket = engine_->submit(Direction::kUp, one);
  EXPECT_THAT(land(3), ElementsAre("w:1000", "w:1000", "w:500"));
  EXPECT_TRUE(engine_->wait(Direction::kUp, ticket, patience()).ok());
  EXPECT_TRUE(arrived(one));
  EXPECT_TRUE(engine_->wait(Direction::kUp, Ticket{}, patience()).ok()) << "ticket 0 is complete from the start";
}

TEST_F(Engine, UrgentTransfer_WaitsForTheTwoChunksUnderWayAlone) {
  make();
  const Transfer large = transfer("g", 6000, Urgency::kGradient);
  const Ticket slow = engine_->submit(Direction::kUp, large);
  device_.up.await(2);
  const Ticket quick = engine_->submit(Direction::kUp, transfer("a", 800, Urgency::kActivation));
  EXPECT_THAT(land(7), ElementsAre("g:1000", "g:1000", "a:800", "g:1000", "g:1000", "g:1000", "g:1000"));
  EXPECT_TRUE(engine_->wait(Direction::kUp, quick, patience()).ok());
  EXPECT_TRUE(engine_->wait(Direction::kUp, slow, patience()).ok());
  EXPECT_TRUE(arrived(large));
}

TEST_F(Engine, Activations_InAnyTraffic_WaitForNothingButWhatIsUnderWay) {
  constexpr std::size_t kTransfers = 60;
  constexpr std::uint32_t kUnderWay = 2;  // pieces that a link has at a time
  struct Sent {
    Transfer transfer;
    std::uint32_t pieces_left = 0;
    std::uint32_t waited_for = 0;  // less urgent pieces that landed since it was handed in
  };
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    make();
    const Direction direction = seed % 2 == 0 ? Direction::kUp : Direction::kDown;
    HandQueue& queue = seed % 2 == 0 ? device_.up : device_.down;
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
    std::deque<std::string> names;
    std::map<std::string, Sent> sent;
    std::uint32_t under_way = 0;  // transfers handed in and not landed
    while (names.size() < kTransfers || under_way > 0) {
      if (names.size() < kTransfers && under_way < 12 && (under_way == 0 || below(3) == 0)) {
        const std::string& name = names.emplace_back("t" + std::to_string(names.size()));
        const auto urgency = static_cast<Urgency>(below(kUrgencies));
        const Bytes size = 1 + below(6 * kChunk);
        Sent& one = sent[name];
        one.transfer = transfer(name.c_str(), size, urgency);
        one.pieces_left = static_cast<std::uint32_t>((size + kChunk - 1) / kChunk);
        ++under_way;
        engine_->submit(direction, one.transfer);
        continue;
      }
      const std::string landed = queue.land_next();
      Sent& one = sent.at(landed.substr(0, landed.find(':')));
      if (--one.pieces_left == 0) --under_way;
      if (one.transfer.urgency == Urgency::kActivation) continue;
      for (auto& [name, other] : sent) {
        if (other.transfer.urgency != Urgency::kActivation || other.pieces_left == 0) continue;
        ++other.waited_for;
      }
    }
    engine_.reset();
    for (const auto& [name, one] : sent) {
      EXPECT_LE(one.waited_for, kUnderWay) << name << ", seed " << seed;
      EXPECT_TRUE(arrived(one.transfer)) << name << ", seed " << seed;
    }
  }
}

TEST_F(Engine, Urgencies_GoInOrderAndWithinOneFirstComeFirstServed) {
  make();
  engine_->submit(Direction::kUp, transfer("busy", 2000, Urgency::kBackground));
  device_.up.await(2);
  for (const auto& [name, urgency] : {std::pair{"back", Urgency::kBackground}, std::pair{"grad1", Urgency::kGradient},
                                      std::pair{"weight1", Urgency::kWeight}, std::pair{"grad2", Urgency::kGradient},
                                      std::pair{"act", Urgency::kActivation}, std::pair{"weight2", Urgency::kWeight}}) {
    engine_->submit(Direction::kUp, transfer(name, 10, urgency));
  }
  EXPECT_THAT(land(8), ElementsAre("busy:1000", "busy:1000", "act:10", "weight1:10", "weight2:10", "grad1:10",
                                   "grad2:10", "back:10"));
}

TEST_F(Engine, Directions_DoNotWaitForEachOther) {
  make();
  engine_->submit(Direction::kUp, transfer("up", 5000, Urgency::kActivation));
  device_.up.await(2);
  const Transfer back = transfer("down", 1500, Urgency::kBackground);
  const Ticket ticket = engine_->submit(Direction::kDown, back);
  EXPECT_EQ(device_.down.land_next(), "down:1000");
  EXPECT_EQ(device_.down.land_next(), "down:500");
  EXPECT_TRUE(engine_->wait(Direction::kDown, ticket, patience()).ok());
  EXPECT_TRUE(arrived(back));
  land(5);
}

TEST_F(Engine, DevicesError_IsTheTransfersAndTheListeners) {
  make();
  Told told;
  Transfer one = transfer("w", 1500, Urgency::kWeight);
  one.listener = &told;
  one.cookie = 9;
  const Ticket ticket = engine_->submit(Direction::kUp, one);
  device_.up.await(2);
  device_.up.fail_next(absl::InternalError("the card fell off the bus"));
  const absl::Status status = engine_->wait(Direction::kUp, ticket, patience());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("fell off the bus"));
  const MutexLock lock(told.mutex);
  EXPECT_THAT(told.cookies, ElementsAre(9));
  EXPECT_THAT(told.codes, ElementsAre(absl::StatusCode::kInternal));
}

TEST_F(Engine, DevicesError_IsStillToldWhenAnotherTransferHasTakenThePlace) {
  make({kChunk, 1});
  const Ticket first = engine_->submit(Direction::kDown, transfer("g", 10, Urgency::kGradient));
  device_.down.await(1);
  device_.down.fail_next(absl::InternalError("the card fell off the bus"));
  engine_->submit(Direction::kDown, transfer("g", 10, Urgency::kGradient));
  EXPECT_EQ(engine_->wait(Direction::kDown, first, patience()).code(), absl::StatusCode::kInternal);
}

TEST_F(Engine, MissedDeadline_LeavesTheTransferRunning) {
  make();
  const Ticket ticket = engine_->submit(Direction::kUp, transfer("w", 10, Urgency::kWeight));
  device_.up.await(1);
  EXPECT_EQ(engine_->wait(Direction::kUp, ticket, steady_clock::now() + std::chrono::milliseconds(20)).code(),
            absl::StatusCode::kDeadlineExceeded);
  land(1);
  EXPECT_TRUE(engine_->wait(Direction::kUp, ticket, patience()).ok());
}

TEST_F(Engine, MoreThanTheCapacity_GoThroughOneByOne) {
  make({kChunk, 2});
  std::vector<Transfer> all;
  for (int i = 0; i < 9; ++i) all.push_back(transfer("t", 50, Urgency::kWeight));
  std::vector<Ticket> tickets;
  // submit() blocks while two are unfinished: the landing must go on beside it.
  std::thread host([this] { land(9); });
  for (const Transfer& one : all) tickets.push_back(engine_->submit(Direction::kUp, one));
  host.join();
  for (const Ticket ticket : tickets) EXPECT_TRUE(engine_->wait(Direction::kUp, ticket, patience()).ok());
  for (const Transfer& one : all) EXPECT_TRUE(arrived(one));
}

TEST_F(Engine, Staging_CarriesEveryByteThroughPinnedMemory) {
  make({kChunk, 16, /*staging=*/true});
  EXPECT_EQ(engine_->staging_bytes(), 4 * kChunk) << "two chunks each way";
  const Transfer up = transfer("up", 3300, Urgency::kWeight);
  const Transfer down = transfer("down", 3300, Urgency::kWeight);
  const Ticket first = engine_->submit(Direction::kUp, up);
  const Ticket second = engine_->submit(Direction::kDown, down);
  for (int i = 0; i < 4; ++i) {
    device_.up.land_next();
    device_.down.land_next();
  }
  EXPECT_TRUE(engine_->wait(Direction::kUp, first, patience()).ok());
  EXPECT_TRUE(engine_->wait(Direction::kDown, second, patience()).ok());
  EXPECT_TRUE(arrived(up));
  EXPECT_TRUE(arrived(down));
}

TEST_F(Engine, LostDevice_EndsWaitsAndBlockedSubmitsForGood) {
  make({kChunk, 2});
  const absl::Status lost = absl::UnavailableError("the card hangs");
  const Ticket first = engine_->submit(Direction::kUp, transfer("w", 1500, Urgency::kWeight));
  engine_->submit(Direction::kUp, transfer("w", 10, Urgency::kWeight));
  device_.up.await(2);
  EXPECT_TRUE(engine_->progress(Direction::kUp).under_way);
  EXPECT_EQ(engine_->progress(Direction::kUp).landed_chunks, 0U);
  const Transfer third = transfer("w", 10, Urgency::kWeight);
  absl::Status of_waiting;
  absl::Status of_submitting;
  std::thread waiting([&] { of_waiting = engine_->wait(Direction::kUp, first, steady_clock::time_point::max()); });
  std::thread submitting([&] {
    const Ticket ticket = engine_->submit(Direction::kUp, third);  // the engine is full
    of_submitting = engine_->wait(Direction::kUp, ticket, steady_clock::time_point::max());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  engine_->fail(lost);
  waiting.join();
  submitting.join();
  EXPECT_EQ(of_waiting, lost);
  EXPECT_EQ(of_submitting, lost);
  EXPECT_EQ(engine_->wait(Direction::kUp, engine_->submit(Direction::kUp, third), patience()), lost);
  engine_->join();
  EXPECT_FALSE(engine_->progress(Direction::kUp).under_way);
}

TEST_F(Engine, ShortTransfers_NeedLittleStagingMemory) {
  constexpr Bytes kPage = 4096;
  EngineOptions options{64 * kPage, 16, /*staging=*/true};
  options.longest = {2 * kPage - 5, 64 * kPage};
  make(options);
  EXPECT_EQ(engine_->staging_bytes(), 2 * (2 + 64) * kPage);
  const Transfer longer = transfer("up", 3 * kPage, Urgency::kWeight);  // arrives all the same
  const Ticket ticket = engine_->submit(Direction::kUp, longer);
  EXPECT_THAT(land(2), ElementsAre("up:8192", "up:4096"));
  EXPECT_TRUE(engine_->wait(Direction::kUp, ticket, patience()).ok());
  EXPECT_TRUE(arrived(longer));
}

TEST_F(Engine, SeveralCopiers_BringTheSameBytes) {
  constexpr Bytes kLong = 3 * (Bytes{1} << 20U) + 333;  // several pieces, the last one short
  EngineOptions options{kLong, 4, /*staging=*/true};
  options.copiers = 3;
  make(options);
  for (const Direction direction : {Direction::kUp, Direction::kDown}) {
    const Transfer one = transfer("long", kLong, Urgency::kWeight);
    const Ticket ticket = engine_->submit(direction, one);
    (direction == Direction::kUp ? device_.up : device_.down).await(1);
    (direction == Direction::kUp ? device_.up : device_.down).land_next();
    EXPECT_TRUE(engine_->wait(direction, ticket, patience()).ok());
    EXPECT_TRUE(arrived(one));
  }
}

TEST_F(Engine, LostDevice_WritesNothingToTheHostAnyMore) {
  make({kChunk, 4, false, /*staging_down=*/true});
  Told told;
  Transfer one = transfer("d", 700, Urgency::kGradient);
  one.listener = &told;
  const Ticket ticket = engine_->submit(Direction::kDown, one);
  device_.down.await(1);
  engine_->fail(absl::UnavailableError("the card hangs"));
  EXPECT_FALSE(engine_->wait(Direction::kDown, ticket, patience()).ok());
  device_.down.land_next();  // the card goes on after all
  engine_->join();
  for (Bytes i = 0; i < one.to.size; ++i) ASSERT_EQ(one.to.host()[i], std::byte{0}) << i;
  EXPECT_THAT(told.codes, ElementsAre(testing::Ne(absl::StatusCode::kOk)));
}

TEST_F(Engine, EnqueuedTransfer_HasAPointToFollow_BeforeItHasLanded) {
  make();
  const Ticket ticket = engine_->submit(Direction::kUp, transfer("w", 2500, Urgency::kWeight));
  device_.up.await(2);
  const auto soon = [] { return steady_clock::now() + std::chrono::milliseconds(20); };
  EXPECT_EQ(engine_->wait_until_enqueued(Direction::kUp, ticket, soon()).status().code(),
            absl::StatusCode::kDeadlineExceeded);  // the device has two chunks of three
  land(1);
  const auto point = engine_->wait_until_enqueued(Direction::kUp, ticket, patience());
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_NE(point->timeline, nullptr);
  land(1);
  EXPECT_LT(point->timeline->completed(), point->value);
  land(1);
  EXPECT_TRUE(point->timeline->wait(point->value, patience()).ok());
  ASSERT_TRUE(engine_->wait(Direction::kUp, ticket, patience()).ok());
  EXPECT_EQ(engine_->wait_until_enqueued(Direction::kUp, ticket, patience())->timeline, nullptr);
  EXPECT_EQ(engine_->wait_until_enqueued(Direction::kUp, {}, patience())->timeline, nullptr);
}

TEST_F(Engine, EnqueuedTransfer_ThatIsVerified_IsFollowedOnlyOnceItHasLanded) {
  make({kChunk, 4, false, false, /*verify=*/true});
  const Ticket ticket = engine_->submit(Direction::kUp, transfer("w", 100, Urgency::kWeight));
  device_.up.await(1);
  const auto soon = steady_clock::now() + std::chrono::milliseconds(20);
  EXPECT_EQ(engine_->wait_until_enqueued(Direction::kUp, ticket, soon).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  land(1);
  const auto point = engine_->wait_until_enqueued(Direction::kUp, ticket, patience());
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->timeline, nullptr);
}

TEST_F(Engine, EnqueuedTransfer_OfALostDevice_IsItsError) {
  make();
  const absl::Status lost = absl::UnavailableError("the card is gone");
  const Ticket ticket = engine_->submit(Direction::kUp, transfer("w", 100, Urgency::kWeight));
  device_.up.await(1);
  engine_->fail(lost);
  EXPECT_EQ(engine_->wait_until_enqueued(Direction::kUp, ticket, patience()).status(), lost);
  EXPECT_EQ(engine_->wait_until_enqueued(Direction::kUp, engine_->submit(Direction::kUp, {}), patience()).status(),
            lost);
}

TEST_F(Engine, ChangedChunk_IsSentOnceMore) {
  for (const bool staging : {false, true}) {
    make({kChunk, 4, staging, false, /*verify=*/true});
    const Transfer one = transfer("w", 2500, Urgency::kWeight);
    const Ticket ticket = engine_->submit(Direction::kUp, one);
    device_.up.await(2);
    device_.up.change_next(1);
    land(4);
    EXPECT_TRUE(engine_->wait(Direction::kUp, ticket, patience()).ok());
    EXPECT_TRUE(arrived(one));
    EXPECT_EQ(engine_->stats(Direction::kUp).repeated_chunks, 1U);
    const Transfer back = transfer("g", 10, Urgency::kGradient);
    const Ticket down = engine_->submit(Direction::kDown, back);
    device_.down.change_next(1);
    for (int i = 0; i < 2; ++i) device_.down.land_next();
    EXPECT_TRUE(engine_->wait(Direction::kDown, down, patience()).ok());
    EXPECT_TRUE(arrived(back));
  }
}

TEST_F(Engine, ChunkChangedTwice_IsDataLoss) {
  make({kChunk, 4, false, false, /*verify=*/true});
  const Ticket ticket = engine_->submit(Direction::kUp, transfer("w", 100, Urgency::kWeight));
  device_.up.change_next(2);
  land(2);
  const absl::Status status = engine_->wait(Direction::kUp, ticket, patience());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'w'"));
}

TEST_F(Engine, NoStagingMemory_IsResourceExhausted) {
  device_.refuses_memory = true;
  EXPECT_EQ(TransferEngine::make(device_, {kChunk, 4, true}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(Engine, Stats_CountTransfersAndBytesByUrgency) {
  make();
  const Ticket a = engine_->submit(Direction::kUp, transfer("a", 1500, Urgency::kActivation));
  const Ticket b = engine_->submit(Direction::kUp, transfer("b", 700, Urgency::kGradient));
  land(3);
  ASSERT_TRUE(engine_->wait(Direction::kUp, a, patience()).ok());
  ASSERT_TRUE(engine_->wait(Direction::kUp, b, patience()).ok());
  const LinkStats stats = engine_->stats(Direction::kUp);
  const auto& activations = stats.classes[static_cast<std::size_t>(Urgency::kActivation)];
  const auto& gradients = stats.classes[static_cast<std::size_t>(Urgency::kGradient)];
  EXPECT_EQ(activations.transfers, 1U);
  EXPECT_EQ(activations.bytes, 1500U);
  EXPECT_EQ(gradients.transfers, 1U);
  EXPECT_EQ(gradients.bytes, 700U);
  EXPECT_GT(stats.bandwidth(), 0);
  EXPECT_EQ(engine_->stats(Direction::kDown).bandwidth(), 0);
}

/// Nobody can see from outside whether the end has begun when a chunk lands: where it had not, what waited has gone on
/// its way, and it is given longer.
TEST_F(Engine, Destruction_EndsWhatWaitsAsCancelled) {
  std::vector<absl::StatusCode> codes;
  for (std::chrono::milliseconds pause{20}; pause < std::chrono::seconds(20); pause *= 4) {
    make();
    Told told;
    Transfer waiting = transfer("waiting", 10, Urgency::kBackground);
    waiting.listener = &told;
    engine_->submit(Direction::kUp, transfer("busy", 2000, Urgency::kWeight));
    device_.up.await(2);
    engine_->submit(Direction::kUp, waiting);
    std::atomic<bool> ended = false;
    std::thread end([this, &ended] {
      engine_.reset();
      ended = true;
    });
    std::this_thread::sleep_for(pause);
    EXPECT_THAT(land(2), ElementsAre("busy:1000", "busy:1000"));
    while (!ended) {
      if (device_.up.under_way() == 0) {
        std::this_thread::yield();
        continue;
      }
      EXPECT_THAT(land(1), ElementsAre("waiting:10"));
    }
    end.join();
    const MutexLock lock(told.mutex);
    codes = told.codes;
    if (codes != std::vector{absl::StatusCode::kOk}) break;
  }
  EXPECT_THAT(codes, ElementsAre(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace rondo::transfer
