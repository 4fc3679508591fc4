// The kernels compiled for the host. Under a thread sanitizer a block's warps are threads, so that it finds what lacks
// a barrier, and two blocks that write the same memory.
#include "host_kernels.h"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/all_kernels.h"

namespace rondo::devices::cuda::testing {
namespace {

/// Shared memory of a block, with a border behind what was asked for.
constexpr std::size_t kMostShared = 227 * 1024;  // of sm_90
constexpr std::size_t kBorder = 64;
constexpr unsigned char kBorderByte = 0xA5;

struct alignas(1024) SharedMemory {
  unsigned char bytes[kMostShared + kBorder];

  /// It is not zero on a card either.
  void begin(const HostLaunch& launch) {
    std::memset(bytes, 0x7F, launch.shared);
    std::memset(bytes + launch.shared, kBorderByte, kBorder);
  }
  void end(const HostLaunch& launch) const {
    for (std::size_t i = 0; i < kBorder; ++i) {
      if (bytes[launch.shared + i] == kBorderByte) continue;
      std::fprintf(stderr, "%s writes past its %u bytes of shared memory\n", entry_of(launch.kernel), launch.shared);
      std::abort();
    }
  }
};

/// A block, or a warp of one, whose asynchronous work is done late in every other one and, of one block, launch.
template <typename Kernel, typename Params>
void run_block(const HostLaunch& launch, const Params& params, HostBlock& block, unsigned number) {
  HostLater& later = HostLater::mine();
  later.set_late((block.x() + block.y() + number) % 2 == 0);
  Kernel::run(block, params);
  if (later.is_idle()) return;
  std::fprintf(stderr, "%s ends without a wait for what it has begun\n", entry_of(launch.kernel));
  std::abort();
}

/// Launches so far.
std::atomic<unsigned> launches{0};

/// Calls fn(x, y) for every block that is `team` modulo `teams`, the last one first.
template <typename Function>
void for_blocks(const HostLaunch& launch, std::uint64_t team, std::uint64_t teams, Function fn) {
  for (std::uint64_t i = std::uint64_t{launch.grid_x} * launch.grid_y; i-- > 0;) {
    if (i % teams == team)
      fn(static_cast<std::int64_t>(i % launch.grid_x), static_cast<std::int64_t>(i / launch.grid_x));
  }
}

#if defined(__SANITIZE_THREAD__)

/// The warps of one block after the other, each a thread.
class Team final : public HostTeam {
 public:
  explicit Team(unsigned warps) { pthread_barrier_init(&barrier_, nullptr, warps); }
  ~Team() override { pthread_barrier_destroy(&barrier_); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  void meet() override { pthread_barrier_wait(&barrier_); }

  SharedMemory shared;

 private:
  pthread_barrier_t barrier_;
};

/// What no barrier lies between really runs at the same time: the warps of a block, and blocks of two teams.
template <typename Kernel, typename Params>
void run_all(const HostLaunch& launch, const Params& params) {
  const unsigned number = ++launches;
  constexpr std::uint64_t kTeams = 2;
  const int warps = static_cast<int>(launch.threads) / kWarp;
  std::vector<std::unique_ptr<Team>> teams;
  std::vector<std::thread> threads;
  for (std::uint64_t team = 0; team < kTeams; ++team) {
    teams.push_back(std::make_unique<Team>(static_cast<unsigned>(warps)));
    for (int warp = 0; warp < warps; ++warp) {
      threads.emplace_back([&launch, &params, number, warp, team, &own = *teams.back()] {
        for_blocks(launch, team, kTeams, [&](std::int64_t x, std::int64_t y) {
          if (warp == 0) own.shared.begin(launch);
          own.meet();
          HostBlock block({x, y, static_cast<int>(launch.threads), own.shared.bytes}, warp, own);
          run_block<Kernel>(launch, params, block, number);
          own.meet();
          if (warp == 0) own.shared.end(launch);
        });
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

#else

thread_local SharedMemory shared;

template <typename Kernel, typename Params>
void run_all(const HostLaunch& launch, const Params& params) {
  const unsigned number = ++launches;
  for_blocks(launch, 0, 1, [&](std::int64_t x, std::int64_t y) {
    shared.begin(launch);
    HostBlock block(x, y, static_cast<int>(launch.threads), shared.bytes);
    run_block<Kernel>(launch, params, block, number);
    shared.end(launch);
  });
}

#endif

template <typename Kernel, typename Params>
void run_blocks(const HostLaunch& launch, const void* params) {
  if (launch.shared > kMostShared || launch.threads > kMostThreads || launch.threads % kWarp != 0) {
    std::fprintf(stderr, "%s: %u threads and %u bytes of shared memory are no launch\n", entry_of(launch.kernel),
                 launch.threads, launch.shared);
    std::abort();
  }
  run_all<Kernel>(launch, *static_cast<const Params*>(params));
}

struct Entry {
  const char* name;
  void (*run)(const HostLaunch&, const void*);
  std::size_t params;
};

constexpr Entry kEntries[] = {
#define RONDO_KERNEL_ENTRY(name, kernel, params) {"rondo_" #name, run_blocks<kernel, params>, sizeof(params)},
#include "kernels/kernels.def"
#undef RONDO_KERNEL_ENTRY
};

}  // namespace

void run_on_host(const HostLaunch& launch, const void* params) {
  kEntries[static_cast<std::size_t>(launch.kernel)].run(launch, params);
}

bool find_kernel(const std::string& entry, KernelId& kernel) {
  for (int i = 0; i < kKernels; ++i) {
    if (entry != kEntries[i].name) continue;
    kernel = static_cast<KernelId>(i);
    return true;
  }
  return false;
}

std::size_t params_size(KernelId kernel) { return kEntries[static_cast<std::size_t>(kernel)].params; }

}  // namespace rondo::devices::cuda::testing
