// File-system calls behind new_folder.h.
#include "rondo/model/new_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "rondo/base/atomic_file.h"
#include "rondo/base/file.h"
#include "rondo/base/folder.h"
#include "rondo/base/status.h"

namespace rondo::model {
namespace {

absl::Status check_vacant(const std::filesystem::path& folder) {
  std::error_code error;
  const auto state = std::filesystem::symlink_status(folder, error);
  if (state.type() == std::filesystem::file_type::not_found) return absl::OkStatus();
  if (state.type() == std::filesystem::file_type::none) {
    return invalid_input("{}: cannot be looked at: {}", folder.string(), error.message());
  }
  if (state.type() != std::filesystem::file_type::directory) {
    return invalid_input("{}: exists and is no folder; name another output_dir", folder.string());
  }
  const bool empty = std::filesystem::is_empty(folder, error);
  if (error) return invalid_input("{}: cannot be read: {}", folder.string(), error.message());
  if (!empty) return invalid_input("{}: exists and is not empty; name another output_dir", folder.string());
  return absl::OkStatus();
}

/// .<folder>.<process>.part
bool is_beginning_of(const std::string& folder, std::string_view name) {
  const std::string front = "." + folder + ".";
  constexpr std::string_view kEnd = ".part";
  if (!name.starts_with(front) || !name.ends_with(kEnd) || name.size() <= front.size() + kEnd.size()) return false;
  const std::string_view process = name.substr(front.size(), name.size() - front.size() - kEnd.size());
  return process.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Removes what processes that were killed have left of `target`: as large as a model, and nobody looks for it.
void remove_abandoned(const std::filesystem::path& target) {
  namespace fs = std::filesystem;
  constexpr std::chrono::seconds kWithoutLock(10);  // and longer than a new one is
  std::error_code error;                            // what cannot be removed takes room and nothing else
  for (const fs::path& path : entries_of(target.parent_path(), error)) {
    const bool is_one = is_beginning_of(target.filename().string(), path.filename().string()) &&
                        fs::is_directory(fs::symlink_status(path, error));
    if (is_one) remove_if_abandoned(path, kWithoutLock);
  }
}

}  // namespace

NewFolder::NewFolder(std::filesystem::path target, std::filesystem::path aside, std::string verb)
    : target_(std::move(target)), aside_(std::move(aside)), verb_(std::move(verb)) {}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : target_(std::move(other.target_)),
      aside_(std::exchange(other.aside_, std::filesystem::path())),
      verb_(std::move(other.verb_)),
      unfinished_(std::exchange(other.unfinished_, std::nullopt)),
      lock_(std::exchange(other.lock_, -1)) {}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!aside_.empty()) std::filesystem::remove_all(aside_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

absl::StatusOr<NewFolder> NewFolder::create(const std::filesystem::path& output_dir, const std::string& verb) {
  std::error_code error;
  std::filesystem::path target = std::filesystem::absolute(output_dir, error).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // a slash at the end
  if (error || !target.has_filename()) {
    return invalid_input("{}: output_dir: \"{}\" names no folder", verb, output_dir.string());
  }
  RONDO_RETURN_IF_ERROR(check_vacant(target));
  const std::filesystem::path aside =
      target.parent_path() / fmt::format(".{}.{}.part", target.filename().string(), ::getpid());
  remove_abandoned(target);
  NewFolder folder(std::move(target), aside, verb);
  folder.unfinished_.emplace(aside);
  std::filesystem::create_directories(aside, error);
  if (error) {
    return invalid_input("{}: output_dir: {} cannot be made: {}", verb, folder.target_.string(), error.message());
  }
  folder.lock_ = ::open(aside.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder.lock_ >= 0) (void)::flock(folder.lock_, LOCK_EX | LOCK_NB);  // tells others that somebody writes
  return folder;
}

absl::Status NewFolder::commit() {
  // Replaces an empty folder; one that filled up meanwhile is left as it is.
  if (std::rename(aside_.c_str(), target_.c_str()) != 0) {
    return invalid_input("{}: output_dir: {} cannot be made: {}", verb_, target_.string(), std::strerror(errno));
  }
  aside_.clear();
  unfinished_.reset();
  return sync_path(target_.parent_path());
}

}  // namespace rondo::model
