#include "rondo/base/documents.h"

#include <system_error>

#include "rondo/base/file.h"
#include "rondo/base/status.h"

namespace rondo {

bool Documents::has(const std::string& name) const {
  if (made_) return texts_.contains(name);
  std::error_code ignored;
  return std::filesystem::exists(origin_ / name, ignored);
}

absl::StatusOr<std::string> Documents::read(const std::string& name, std::size_t limit) const {
  std::size_t size = 0;
  if (made_) {
    const auto found = texts_.find(name);
    if (found == texts_.end()) return invalid_input("{}: holds nothing for {}", origin_.string(), name);
    size = found->second.size();
    if (size <= limit) return found->second;
  } else {
    const std::filesystem::path path = origin_ / name;
    std::error_code error;
    size = std::filesystem::file_size(path, error);
    if (error || size <= limit) {
      // The Hugging Face cache keeps links to files that may not have arrived.
      if (error && std::filesystem::is_symlink(std::filesystem::symlink_status(path, error))) {
        return invalid_input("{}: is a link to {}, which is missing: an incomplete download? Fetch the model again",
                             path.string(), std::filesystem::read_symlink(path, error).string());
      }
      return read_file(path);
    }
  }
  return invalid_input("{}: expected at most {} bytes, found {}", place(name), limit, size);
}

std::string Documents::place(const std::string& name) const {
  return made_ ? fmt::format("{} as {}", origin_.string(), name) : (origin_ / name).string();
}

}  // namespace rondo
