// What `cmake --install` and CPack leave: the program runs from there, and its manual, completions and examples are
// beside it.
#include <gmock/gmock.h>

#include <filesystem>

#include "shell.h"
#include "workspace.h"

namespace rondo::cli {
namespace {

namespace fs = std::filesystem;
using test::shell;
using test::Shown;
using testing::HasSubstr;
using testing::StartsWith;

/// A folder that is gone at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = testing::TempDir() + "/rondo_install_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no folder " << pattern;
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(Install, IntoAPrefix_RunsFromThere) {
  const Folder prefix;
  const Shown installed = shell(std::string("cmake --install ") + RONDO_BUILD + " --prefix " + prefix.path().string());
  ASSERT_EQ(installed.status, 0) << installed.output;
  const std::string program = (prefix.path() / "bin" / "rondo").string();
  const Shown version = shell("env -i " + program + " --version");
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.output, StartsWith("rondo "));
  const fs::path share = prefix.path() / "share";
  EXPECT_EQ(slurp(share / "man/man1/rondo.1"), shell(program + " man").output);
  EXPECT_EQ(slurp(share / "bash-completion/completions/rondo"), shell(program + " completion bash").output);
  EXPECT_EQ(slurp(share / "zsh/site-functions/_rondo"), shell(program + " completion zsh").output);
  EXPECT_EQ(slurp(share / "fish/vendor_completions.d/rondo.fish"), shell(program + " completion fish").output);
  EXPECT_EQ(slurp(share / "doc/rondo/copyright"), slurp("LICENSE"));
  EXPECT_TRUE(fs::exists(share / "doc/rondo/README.md"));
  for (const auto& entry : fs::directory_iterator("examples")) {
    EXPECT_TRUE(fs::exists(share / "doc/rondo/examples" / entry.path().filename())) << entry.path();
  }
}

TEST(Package, ForDebian_NamesTheLibrariesThatItNeeds) {
  if (shell("command -v dpkg-shlibdeps && command -v dpkg-deb && command -v file").status != 0)
    GTEST_SKIP() << "no Debian tools";
  const Folder folder;
  const Shown packed =
      shell(std::string("cpack --config ") + RONDO_BUILD + "/CPackConfig.cmake -G DEB -B " + folder.path().string());
  ASSERT_EQ(packed.status, 0) << packed.output;
  fs::path package;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    if (entry.path().extension() == ".deb") package = entry.path();
  }
  ASSERT_FALSE(package.empty());
  const std::string told = shell("dpkg-deb --field " + package.string() + " Depends Recommends Architecture").output;
  for (const char* library : {"libc6 (>= ", "libdnnl", "libabsl", "libfmt", "libyaml-cpp", "libpcre2-8-0", "libicu"}) {
    EXPECT_THAT(told, HasSubstr(library));
  }
  EXPECT_THAT(told, HasSubstr("Recommends: libedit2, libvulkan1"));
  const std::string files = shell("dpkg-deb --contents " + package.string()).output;
  for (const char* file :
       {"./usr/bin/rondo", "./usr/share/man/man1/rondo.1", "./usr/share/doc/rondo/copyright",
        "./usr/share/bash-completion/completions/rondo", "./usr/share/zsh/vendor-completions/_rondo"}) {
    EXPECT_THAT(files, HasSubstr(file));
  }
}

}  // namespace
}  // namespace rondo::cli
