// A folder that is built beside its place, file by file, and takes the place only when it is whole.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "rondo/base/unfinished.h"

namespace rondo::model {

class NewFolder {
 public:
  /// `output_dir` must not exist or be an empty folder; `verb` begins messages. Errors: InvalidArgument naming the
  /// folder when it is something else or cannot be made; nothing is left then. What killed processes have begun of the
  /// same folder is removed: what nobody holds the lock (flock) of.
  static absl::StatusOr<NewFolder> create(const std::filesystem::path& output_dir, const std::string& verb);
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  /// Without commit() nothing is left behind.
  ~NewFolder();

  /// Where to write until commit().
  const std::filesystem::path& path() const { return aside_; }
  /// Renames into place and syncs. Errors: InvalidArgument when the place filled up meanwhile: it is left as it is.
  absl::Status commit();

 private:
  NewFolder(std::filesystem::path target, std::filesystem::path aside, std::string verb);

  std::filesystem::path target_;
  std::filesystem::path aside_;  // empty: moved from
  std::string verb_;
  std::optional<Unfinished> unfinished_;
  int lock_ = -1;  // of the folder aside; the lock goes with the process
};

}  // namespace rondo::model
