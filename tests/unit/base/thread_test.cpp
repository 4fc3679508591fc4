// A thread that cannot be had is a status that says what for and what may be at fault.
#include "rondo/base/thread.h"

#include <gmock/gmock.h>

#include <string>

#include "few_threads.h"

namespace rondo {
namespace {

TEST(StartThread, ThatCanBeHad_RunsWhatItIsGiven) {
  int ran = 0;
  absl::StatusOr<std::thread> thread = start_thread("a test", [&ran] { ran = 1; });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_EQ(ran, 1);
}

TEST(StartThread, ThatCannotBeHad_IsAStatus) {
  if (!test::kCanHaveFewThreads) GTEST_SKIP() << "a sanitizer's threads are its own";
  const test::FewThreads none(0);
  const absl::Status status = start_thread("a test", [] {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("no thread for a test: "));
}

}  // namespace
}  // namespace rondo
