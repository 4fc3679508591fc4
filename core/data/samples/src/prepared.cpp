#include "prepared.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "rondo/base/atomic_file.h"
#include "rondo/base/file.h"
#include "rondo/base/folder.h"
#include "rondo/base/hash.h"
#include "rondo/base/status.h"

namespace rondo::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kWorthBytes = 1U << 20U;  // some seconds of tokenizing
constexpr const char* kExtension = ".tokens";
// Goes up whenever the same records become other tokens or other targets.
constexpr const char* kMeaning = "rondo tokens 4";

absl::Status add_contents(const fs::path& path, ContentHash& hash) {
  constexpr std::size_t kPiece = 16U << 20U;
  RONDO_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  hash.add_text(fmt::format("{} {}", path.filename().string(), bytes.size()));
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    hash.add(piece);
    file.release_pages(piece);
  }
  return absl::OkStatus();
}

}  // namespace

bool worth_preparing(std::span<const fs::path> files, const Renderer& renderer, const DataOptions& options) {
  if (options.prepared.empty() || renderer.fingerprint.empty() || options.max_samples != 0) return false;
  std::uintmax_t bytes = 0;
  for (const fs::path& file : files) {
    std::error_code error;  // told when the file is read
    const std::uintmax_t size = fs::file_size(file, error);
    if (!error) bytes += size;
  }
  return bytes >= kWorthBytes;
}

absl::StatusOr<fs::path> prepared_file(std::span<const fs::path> files, const Renderer& renderer,
                                       const DataOptions& options) {
  ContentHash hash;
  hash.add_text(kMeaning);
  hash.add_text(renderer.fingerprint);
  hash.add_text(fmt::format("{} {} {} {}", options.cutoff_len, options.train_on_prompt, options.mask_history,
                            static_cast<int>(options.format)));
  for (const fs::path& file : files) RONDO_RETURN_IF_ERROR(add_contents(file, hash));
  return options.prepared / (hash.hex() + kExtension);
}

void note_use(const fs::path& file, std::uintmax_t most) {
  std::error_code ignored;
  fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);
  struct Kept {
    fs::file_time_type used;
    std::uintmax_t bytes;
    fs::path path;
  };
  remove_abandoned_files(file.parent_path());
  std::vector<Kept> others;
  std::uintmax_t total = fs::file_size(file, ignored);
  for (const fs::path& path : entries_of(file.parent_path(), ignored)) {
    if (path.extension() != kExtension || path == file) continue;
    others.push_back({fs::last_write_time(path, ignored), fs::file_size(path, ignored), path});
  }
  std::sort(others.begin(), others.end(), [](const Kept& a, const Kept& b) { return a.used > b.used; });
  for (const Kept& one : others) {
    total += one.bytes;
    if (total > most) fs::remove(one.path, ignored);
  }
}

}  // namespace rondo::data
