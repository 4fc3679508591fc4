#include "rondo/train/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "rondo/base/status.h"

namespace rondo::train {

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status FolderLock::take(const std::filesystem::path& folder) {
  if (is_held()) return absl::OkStatus();
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::OkStatus();
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
    fd_ = fd;
    return absl::OkStatus();
  }
  const bool taken = errno == EWOULDBLOCK;  // all else means that there are no locks
  ::close(fd);
  if (!taken) return absl::OkStatus();
  return invalid_input("output_dir: another run is at work in {}: wait for its end, or name another folder",
                       folder.string());
}

}  // namespace rondo::train
