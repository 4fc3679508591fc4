// The order in which gradients come together. Sums of 1e8, 1 and -1e8 in fp32 tell every order apart: 1e8 + 1 is 1e8.
#include "rondo/offload/gradient_home.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <future>
#include <limits>
#include <thread>

#include "patience.h"

namespace rondo::offload {
namespace {

using test::patience;

using std::chrono::steady_clock;
using testing::ElementsAre;

class Home : public testing::Test {
 protected:
  void make(const std::vector<GradientSpec>& specs) { home_ = *GradientHome::make(specs, 4, false, threads_); }
  template <typename Number>
  devices::BufferView view_of(const std::vector<Number>& values) {
    buffers_.push_back(*devices::allocate_host(values.size() * sizeof(Number), "test"));
    std::memcpy(buffers_.back().view().host(), values.data(), values.size() * sizeof(Number));
    return buffers_.back().view();
  }
  void bring_first(ParameterId id, const std::vector<float>& values) {
    std::memcpy(home_->sum(id).host(), values.data(), values.size() * sizeof(float));
    home_->complete_first(id);
  }
  absl::Status add_rows(ParameterId id, std::uint32_t microbatch, const std::vector<std::int32_t>& ids,
                        const std::vector<float>& rows) {
    std::vector<std::int32_t> counted = {static_cast<std::int32_t>(ids.size())};
    counted.insert(counted.end(), ids.begin(), ids.end());
    return home_->add_rows(id, microbatch, view_of(counted), view_of(rows));
  }
  std::vector<float> gradient(ParameterId id) {
    const auto values = home_->gradient(id);
    return {values.begin(), values.end()};
  }

  devices::ThreadPool threads_{2};
  std::deque<devices::Buffer> buffers_;
  std::unique_ptr<GradientHome> home_;
};

GradientSpec dense(ParameterId id, std::uint64_t elements) { return {id, elements, true, false, 0, -1}; }

TEST_F(Home, GroupsThatComeEarly_WaitForTheirTurn) {
  make({dense(2, 2)});
  home_->begin_step(3, 3);
  auto last = std::async(std::launch::async, [this] { return home_->add(2, 2, view_of<float>({-1e8F, 5})); });
  EXPECT_EQ(last.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
  bring_first(2, {1e8F, 1});
  EXPECT_EQ(last.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout) << "group 1 is still out";
  EXPECT_FALSE(home_->complete());
  const devices::BufferView middle = [this] { return view_of<float>({1, 2}); }();
  ASSERT_TRUE(home_->add(2, 1, middle).ok());
  ASSERT_TRUE(last.get().ok());
  EXPECT_TRUE(home_->complete());
  ASSERT_TRUE(home_->wait_until_complete(patience()).ok());
  EXPECT_DOUBLE_EQ(home_->squares(2), 64.0);
  EXPECT_THAT(gradient(2), ElementsAre(0, 8)) << "in another order the first would be 1";
}

TEST_F(Home, GroupThatComesTwice_IsRefused) {
  make({dense(0, 1)});
  home_->begin_step(3, 3);
  bring_first(0, {1});
  ASSERT_TRUE(home_->add(0, 1, view_of<float>({1})).ok());
  EXPECT_EQ(home_->add(0, 1, view_of<float>({1})).code(), absl::StatusCode::kInternal);
}

TEST_F(Home, NextStep_StartsFromNothing) {
  make({dense(0, 1), {1, 4, false, true, 2, -1}});
  for (const float value : {3.0F, 4.0F}) {
    home_->begin_step(1, 1);
    EXPECT_FALSE(home_->complete());
    bring_first(0, {value});
    ASSERT_TRUE(add_rows(1, 0, {1}, {value, 1}).ok());
    EXPECT_TRUE(home_->complete());
    EXPECT_DOUBLE_EQ(home_->squares(0), value * value);
    EXPECT_THAT(gradient(1), ElementsAre(0, 0, value, 1));
  }
}

TEST_F(Home, RowsOfMicrobatches_AreAddedInTheirOrder) {
  make({{1, 6, false, true, 2, -1}});
  home_->begin_step(1, 3);
  auto last = std::async(std::launch::async, [this] {
    const std::int32_t ids[] = {1, 2};
    const float rows[] = {-1e8F, 7};
    devices::Buffer a = *devices::allocate_host(sizeof(ids), "test");
    devices::Buffer b = *devices::allocate_host(sizeof(rows), "test");
    std::memcpy(a.view().host(), ids, sizeof(ids));
    std::memcpy(b.view().host(), rows, sizeof(rows));
    return home_->add_rows(1, 2, a.view(), b.view());
  });
  ASSERT_TRUE(add_rows(1, 0, {0, 2}, {1, 2, 1e8F, 3}).ok());
  ASSERT_TRUE(add_rows(1, 1, {2}, {1, 4}).ok());
  ASSERT_TRUE(last.get().ok());
  EXPECT_THAT(gradient(1), ElementsAre(1, 2, 0, 0, 0, 14));
  EXPECT_EQ(add_rows(1, 1, {2}, {1, 4}).code(), absl::StatusCode::kInternal) << "it came already";
}

TEST_F(Home, TiedTable_AddsItsRowsLastWhateverCameFirst) {
  for (const bool rows_first : {true, false}) {
    make({{1, 4, true, true, 2, -1}});
    home_->begin_step(2, 1);
    if (rows_first) {
      ASSERT_TRUE(add_rows(1, 0, {1}, {-1e8F, 1}).ok());
    }
    bring_first(1, {1, 1, 1e8F, 1});
    ASSERT_TRUE(home_->add(1, 1, view_of<float>({1, 1, 1, 1})).ok());
    if (!rows_first) {
      EXPECT_FALSE(home_->complete());
      ASSERT_TRUE(add_rows(1, 0, {1}, {-1e8F, 1}).ok());
    }
    ASSERT_TRUE(home_->complete());
    EXPECT_THAT(gradient(1), ElementsAre(2, 2, 0, 3));
  }
}

TEST_F(Home, PaddingRow_IsTrainedByTheHeadAlone) {
  make({{1, 6, true, true, 2, 1}});
  home_->begin_step(1, 1);
  bring_first(1, {1, 1, 10, 20, 1, 1});
  ASSERT_TRUE(add_rows(1, 0, {0, 1, 2}, {5, 5, 6, 6, 7, 7}).ok());
  EXPECT_THAT(gradient(1), ElementsAre(6, 6, 10, 20, 8, 8));
}

TEST_F(Home, MissingGroup_MissesTheDeadlineAndAbandonEndsTheWait) {
  make({dense(0, 1)});
  home_->begin_step(2, 2);
  bring_first(0, {1});
  EXPECT_EQ(home_->wait_until_complete(steady_clock::now() + std::chrono::milliseconds(20)).code(),
            absl::StatusCode::kDeadlineExceeded);
  auto waiting = std::async(std::launch::async, [this] { return home_->wait_until_complete(patience()); });
  home_->abandon();
  EXPECT_EQ(waiting.get().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(home_->add(0, 1, view_of<float>({1})).code(), absl::StatusCode::kCancelled);
  home_->begin_step(1, 1);
  bring_first(0, {1});
  EXPECT_TRUE(home_->wait_until_complete(patience()).ok()) << "the next step begins anew";
}

TEST_F(Home, NumberThatIsNotFinite_ShowsInTheSum) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    make({dense(0, 70000)});
    home_->begin_step(1, 1);
    std::vector<float> values(70000, 1);
    values[69999] = bad;
    bring_first(0, values);
    EXPECT_FALSE(std::isfinite(home_->squares(0)));
  }
}

TEST_F(Home, SumOfSquares_IsTheSameForAnyNumberOfThreads) {
  std::vector<float> values(200001);
  double exact = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i)) * 3;
    exact += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  std::vector<double> sums;
  for (const std::uint32_t count : {1U, 2U, 3U}) {
    devices::ThreadPool threads(count);
    const auto home = *GradientHome::make({dense(0, values.size())}, 1, false, threads);
    home->begin_step(1, 1);
    std::memcpy(home->sum(0).host(), values.data(), values.size() * sizeof(float));
    home->complete_first(0);
    sums.push_back(home->squares(0));
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
  EXPECT_NEAR(sums[0], exact, 1e-12 * exact);
}

}  // namespace
}  // namespace rondo::offload
