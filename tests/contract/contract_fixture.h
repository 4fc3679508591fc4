// The fixture of the contract suite: an open device, and helpers that fail the case instead of crashing.
//
// CONTRACT_TEST(Name) { ... } runs on every backend. Where the exclusions excuse a backend the case must fail; should
// it pass, the exclusion is out of date and that is the failure.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends.h"
#include "patience.h"
#include "rondo/devices/device.h"

namespace rondo::devices::contract {

using test::patience;

class Contract : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    auto opened = GetParam().open(threads_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    device_ = *std::move(opened);
  }

  Device& device() { return *device_; }
  Queue& compute() { return device_->queue(QueueRole::kCompute); }
  Queue& up() { return device_->queue(QueueRole::kUp); }
  Queue& down() { return device_->queue(QueueRole::kDown); }
  void close() { device_.reset(); }

  Buffer allocate(Bytes size) {
    auto buffer = device_->allocate(size, MemoryKind::kDevice);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : Buffer();
  }
  static Buffer host(Bytes size) {
    auto buffer = allocate_host(size, "contract");
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : Buffer();
  }
  /// Outlives the device: work that was poisoned says so later than who waits for it hears of the first failure.
  std::shared_ptr<Timeline> timeline() {
    auto made = device_->timeline();
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return nullptr;
    timelines_.push_back(*std::move(made));
    return timelines_.back();
  }
  /// A host buffer of `size` bytes that count up from `seed`.
  static Buffer pattern(Bytes size, unsigned seed) {
    Buffer buffer = host(size);
    for (Bytes i = 0; i < size; ++i) buffer.view().host()[i] = static_cast<std::byte>((i * 7 + seed) & 0xFFU);
    return buffer;
  }
  static bool same_bytes(BufferView a, BufferView b) {
    return a.size == b.size && a.host() != nullptr && b.host() != nullptr &&
           std::memcmp(a.host(), b.host(), a.size) == 0;
  }
  /// Copies and waits.
  absl::Status copy(Queue& queue, BufferView from, BufferView to) {
    const auto done = timeline();
    queue.copy(from, to, {}, {done.get(), 1}, {"contract"});
    return done->wait(1, patience());
  }
  void expect_contents(BufferView on_device, BufferView expected) {
    const Buffer back = host(on_device.size);
    const absl::Status status = copy(down(), on_device, back.view());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(same_bytes(back.view(), expected));
  }

  /// Runs a case's body, turned round where the backend is excused.
  template <typename Body>
  void judge(const char* test, Body body) {
    const Exclusion* excuse = find_exclusion(GetParam().name, test);
    if (excuse == nullptr) return body();
    testing::TestPartResultArray failures;
    {
      testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
      body();
    }
    if (failures.size() == 0) {
      FAIL() << GetParam().name << " passes " << test << ", which its exclusion denies (" << excuse->reason
             << "): take the exclusion away";
    }
    GTEST_SKIP() << (excuse->kind == Exclusion::Kind::kNever ? "never: " : "not yet: ") << excuse->reason;
  }

  ThreadPool threads_{2};

 private:
  std::vector<std::shared_ptr<Timeline>> timelines_;
  std::unique_ptr<Device> device_;  // first to go
};

inline std::string name_of_case(const testing::TestParamInfo<Backend>& backend) { return backend.param.name; }

#define CONTRACT_TEST(Name) CONTRACT_TEST_ON(Contract, Name)
/// The same with a fixture that derives from Contract.
#define CONTRACT_TEST_ON(Fixture, Name)                                          \
  class Name##_Case : public Fixture {                                           \
   public:                                                                       \
    void body();                                                                 \
  };                                                                             \
  using Name = Name##_Case;                                                      \
  TEST_P(Name, Holds) {                                                          \
    judge(#Name, [this] { body(); });                                            \
  }                                                                              \
  INSTANTIATE_TEST_SUITE_P(, Name, testing::ValuesIn(backends()), name_of_case); \
  void Name##_Case::body()

}  // namespace rondo::devices::contract
