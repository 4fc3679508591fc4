#include "rondo/offload/scratch_file.h"

#include <fcntl.h>
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

Bytes free_disk_bytes(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path place = std::filesystem::absolute(folder, error);
  while (!std::filesystem::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(place, error);
  return error ? 0 : static_cast<Bytes>(space.available);
}

absl::StatusOr<double> measure_disk(const std::filesystem::path& folder) {
  constexpr Bytes kRequest = 4_MiB;
  constexpr Bytes kFile = 64_MiB;
  RONDO_ASSIGN_OR_RETURN(const auto file, ScratchFile::make(folder, kFile));
  RONDO_ASSIGN_OR_RETURN(const DiskBuffer buffer, allocate_disk_buffer(kRequest));
  const auto begin = std::chrono::steady_clock::now();
  for (Bytes offset = 0; offset < kFile; offset += kRequest) {
    RONDO_RETURN_IF_ERROR(file->write(offset, buffer.bytes));
    RONDO_RETURN_IF_ERROR(file->read(offset, buffer.bytes));
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return 2.0 * static_cast<double>(kFile) / std::max(taken.count(), 1e-6);
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
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return invalid_input("nvme_path: {} cannot be made: {}", folder.string(), error.message());
  const Bytes free = free_disk_bytes(folder);
  const auto too_much = [&](const char* why) {
    return resource_exhausted("nvme_path: {}: {} asked for in {}, {} are free: name another folder or free space", why,
                              format_bytes(size), folder.string(), format_bytes(free));
  };
  // Asked first: reserving until the disk is full would be felt by others.
  if (size > free) return too_much("not enough space");
  std::string name = (folder / ("rondo-" + std::to_string(::getpid()) + "-XXXXXX")).string();
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return invalid_input("nvme_path: no file can be made in {}: {}", folder.string(), std::strerror(errno));
  auto file = std::unique_ptr<ScratchFile>(new ScratchFile(name, fd, size));
  // All blocks now: afterwards the disk cannot be found full.
  if (const int failed = size == 0 ? 0 : ::posix_fallocate(fd, 0, static_cast<off_t>(size)); failed != 0) {
    return too_much(std::strerror(failed));
  }
  file->try_direct();
  return file;
}

/// Some file systems refuse the flag, others the first access.
void ScratchFile::try_direct() {
  const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
  if (fd < 0) return;
  const absl::StatusOr<DiskBuffer> probe = allocate_disk_buffer(kDiskBlock);
  const bool works = probe.ok() && ::pread(fd, probe->bytes.data(), kDiskBlock, 0) >= 0;
  if (!works) {
    ::close(fd);
    return;
  }
  ::close(fd_);
  fd_ = fd;
  direct_ = true;
}

ScratchFile::~ScratchFile() {
  ::close(fd_);
  ::unlink(path_.c_str());
}

absl::Status ScratchFile::read(Bytes offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return internal_error("{}: reading {} at {}: {}", path_.string(), format_bytes(to.size()), offset,
                            got == 0 ? "the file ends there" : std::strerror(errno));
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
      return internal_error("{}: writing {} at {}: {}", path_.string(), format_bytes(from.size()), offset,
                            put == 0 ? "nothing was written" : std::strerror(errno));
    }
    from = from.subspan(static_cast<std::size_t>(put));
    offset += static_cast<Bytes>(put);
  }
  return absl::OkStatus();
}

}  // namespace rondo::offload
