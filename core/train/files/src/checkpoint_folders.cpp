#include "rondo/train/checkpoint_folders.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "rondo/base/file.h"
#include "rondo/base/folder.h"
#include "rondo/base/status.h"
#include "rondo/train/checkpoint.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kName = "checkpoint-";
constexpr std::string_view kHidden = ".checkpoint-";
constexpr std::string_view kPart = ".part";
constexpr std::string_view kOld = ".old";
constexpr std::string_view kGone = ".gone";

/// As far as they can be listed: a run does not end for want of more.
std::vector<fs::path> listed(const fs::path& folder) {
  std::error_code ignored;
  return entries_of(folder, ignored);
}

bool has_state(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kStateFile, error);
}

/// The number between the two in the folder's name.
std::optional<std::uint64_t> step_of(const fs::path& folder, std::string_view before, std::string_view behind) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(before) || !name.ends_with(behind) || name.size() < before.size() + behind.size()) {
    return std::nullopt;
  }
  const std::string number = name.substr(before.size(), name.size() - before.size() - behind.size());
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (number.empty() || number.size() > 18 || !std::ranges::all_of(number, is_digit)) return std::nullopt;
  return std::stoull(number);
}

/// Those of `ending` that are checkpoints while their place has none.
std::vector<std::pair<fs::path, fs::path>> out_of_place(const fs::path& output_dir, std::string_view ending) {
  std::vector<std::pair<fs::path, fs::path>> found;
  for (const fs::path& path : listed(output_dir)) {
    const std::optional<std::uint64_t> step = step_of(path, kHidden, ending);
    if (!step || !has_state(path)) continue;
    fs::path place = checkpoint_folder(output_dir, *step);
    if (!has_state(place)) found.emplace_back(path, std::move(place));
  }
  return found;
}

struct Found {
  std::uint64_t branch = 0;
  std::uint64_t step = 0;
  fs::path folder;
};

/// The oldest first.
std::vector<Found> checkpoints_in(const fs::path& output_dir) {
  std::vector<Found> found;
  for (const fs::path& path : listed(output_dir)) {
    const std::optional<std::uint64_t> step = step_of(path, kName, "");
    if (step && has_state(path)) found.push_back({branch_of(path), *step, path});
  }
  std::ranges::sort(
      found, [](const Found& a, const Found& b) { return std::pair(a.branch, a.step) < std::pair(b.branch, b.step); });
  return found;
}

/// What writes have left beside the checkpoints, but for what is the only one of its step.
absl::Status discard_leftovers(const fs::path& output_dir) {
  absl::Status status;
  for (const std::string_view ending : {kPart, kOld, kGone}) {
    const auto kept = ending == kGone ? std::vector<std::pair<fs::path, fs::path>>() : out_of_place(output_dir, ending);
    for (const fs::path& path : listed(output_dir)) {
      const std::string name = path.filename().string();
      const bool is_kept = std::ranges::any_of(kept, [&path](const auto& one) { return one.first == path; });
      if (name.starts_with(kHidden) && name.ends_with(ending) && !is_kept) status.Update(discard(path));
    }
  }
  return status;
}

/// Under a name by which the next start knows it when this is interrupted.
absl::Status remove_checkpoint(const fs::path& folder) {
  const fs::path gone = folder.parent_path() / fmt::format(".{}{}", folder.filename().string(), kGone);
  RONDO_RETURN_IF_ERROR(discard(gone));
  std::error_code error;
  fs::rename(folder, gone, error);
  return discard(error ? folder : gone);
}

}  // namespace

fs::path checkpoint_folder(const fs::path& output_dir, std::uint64_t step) {
  return output_dir / fmt::format("{}{}", kName, step);
}

fs::path part_folder(const fs::path& output_dir, std::uint64_t step) {
  return output_dir / fmt::format("{}{}{}", kHidden, step, kPart);
}

absl::Status discard(const fs::path& folder) {
  std::error_code error;
  fs::remove(folder / kStateFile, error);  // remove_all() tells of what stands in the way
  fs::remove_all(folder, error);
  if (error) return internal_error("{}: cannot be removed: {}", folder.string(), error.message());
  return absl::OkStatus();
}

absl::Status put_in_place(const fs::path& aside, const fs::path& place) {
  if (::renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) {
    RONDO_RETURN_IF_ERROR(sync_path(place.parent_path()));
    (void)discard(aside);  // or later, by prune_checkpoints(), which tells of it
    return absl::OkStatus();
  }
  const int reason = errno;
  // There is nothing in its place, or the file system or the kernel does not know how.
  if (reason == ENOENT || reason == EINVAL || reason == ENOSYS || reason == EOPNOTSUPP) {
    return put_in_place_by_renaming(aside, place);
  }
  return internal_error("{}: cannot be renamed into place: {}", place.string(), std::strerror(reason));
}

absl::Status put_in_place_by_renaming(const fs::path& aside, const fs::path& place) {
  const fs::path old = place.parent_path() / fmt::format(".{}{}", place.filename().string(), kOld);
  const bool replaces = has_state(place);
  RONDO_RETURN_IF_ERROR(discard(replaces ? old : place));
  std::error_code error;
  if (replaces) fs::rename(place, old, error);
  if (error) return internal_error("{}: cannot be renamed to {}: {}", place.string(), old.string(), error.message());
  fs::rename(aside, place, error);
  if (error) {
    std::error_code ignored;
    if (replaces) fs::rename(old, place, ignored);  // the next start tries again
    return internal_error("{}: cannot be renamed into place: {}", place.string(), error.message());
  }
  RONDO_RETURN_IF_ERROR(sync_path(place.parent_path()));
  if (replaces) (void)discard(old);  // or later, as above
  return absl::OkStatus();
}

absl::Status recover_checkpoints(const fs::path& output_dir) {
  // What was being written is newer than what it was to replace.
  for (const std::string_view ending : {kPart, kOld}) {
    for (const auto& [path, place] : out_of_place(output_dir, ending)) {
      RONDO_RETURN_IF_ERROR(put_in_place(path, place));
    }
  }
  return absl::OkStatus();
}

std::optional<fs::path> newest_checkpoint(const fs::path& output_dir) {
  const auto found = checkpoints_in(output_dir);
  if (found.empty()) return std::nullopt;
  return found.back().folder;
}

std::uint64_t branch_of(const fs::path& checkpoint) {
  const absl::StatusOr<std::string> text = read_file(checkpoint / kBranchFile);
  std::uint64_t branch = 0;
  if (text.ok()) std::from_chars(text->data(), text->data() + text->size(), branch);
  return branch;
}

bool is_newest(const fs::path& output_dir, const fs::path& checkpoint) {
  const std::optional<fs::path> newest = newest_checkpoint(output_dir);
  std::error_code error;
  return newest && !checkpoint.empty() && fs::equivalent(*newest, checkpoint, error);
}

std::uint64_t branch_of_run(const fs::path& output_dir, const fs::path& resumed_from) {
  const std::optional<fs::path> newest = newest_checkpoint(output_dir);
  if (!newest) return 0;
  return branch_of(*newest) + (is_newest(output_dir, resumed_from) ? 0 : 1);
}

std::optional<fs::path> checkpoint_before(const fs::path& output_dir, const fs::path& checkpoint) {
  const std::optional<std::uint64_t> step = step_of(checkpoint, kName, "");
  std::optional<fs::path> before;
  for (const Found& one : checkpoints_in(output_dir)) {
    if (step && one.step < *step) before = one.folder;
  }
  return before;
}

absl::Status prune_checkpoints(const fs::path& output_dir, std::uint64_t limit, std::uint64_t best) {
  absl::Status status = recover_checkpoints(output_dir);
  status.Update(discard_leftovers(output_dir));
  const auto found = checkpoints_in(output_dir);
  if (limit == 0 || found.empty()) return status;
  const std::uint64_t newest = found.back().step;
  const auto stays = [&](std::uint64_t step) { return step == newest || (best != 0 && step == best); };
  auto others =
      static_cast<std::uint64_t>(std::ranges::count_if(found, [&](const Found& one) { return !stays(one.step); }));
  const std::uint64_t kept = found.size() - others;
  for (const Found& one : found) {
    if (stays(one.step)) continue;
    if (kept + others <= limit) break;
    --others;
    status.Update(remove_checkpoint(one.folder));
  }
  return status;
}

}  // namespace rondo::train
