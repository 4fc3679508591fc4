// Places, rounds and waits of the store between devices.
#include "rondo/offload/activation_store.h"

#include <gtest/gtest.h>

#include <future>
#include <set>
#include <thread>

#include "patience.h"

namespace rondo::offload {
namespace {

using test::patience;
using test::soon;

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class Store : public testing::Test {
 protected:
  Store() {
    options_.activation_cuts = {2, 5};
    options_.gradient_cuts = {5};
    options_.microbatches = 3;
    options_.boundary_bytes = 64;
    store_ = *ActivationStore::make(options_);
  }
  static BoundaryPlace activation(std::uint64_t round, std::uint32_t cut, std::uint32_t microbatch) {
    return {BoundaryKind::kActivation, round, cut, microbatch};
  }
  ActivationStoreOptions options_;
  std::unique_ptr<ActivationStore> store_;
};

TEST_F(Store, PlacesOfTwoRounds_AreMemoryOfTheirOwn) {
  EXPECT_EQ(ActivationStore::bytes_for(options_), 2U * 3U * 3U * 64U);
  std::set<std::byte*> seen;
  for (const std::uint64_t round : {6U, 7U}) {
    for (const auto& [kind, cut] : {std::pair{BoundaryKind::kActivation, 2U}, std::pair{BoundaryKind::kActivation, 5U},
                                    std::pair{BoundaryKind::kGradient, 5U}}) {
      for (std::uint32_t m = 0; m < 3; ++m) {
        const devices::BufferView view = store_->view({kind, round, cut, m}, 48);
        EXPECT_EQ(view.size, 48U);
        EXPECT_TRUE(seen.insert(view.host()).second);
      }
    }
  }
  EXPECT_EQ(store_->view(activation(8, 2, 0), 64).host(), store_->view(activation(6, 2, 0), 64).host());
}

TEST_F(Store, Published_HoldsForItsRoundAlone) {
  const BoundaryPlace place = activation(0, 2, 1);
  EXPECT_FALSE(store_->was_published(place));
  ASSERT_TRUE(store_->reserve(place, patience()).ok());
  EXPECT_FALSE(store_->was_published(place)) << "reserved, not filled";
  EXPECT_EQ(store_->hold(place, soon()).code(), absl::StatusCode::kDeadlineExceeded);
  store_->publish(place);
  EXPECT_TRUE(store_->was_published(place));
  EXPECT_TRUE(store_->hold(place, patience()).ok());
  EXPECT_FALSE(store_->was_published(activation(2, 2, 1))) << "the same memory, another round";
  EXPECT_FALSE(store_->was_published(activation(0, 2, 0)));
}

/// Who takes over from a lost device must not fill once more what its readers have done with.
TEST_F(Store, Published_HoldsPastTheReleaseAndTheNextRound) {
  const BoundaryPlace place = activation(0, 2, 1);
  ASSERT_TRUE(store_->reserve(place, patience()).ok());
  store_->publish(place);
  store_->release(place);
  EXPECT_TRUE(store_->was_published(place));
  const BoundaryPlace next = activation(2, 2, 1);
  ASSERT_TRUE(store_->reserve(next, patience()).ok());
  EXPECT_TRUE(store_->was_published(place));
  EXPECT_FALSE(store_->was_published(next)) << "reserved, not filled";
}

TEST_F(Store, RoundAfterNext_WaitsForTheRelease) {
  const BoundaryPlace old = activation(0, 2, 0);
  ASSERT_TRUE(store_->reserve(old, patience()).ok());
  store_->publish(old);
  ASSERT_TRUE(store_->reserve(activation(1, 2, 0), soon()).ok()) << "the next round has a place of its own";
  EXPECT_EQ(store_->reserve(activation(2, 2, 0), soon()).code(), absl::StatusCode::kDeadlineExceeded);
  auto reserved = std::async(std::launch::async, [this] { return store_->reserve(activation(2, 2, 0), patience()); });
  EXPECT_EQ(reserved.wait_for(milliseconds(30)), std::future_status::timeout);
  EXPECT_TRUE(store_->was_published(old));
  store_->release(old);
  EXPECT_TRUE(reserved.get().ok());
  EXPECT_FALSE(store_->was_published(activation(2, 2, 0))) << "reserving must not bring back what was published before";
}

TEST_F(Store, DeviceFarAhead_WaitsForTheRoundThatHasNotBegun) {
  for (const std::uint64_t round : {0U, 1U, 2U}) {
    auto& filled = options_.fills.emplace_back();
    filled = {activation(round, 2, 0), {BoundaryKind::kGradient, round, 5, 0}};
    if (round != 1) filled.push_back(activation(round, 5, 0));
  }
  store_ = *ActivationStore::make(options_);
  store_->begin(3, {2, 3, 3}, true);
  EXPECT_EQ(store_->reserve(activation(5, 2, 1), soon()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(store_->reserve({BoundaryKind::kGradient, 5, 5, 0}, soon()).code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(store_->reserve(activation(5, 2, 2), patience()).ok()) << "round 3 has two microbatches";
  auto ahead = std::async(std::launch::async, [&] { return store_->reserve(activation(5, 2, 1), patience()); });
  ASSERT_TRUE(store_->reserve(activation(3, 2, 1), patience()).ok());
  store_->publish(activation(3, 2, 1));
  EXPECT_EQ(ahead.wait_for(milliseconds(30)), std::future_status::timeout) << "still held";
  store_->release(activation(3, 2, 1));
  EXPECT_TRUE(ahead.get().ok());
  store_->begin(6, {1, 0, 0}, false);
  ASSERT_TRUE(store_->reserve(activation(6, 5, 0), patience()).ok()) << "round 4 does not fill it";
  store_->reset();
  ASSERT_TRUE(store_->reserve(activation(5, 2, 0), patience()).ok()) << "nothing is expected any more";
}

TEST_F(Store, RoundsThatFillNothing_AreNotWaitedFor) {
  options_.fills = {{activation(0, 2, 0)}, {}, {}};
  store_ = *ActivationStore::make(options_);
  store_->begin(0, {3, 3, 3}, true);
  store_->begin(3, {3, 3, 3}, true);
  EXPECT_EQ(store_->reserve(activation(2, 2, 0), soon()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(store_->reserve(activation(5, 2, 0), soon()).code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(store_->reserve(activation(4, 2, 0), patience()).ok()) << "round 2 fills nothing";
}

TEST_F(Store, ReleaseOfAnOldRound_LeavesTheNewOne) {
  ASSERT_TRUE(store_->reserve(activation(2, 5, 0), patience()).ok());
  store_->publish(activation(2, 5, 0));
  store_->release(activation(0, 5, 0));
  EXPECT_TRUE(store_->was_published(activation(2, 5, 0)));
}

TEST_F(Store, Waiters_AreWokenByPublishAndByFailure) {
  const BoundaryPlace place{BoundaryKind::kGradient, 3, 5, 2};
  ASSERT_TRUE(store_->reserve(place, patience()).ok());
  auto filled = std::async(std::launch::async, [&] { return store_->hold(place, patience()); });
  store_->publish(place);
  EXPECT_TRUE(filled.get().ok());
  auto never = std::async(std::launch::async, [this] { return store_->hold(activation(3, 2, 2), patience()); });
  auto held = std::async(std::launch::async, [&] {
    return store_->reserve({BoundaryKind::kGradient, 5, 5, 2}, patience());
  });
  store_->fail(absl::InternalError("a device is lost"));
  store_->fail(absl::InternalError("a later error"));
  EXPECT_EQ(never.get().message(), "a device is lost");
  EXPECT_EQ(held.get().message(), "a device is lost");
  store_->reset();
  EXPECT_TRUE(store_->reserve({BoundaryKind::kGradient, 5, 5, 2}, soon()).ok());
}

}  // namespace
}  // namespace rondo::offload
