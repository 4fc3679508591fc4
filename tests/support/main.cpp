// The main of every test program: what tests write lies in a folder of the process and goes with it. A shard of which
// every case was skipped ends with a status of its own.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace {

constexpr int kAllSkipped = 77;  // SKIP_RETURN_CODE in tests/CMakeLists.txt

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  std::string folder = std::filesystem::path(testing::TempDir()) / "rondo_test_XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    std::perror(folder.c_str());
    return 1;
  }
  ::setenv("TEST_TMPDIR", (folder + "/").c_str(), /*overwrite=*/1);  // for testing::TempDir()
  const int status = RUN_ALL_TESTS();
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (::getenv("GTEST_TOTAL_SHARDS") == nullptr) return status;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  const bool nothing = all.test_to_run_count() > 0 && all.skipped_test_count() == all.test_to_run_count();
  return status == 0 && nothing ? kAllSkipped : status;
}
