// The main of every test program: what tests write lies in a folder of the process and goes with it.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <string>

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
  return status;
}
