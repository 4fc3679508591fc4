// A process that may start few threads, as under a limit on pids: for root too, whom RLIMIT_NPROC does not bind.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace rondo::test {

/// Sanitizers take address space for each thread as they like.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCanHaveFewThreads = false;
#else
constexpr bool kCanHaveFewThreads = true;
#endif

/// While it lives about `more` threads can be started: their stacks are so large that no more of them fit into the
/// address space that the process may have.
class FewThreads {
 public:
  explicit FewThreads(std::uint32_t more) {
    constexpr std::uint64_t kStack = std::uint64_t{2} << 30U;
    EXPECT_EQ(::pthread_getattr_default_np(&attributes_), 0);
    EXPECT_EQ(::pthread_attr_getstacksize(&attributes_, &stack_), 0);
    set_stack(kStack);
    EXPECT_EQ(::getrlimit(RLIMIT_AS, &before_), 0);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const std::uint64_t taken = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const rlimit few{taken + more * kStack + kStack / 2, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_AS, &few), 0);
  }
  ~FewThreads() {
    ::setrlimit(RLIMIT_AS, &before_);
    set_stack(stack_);
    ::pthread_attr_destroy(&attributes_);
  }
  FewThreads(const FewThreads&) = delete;
  FewThreads& operator=(const FewThreads&) = delete;

 private:
  void set_stack(std::size_t size) {
    EXPECT_EQ(::pthread_attr_setstacksize(&attributes_, size), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&attributes_), 0);
  }

  pthread_attr_t attributes_{};
  std::size_t stack_ = 0;
  rlimit before_{};
};

}  // namespace rondo::test
