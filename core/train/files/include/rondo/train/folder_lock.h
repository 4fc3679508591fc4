// A folder that one run at a time works in.
#pragma once

#include <filesystem>

#include "absl/status/status.h"

namespace rondo::train {

/// Of a process that has ended, however it did, no lock is left, and none lies in the folder as a file.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Until this object's end the folder is its own; again does nothing. A folder that does not exist, or that lies
  /// where there are no locks (some network file systems), is not held. Errors: InvalidArgument when another holds it.
  absl::Status take(const std::filesystem::path& folder);
  bool is_held() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace rondo::train
