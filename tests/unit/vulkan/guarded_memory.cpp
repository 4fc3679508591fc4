// Loaded in front of the C library (LD_PRELOAD), gives Mesa's lavapipe memory for its blocks that ends where the
// process may not read: a kernel that reads behind a block ends the process, where it would else find zeros, and a card
// would be lost. Blocks begin as NaNs, and none lies where another has been. What a workgroup keeps between barriers
// cannot be told from blocks and goes the same way, which takes its time in whole runs.
//
// Thread rule: as the functions it stands in for.
#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 64;                // what lavapipe promises of mapped memory
constexpr std::size_t kRoom = std::size_t{1} << 40U;  // of addresses

std::atomic<std::uintptr_t> room_begin{0};
std::atomic<std::size_t> used{0};
std::atomic<const void*> last_guard{nullptr};

std::size_t round_up(std::size_t size, std::size_t grain) { return (size + grain - 1) / grain * grain; }

/// Addresses that nothing may touch; 0 when there are none to be had.
std::uintptr_t room() {
  static const std::uintptr_t begin = [] {
    void* const got = mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return got == MAP_FAILED ? 0 : reinterpret_cast<std::uintptr_t>(got);
  }();
  room_begin.store(begin);
  return begin;
}

bool is_lavapipe(const void* caller) {
  Dl_info info{};
  return dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
         std::string_view(info.dli_fname).find("libvulkan_lvp") != std::string_view::npos;
}

/// The pages of a block: its size in whole pages, a guard, the block up to their end, a guard. Null when there is no
/// room.
void* guarded(std::size_t size) {
  const std::size_t pages = round_up(size, kPage);
  const std::size_t all = pages + 3 * kPage;
  const std::size_t at = room() == 0 ? kRoom : used.fetch_add(all);
  if (at > kRoom - all) return nullptr;
  auto* const head = reinterpret_cast<std::byte*>(room() + at);
  std::byte* const begin = head + 2 * kPage;
  if (mprotect(head, kPage, PROT_READ | PROT_WRITE) != 0 || mprotect(begin, pages, PROT_READ | PROT_WRITE) != 0) {
    return nullptr;
  }
  std::memcpy(head, &pages, sizeof(pages));
  std::memset(begin, 0xFF, pages);
  last_guard = begin + pages;
  return begin + pages - round_up(size, kAlignment);
}

/// Its addresses are nobody's from now on. All of them look alike then: the kernel counts ranges that differ.
void give_back(std::uintptr_t block) {
  auto* const head = reinterpret_cast<std::byte*>(block / kPage * kPage - 2 * kPage);
  std::size_t pages = 0;
  std::memcpy(&pages, head, sizeof(pages));
  const void* guard = head + 2 * kPage + pages;
  last_guard.compare_exchange_strong(guard, nullptr);
  madvise(head, pages + 2 * kPage, MADV_DONTNEED);
  mprotect(head, pages + 2 * kPage, PROT_NONE);
}

}  // namespace

extern "C" {

void __libc_free(void* memory);  // NOLINT(bugprone-reserved-identifier): glibc's own name of its free()

/// What lies behind the block that was given out last; null before the first and when that has been given back.
const void* rondo_last_guard() { return last_guard; }

int posix_memalign(void** out, std::size_t alignment, std::size_t size) noexcept {
  if (alignment == kPage && is_lavapipe(__builtin_return_address(0))) {
    *out = guarded(size);
    return *out == nullptr ? ENOMEM : 0;
  }
  using Function = int(void**, std::size_t, std::size_t);
  static auto* const real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "posix_memalign"));
  return real(out, alignment, size);
}

void free(void* memory) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t begin = room_begin.load(std::memory_order_relaxed);
  if (begin == 0 || address < begin || address - begin >= kRoom) return __libc_free(memory);
  give_back(address);
}

}  // extern "C"
