// The paths that remove_unfinished() goes through. What a handler touches must be global.
//
// A handler takes a path out of its place while it reads it, so that no other thread frees it meanwhile: whose path has
// been taken leaves it to the handler.
#include "rondo/base/unfinished.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace rondo {
namespace {

std::array<std::atomic<char*>, 64> places;
static_assert(std::atomic<char*>::is_always_lock_free, "the handler may only touch what needs no lock");

/// struct linux_dirent64, to which no header of glibc gives a name.
constexpr std::size_t kLengthAt = 16;  // of the entry, two bytes
constexpr std::size_t kNameAt = 19;

void remove_files_in(int folder) {
  alignas(std::uint64_t) std::array<char, 4096> entries;
  long bytes = 0;
  while ((bytes = ::syscall(SYS_getdents64, folder, entries.data(), entries.size())) > 0) {
    for (std::size_t at = 0; at < static_cast<std::size_t>(bytes);) {
      ::unlinkat(folder, entries.data() + at + kNameAt, 0);
      std::uint16_t length = 0;
      std::memcpy(&length, entries.data() + at + kLengthAt, sizeof(length));
      at += length;
    }
  }
}

void remove_folder(const char* path) {
  // Another thread may be putting a file into it.
  for (int tries = 0; tries < 8; ++tries) {
    const int folder = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    remove_files_in(folder);
    ::close(folder);
    if (::rmdir(path) == 0) return;
  }
}

}  // namespace

Unfinished::Unfinished(const std::filesystem::path& path) {
  char* copy = ::strdup(path.c_str());
  if (copy == nullptr) return;
  for (std::atomic<char*>& place : places) {
    char* none = nullptr;
    if (place.compare_exchange_strong(none, copy)) {
      place_ = &place;
      path_ = copy;
      return;
    }
  }
  std::free(copy);
}

Unfinished::Unfinished(Unfinished&& other) noexcept
    : place_(std::exchange(other.place_, nullptr)), path_(std::exchange(other.path_, nullptr)) {}

Unfinished::~Unfinished() {
  char* own = path_;
  if (place_ != nullptr && place_->compare_exchange_strong(own, nullptr)) std::free(path_);
}

void remove_unfinished() {
  for (std::atomic<char*>& place : places) {
    char* path = place.exchange(nullptr);
    if (path == nullptr) continue;
    if (::unlink(path) != 0) remove_folder(path);
    char* none = nullptr;
    place.compare_exchange_strong(none, path);  // for its owner, where the process goes on
  }
}

}  // namespace rondo
