// Whole-file reading, read-only mapping, and writing that is whole or absent.
//
// Thread rule: functions are reentrant; a MappedFile may be read from any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rondo {

/// A file mapped read-only. The mapping ends with the object; views into it die with it.
class MappedFile {
 public:
  /// Errors: InvalidArgument naming the path when it cannot be opened, is no regular file or cannot be mapped.
  static absl::StatusOr<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  /// Tells the kernel that the pages with these bytes will not be read again soon: they stop counting as resident
  /// memory. So do their neighbours, which reading them has mapped. What is read of them nevertheless comes from the
  /// file again. A range that is not within bytes() is left alone: the pages of another owner would lose their
  /// contents.
  void release_pages(std::span<const std::byte> range) const;

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::filesystem::path path_;
};

/// The whole file. Errors: InvalidArgument naming the path and the reason.
absl::StatusOr<std::string> read_file(const std::filesystem::path& path);

/// Writes `contents` under another name in the same folder, syncs, renames onto `path` and syncs the folder.
/// Errors: Internal naming the path; the old file, if any, is then untouched.
absl::Status write_file_atomically(const std::filesystem::path& path, std::string_view contents);

/// Whether write_file_atomically() could write there, asked before the work whose result it is to hold; nothing is
/// left. Errors: InvalidArgument naming the path and the reason.
absl::Status check_writable(const std::filesystem::path& path);

/// Where the program keeps what it can make again: $XDG_CACHE_HOME/rondo or $HOME/.cache/rondo; empty without either.
std::filesystem::path user_cache_folder();

/// fsync of a file or a folder. Errors: Internal naming the path.
absl::Status sync_path(const std::filesystem::path& path);

}  // namespace rondo
