// A file that is written piece by piece beside its place and takes it only when it is whole.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "rondo/base/unfinished.h"

namespace rondo {

class AtomicFile {
 public:
  /// Errors here and below: Internal naming the path and the reason. What stands at the path and is no regular file is
  /// left alone.
  static absl::StatusOr<AtomicFile> create(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  /// Without commit() nothing is left behind, and a file that stood at the path stands there still.
  ~AtomicFile();

  absl::Status write(std::span<const std::byte> bytes);
  /// Syncs, renames into place, syncs the folder.
  absl::Status commit();
  /// The same where nothing may be replaced. Errors: also InvalidArgument when something has come to stand at the path
  /// since create(), which is left alone.
  absl::Status commit_new();

 private:
  absl::Status settle();
  explicit AtomicFile(const std::filesystem::path& path);
  absl::Status failure(const char* what, int reason) const;

  std::filesystem::path path_;
  std::filesystem::path aside_;
  std::optional<Unfinished> unfinished_;
  int fd_ = -1;
};

/// Removes what processes that were killed while they wrote such files have left in the folder. Nobody else may be
/// writing there.
void remove_unfinished_files(const std::filesystem::path& folder);
/// The same where others may be writing: what has not been written to for ten minutes and whose lock nobody holds. On
/// file systems without locks (flock) nothing is removed.
void remove_abandoned_files(const std::filesystem::path& folder);
/// Removes a file, or a folder and what is in it, by that rule: `idle` in the place of ten minutes.
void remove_if_abandoned(const std::filesystem::path& path, std::chrono::seconds idle);

}  // namespace rondo
