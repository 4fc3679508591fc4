// File-system calls behind new_folder.h.
#include "rondo/model/new_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "rondo/base/file.h"
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

}  // namespace

NewFolder::NewFolder(std::filesystem::path target, std::filesystem::path aside, std::string verb)
    : target_(std::move(target)), aside_(std::move(aside)), verb_(std::move(verb)) {}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : target_(std::move(other.target_)),
      aside_(std::exchange(other.aside_, std::filesystem::path())),
      verb_(std::move(other.verb_)) {}

NewFolder::~NewFolder() {
  if (aside_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(aside_, ignored);
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
  NewFolder folder(std::move(target), aside, verb);
  std::filesystem::create_directories(aside, error);
  if (error) {
    return invalid_input("{}: output_dir: {} cannot be made: {}", verb, folder.target_.string(), error.message());
  }
  return folder;
}

absl::Status NewFolder::commit() {
  // Replaces an empty folder; one that filled up meanwhile is left as it is.
  if (std::rename(aside_.c_str(), target_.c_str()) != 0) {
    return invalid_input("{}: output_dir: {} cannot be made: {}", verb_, target_.string(), std::strerror(errno));
  }
  aside_.clear();
  return sync_path(target_.parent_path());
}

}  // namespace rondo::model
