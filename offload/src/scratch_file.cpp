#include "rondo/offload/scratch_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "rondo/base/status.h"

namespace rondo::offload {
namespace {

constexpr Bytes kProbeRequest = 4_MiB;
constexpr Bytes kLongestProbe = 64_MiB;

/// What is missing of the folder is made: these, the outermost first.
std::vector<std::filesystem::path> make_folders(const std::filesystem::path& folder, std::error_code& error) {
  std::vector<std::filesystem::path> made;
  std::filesystem::path place;
  for (const std::filesystem::path& part : std::filesystem::absolute(folder, error)) {
    place /= part;
    if (std::filesystem::exists(place, error)) continue;
    if (std::filesystem::create_directory(place, error)) made.push_back(place);
    if (error) break;
  }
  return made;
}

/// A file without a name, so that nothing of it is left however the process ends. -1 and errno where there can be none.
int open_nameless(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  // Not every file system has such files.
  std::string name = (folder / ("rondo-" + std::to_string(::getpid()) + "-XXXXXX")).string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

/// Folders that were made for the file go before it is written: a file without a name needs none.
absl::StatusOr<int> open_in(const std::filesystem::path& folder) {
  constexpr int kTries = 1000;  // another run may take away the folder that it has made and this one has found
  for (int i = 1;; ++i) {
    std::error_code error;
    const std::vector<std::filesystem::path> made = make_folders(folder, error);
    const int fd = error ? -1 : open_nameless(folder);
    const int reason = error ? error.value() : errno;
    // The innermost first; one that somebody has put something into stays.
    for (auto place = made.rbegin(); place != made.rend() && ::rmdir(place->c_str()) == 0;) ++place;
    if (fd >= 0) return fd;
    // Of one that is gone again when it is looked at, create_directory() says that it is there.
    if ((reason == ENOENT || reason == EEXIST) && i < kTries) continue;
    return invalid_input("nvme_path: no file can be made in {}: {}", folder.string(), std::strerror(reason));
  }
}

/// Of the file's own disk, whatever has become of the folder.
Bytes free_bytes_around(int fd) {
  struct statvfs space {};
  return ::fstatvfs(fd, &space) == 0 ? static_cast<Bytes>(space.f_bavail) * space.f_frsize : 0;
}

}  // namespace

Bytes free_disk_bytes(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path place = std::filesystem::absolute(folder, error);
  while (!std::filesystem::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(place, error);
  return error ? 0 : static_cast<Bytes>(space.available);
}

Bytes disk_probe_bytes(Bytes free) {
  return std::clamp(free / 2 / kProbeRequest * kProbeRequest, kProbeRequest, kLongestProbe);
}

absl::StatusOr<double> measure_disk(const std::filesystem::path& folder, Bytes most) {
  const Bytes request = std::clamp(most / kDiskBlock * kDiskBlock, kDiskBlock, kProbeRequest);
  const Bytes size = std::max(std::min(disk_probe_bytes(free_disk_bytes(folder)), most) / request, Bytes{1}) * request;
  RONDO_ASSIGN_OR_RETURN(const auto file, ScratchFile::make(folder, size));
  RONDO_ASSIGN_OR_RETURN(const DiskBuffer buffer, allocate_disk_buffer(request));
  const auto begin = std::chrono::steady_clock::now();
  const Bytes all = kLongestProbe / kProbeRequest * request;
  for (Bytes done = 0; done < all; done += request) {
    RONDO_RETURN_IF_ERROR(file->write(done % size, buffer.bytes));
    RONDO_RETURN_IF_ERROR(file->read(done % size, buffer.bytes));
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return 2.0 * static_cast<double>(all) / std::max(taken.count(), 1e-6);
}

absl::StatusOr<DiskBuffer> allocate_disk_buffer(Bytes size) {
  DiskBuffer buffer;
  RONDO_ASSIGN_OR_RETURN(buffer.owner, devices::allocate_host(size + kDiskBlock, "disk buffers"));
  std::byte* begin = buffer.owner.view().host();
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  buffer.bytes = {begin + (round_up(address, kDiskBlock) - address), size};
  return buffer;
}

absl::StatusOr<std::unique_ptr<ScratchFile>> ScratchFile::make(const std::filesystem::path& folder, Bytes size) {
  RONDO_ASSIGN_OR_RETURN(const int fd, open_in(folder));
  auto file = std::unique_ptr<ScratchFile>(new ScratchFile(folder, fd, size));
  const Bytes free = free_bytes_around(fd);
  const auto too_much = [&](const char* why) {
    return resource_exhausted("nvme_path: {}: {} asked for in {}, {} are free: name another folder or free space", why,
                              format_bytes(size), folder.string(), format_bytes(free));
  };
  // Asked first: reserving until the disk is full would be felt by others.
  if (size > free) return too_much("not enough space");
  // All blocks now: afterwards the disk cannot be found full.
  if (const int failed = size == 0 ? 0 : ::posix_fallocate(fd, 0, static_cast<off_t>(size)); failed != 0) {
    return too_much(std::strerror(failed));
  }
  file->try_direct();
  return file;
}

/// Some file systems refuse the flag, others the first access.
void ScratchFile::try_direct() {
  const int flags = ::fcntl(fd_, F_GETFL);
  if (flags < 0 || ::fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0) return;
  const absl::StatusOr<DiskBuffer> probe = allocate_disk_buffer(kDiskBlock);
  direct_ = probe.ok() && ::pread(fd_, probe->bytes.data(), kDiskBlock, 0) >= 0;
  if (!direct_) ::fcntl(fd_, F_SETFL, flags);
}

ScratchFile::~ScratchFile() { ::close(fd_); }

std::filesystem::path ScratchFile::path() const { return fmt::format("/proc/self/fd/{}", fd_); }

absl::Status ScratchFile::read(Bytes offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return internal_error("nvme_path: reading {} at {} of the file in {}: {}", format_bytes(to.size()), offset,
                            folder_.string(), got == 0 ? "the file ends there" : std::strerror(errno));
    }
    to = to.subspan(static_cast<std::size_t>(got));
    offset += static_cast<Bytes>(got);
  }
  return absl::OkStatus();
}

absl::Status ScratchFile::write(Bytes offset, std::span<const std::byte> from) const {
  while (!from.empty()) {
    const ssize_t put = ::pwrite(fd_, from.data(), from.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      return internal_error("nvme_path: writing {} at {} of the file in {}: {}", format_bytes(from.size()), offset,
                            folder_.string(), put == 0 ? "nothing was written" : std::strerror(errno));
    }
    from = from.subspan(static_cast<std::size_t>(put));
    offset += static_cast<Bytes>(put);
  }
  return absl::OkStatus();
}

}  // namespace rondo::offload
