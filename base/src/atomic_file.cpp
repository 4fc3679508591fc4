// POSIX calls behind atomic_file.h.
#include "rondo/base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "rondo/base/file.h"
#include "rondo/base/folder.h"
#include "rondo/base/status.h"

namespace rondo {
namespace {

/// .<file>.<process>.part
bool is_unfinished(std::string_view name) {
  constexpr std::string_view kEnd = ".part";
  if (!name.starts_with('.') || !name.ends_with(kEnd)) return false;
  name.remove_suffix(kEnd.size());
  const std::size_t dot = name.rfind('.');
  const std::string_view process = name.substr(dot + 1);
  return dot > 1 && !process.empty() && process.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(path), aside_(path.parent_path() / fmt::format(".{}.{}.part", path.filename().string(), ::getpid())) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      aside_(std::move(other.aside_)),
      unfinished_(std::exchange(other.unfinished_, std::nullopt)),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(aside_.c_str());
}

absl::Status AtomicFile::failure(const char* what, int reason) const {
  return internal_error("{}: cannot be {}: {}", path_.string(), what, std::strerror(reason));
}

absl::StatusOr<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
  AtomicFile file(path);
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(there)) return file.failure("written", EISDIR);
  // The new file would take the place of a device such as /dev/null.
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    return internal_error("{}: cannot be written: expected a regular file or none", path.string());
  }
  file.unfinished_.emplace(file.aside_);
  file.fd_ = ::open(file.aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file.fd_ < 0) return file.failure("written", errno);
  (void)::flock(file.fd_, LOCK_EX | LOCK_NB);  // tells remove_abandoned_files() that somebody writes
  return file;
}

absl::Status AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failure("written", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::commit() {
  if (::fsync(fd_) != 0) return failure("synced", errno);
  if (::rename(aside_.c_str(), path_.c_str()) != 0) return failure("renamed into place", errno);
  return settle();
}

absl::Status AtomicFile::commit_new() {
  if (::fsync(fd_) != 0) return failure("synced", errno);
  if (::renameat2(AT_FDCWD, aside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0) return settle();
  int reason = errno;
  // The file system or the kernel does not know how; a second name for a file replaces nothing either.
  if (reason == EINVAL || reason == ENOSYS || reason == EOPNOTSUPP) {
    reason = ::link(aside_.c_str(), path_.c_str()) == 0 ? 0 : errno;
    if (reason == 0) {
      ::unlink(aside_.c_str());
      return settle();
    }
  }
  if (reason == EEXIST) {
    return invalid_input("{}: something else was written there meanwhile; name another file", path_.string());
  }
  return failure("renamed into place", reason);
}

/// What is left to do once it has its name.
absl::Status AtomicFile::settle() {
  unfinished_.reset();
  // Network file systems report a failed write as late as here.
  if (::close(std::exchange(fd_, -1)) != 0) return failure("closed", errno);
  const std::filesystem::path folder = path_.parent_path();
  return sync_path(folder.empty() ? "." : folder);
}

void remove_unfinished_files(const std::filesystem::path& folder) {
  std::error_code error;  // what cannot be removed takes room and nothing else
  for (const std::filesystem::path& path : entries_of(folder, error)) {
    if (is_unfinished(path.filename().string()) && std::filesystem::is_regular_file(path, error)) {
      std::filesystem::remove(path, error);
    }
  }
}

void remove_if_abandoned(const std::filesystem::path& path, std::chrono::seconds idle) {
  namespace fs = std::filesystem;
  std::error_code error;  // what cannot be removed takes room and nothing else
  const fs::file_time_type written = fs::last_write_time(path, error);
  if (error || fs::file_time_type::clock::now() - written < idle) return;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) fs::remove_all(path, error);
  ::close(fd);
}

void remove_abandoned_files(const std::filesystem::path& folder) {
  constexpr std::chrono::minutes kBetweenWrites(10);  // and longer than a new file is without its lock
  std::error_code error;                              // as above
  for (const std::filesystem::path& path : entries_of(folder, error)) {
    const bool is_one = is_unfinished(path.filename().string()) && std::filesystem::is_regular_file(path, error);
    if (is_one) remove_if_abandoned(path, kBetweenWrites);
  }
}

}  // namespace rondo
