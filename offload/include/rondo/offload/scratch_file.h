// A file for state that does not fit into memory: preallocated, read and written past the page cache where the file
// system can. It has no name, so that it is gone when its owner is, and when the process is, however that ends.
//
// Any thread may read and write; parts that overlap must not be in flight at the same time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/disk.h"
#include "rondo/devices/device.h"

namespace rondo::offload {

class ScratchFile {
 public:
  /// A file of `size` bytes, all of them reserved, on the disk of `folder`. A folder that does not exist is made to see
  /// that it can be, and does not stay.
  /// Errors: InvalidArgument naming the folder; ResourceExhausted with asked and free bytes.
  static absl::StatusOr<std::unique_ptr<ScratchFile>> make(const std::filesystem::path& folder, Bytes size);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  /// Errors: Internal naming folder, offset and cause.
  absl::Status read(Bytes offset, std::span<std::byte> to) const;
  absl::Status write(Bytes offset, std::span<const std::byte> from) const;

  /// What this process, and nobody else, can open it by; it does not lie in the folder.
  std::filesystem::path path() const;
  Bytes size() const { return size_; }
  /// Past the page cache.
  bool direct() const { return direct_; }

 private:
  ScratchFile(std::filesystem::path folder, int fd, Bytes size) : folder_(std::move(folder)), fd_(fd), size_(size) {}
  void try_direct();

  const std::filesystem::path folder_;
  const int fd_;
  const Bytes size_;
  bool direct_ = false;
};

/// Host memory at a multiple of kDiskBlock.
struct DiskBuffer {
  devices::Buffer owner;
  std::span<std::byte> bytes;
};
absl::StatusOr<DiskBuffer> allocate_disk_buffer(Bytes size);

/// Of the file that a disk with so much `free` is measured with: 64 MiB, or half of what is free, and 4 MiB at least.
Bytes disk_probe_bytes(Bytes free);

/// Bytes per second of reading and writing in turn, 16 times 4 MiB, in a file of disk_probe_bytes(); where `most` is
/// less than these, in one that is no longer, down to a block. Errors: those of ScratchFile::make.
absl::StatusOr<double> measure_disk(const std::filesystem::path& folder, Bytes most = ~Bytes{0});

/// Bytes that can still be written to the file system of `folder`, or of its nearest parent that exists.
Bytes free_disk_bytes(const std::filesystem::path& folder);

}  // namespace rondo::offload
